"""The settings of a consumer group."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from typing import NamedTuple

from oncelog.core.groups.consumer.assignors.spec import Assignment, GroupSpec

Assignor = Callable[[GroupSpec], Assignment]


class MigrationPolicy(Enum):
    """The conversions of groups with members that are allowed; the values of group.consumer.migration.policy."""

    BIDIRECTIONAL = "bidirectional"
    UPGRADE = "upgrade"
    DOWNGRADE = "downgrade"
    DISABLED = "disabled"

    @property
    def allows_upgrade(self) -> bool:
        return self in (MigrationPolicy.BIDIRECTIONAL, MigrationPolicy.UPGRADE)

    @property
    def allows_downgrade(self) -> bool:
        return self in (MigrationPolicy.BIDIRECTIONAL, MigrationPolicy.DOWNGRADE)


class GroupLimits(NamedTuple):
    """The settings of one group."""

    assignors: Mapping[str, Assignor]
    """Assignors by name; the first is the default."""
    assignment_interval_ms: int = 1000
    max_size: int = 2**31 - 1
    regex_refresh_interval_ms: int = 600_000
    session_timeout_ms: int = 45_000
    """The session time-out of members of the new protocol; classic members choose theirs."""
    heartbeat_interval_ms: int = 5_000
    """Members of the new protocol get it in each answer."""
    migration: MigrationPolicy = MigrationPolicy.BIDIRECTIONAL
    classic_max_size: int = 2**31 - 1
