"""Settings of share coordination and their configuration keys."""

from __future__ import annotations

from typing import Final, NamedTuple

from oncelog.base.units import MINUTE_MS, SECOND_MS


class ShareStateSettings(NamedTuple):
    """``SETTING_KEYS`` has the keys."""

    updates_per_snapshot: int = 500
    prune_interval_ms: int = 5 * MINUTE_MS
    cold_snapshot_interval_ms: int = 5 * MINUTE_MS
    write_timeout_ms: int = 5 * SECOND_MS


SETTING_KEYS: Final[dict[str, str]] = {
    "updates_per_snapshot": "share.coordinator.snapshot.update.records.per.snapshot",
    "prune_interval_ms": "share.coordinator.state.topic.prune.interval.ms",
    "cold_snapshot_interval_ms": "share.coordinator.cold.partition.snapshot.interval.ms",
    "write_timeout_ms": "share.coordinator.write.timeout.ms",
}
"""Field of ShareStateSettings → configuration key."""
