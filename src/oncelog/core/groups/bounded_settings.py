"""Settings that a group may choose for itself, within bounds of the broker.

A value that another broker has validated, or this one before a restart, may lie outside this broker's bounds: it is
capped, with Apache Kafka's warning.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from oncelog.base.ids import GroupId
from oncelog.core.configs.broker import BrokerConfig
from oncelog.core.configs.keys import GROUP_KEYS

Warn = Callable[[str], None]


class BoundedSetting(NamedTuple):
    """A number: its key among a group's configs, and the broker's keys of the default and the bounds."""

    own: str
    default: str
    low: str
    high: str


class GroupConfigs(NamedTuple):
    """A group's own configs, over those of the broker; ``warn`` gets a sentence about each value that is capped."""

    group_id: GroupId
    broker: BrokerConfig
    own: Mapping[str, str]
    warn: Warn

    def number(self, setting: BoundedSetting) -> int:
        """The effective value of a bounded setting."""
        low, high, value = (int(self.broker.get(key)) for key in (setting.low, setting.high, setting.default))
        subject, allowed = f"The config '{setting.default}'", "the allowed"
        if setting.own in self.own:
            value = int(GROUP_KEYS[setting.own].parse(self.own[setting.own]))  # type: ignore[arg-type]  # an INT
            subject = f"The group config '{setting.own}' for group '{self.group_id}'"
            allowed = "the broker's allowed"
        capped = min(max(value, low), high)
        if capped != value:
            excess = f"is below {allowed} minimum" if value < low else f"exceeds {allowed} maximum"
            self.warn(
                f"{subject} has value {value} which {excess} {capped}. The effective value will be capped to {capped}."
            )
        return capped

    def check_times(self, session: BoundedSetting, session_ms: int, heartbeat: BoundedSetting, beat_ms: int) -> None:
        """Warn if a member could lose its session between two heartbeats."""
        if session_ms <= beat_ms:
            self.warn(
                f"The effective {session.own} ({session_ms}) for group '{self.group_id}' is not greater than "
                f"{heartbeat.own} ({beat_ms}). Check that the broker-level min/max bounds for session timeout and "
                "heartbeat interval do not overlap."
            )
