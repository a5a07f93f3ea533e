"""Settings of group coordination and their configuration keys."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from oncelog.base.units import DAY_MS, INT32_MAX, MIB, MINUTE_MS, SECOND_MS


@dataclass(slots=True)
class GroupSettings:
    """Settings shared by all shards; ``SETTING_KEYS`` has the keys."""

    min_session_timeout_ms: int = 6 * SECOND_MS
    max_session_timeout_ms: int = 30 * MINUTE_MS
    initial_rebalance_delay_ms: int = 3 * SECOND_MS
    max_size: int = INT32_MAX
    members_max_bytes: int = 64 * MIB
    """The memory quota for the members of all groups of a broker."""
    share_partitions_max: int = 250_000
    """Partitions with share state of all share groups of a broker."""
    new_member_join_timeout_ms: int = 5 * MINUTE_MS
    """The maximum time that a new member's JoinGroup stays parked; no key, as in Apache Kafka."""
    offset_metadata_max_length: int = 4096
    offsets_retention_ms: int = 7 * DAY_MS
    offsets_retention_check_interval_ms: int = 10 * MINUTE_MS


SETTING_KEYS: Final[dict[str, tuple[str, int]]] = {
    "min_session_timeout_ms": ("group.min.session.timeout.ms", 1),
    "max_session_timeout_ms": ("group.max.session.timeout.ms", 1),
    "initial_rebalance_delay_ms": ("group.initial.rebalance.delay.ms", 1),
    "max_size": ("group.max.size", 1),
    "members_max_bytes": ("oncelog.group.members.max.bytes", 1),
    "share_partitions_max": ("oncelog.group.share.partitions.max", 1),
    "offset_metadata_max_length": ("offset.metadata.max.bytes", 1),
    "offsets_retention_ms": ("offsets.retention.minutes", MINUTE_MS),
    "offsets_retention_check_interval_ms": ("offsets.retention.check.interval.ms", 1),
}
"""Field of GroupSettings → its key and the factor for its value."""
