"""The effective settings of a consumer group: the broker's ``group.consumer.*`` and the group's ``consumer.*``.

A value that another broker has validated, or this one before a restart, may lie outside this broker's bounds: it is
capped, with Apache Kafka's warning.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from oncelog.base.ids import GroupId
from oncelog.core.configs.broker import BrokerConfig
from oncelog.core.configs.keys import ASSIGNOR_CLASSES, GROUP_KEYS
from oncelog.core.groups.consumer.assignors import range as range_assignor
from oncelog.core.groups.consumer.assignors import uniform
from oncelog.core.groups.consumer.settings import Assignor, GroupLimits, MigrationPolicy

Warn = Callable[[str], None]


class _Interval(NamedTuple):
    """A time that a group may set itself: its key there, the broker's default and bounds."""

    own: str
    default: str
    low: str
    high: str


_SESSION: Final = _Interval(
    "consumer.session.timeout.ms",
    "group.consumer.session.timeout.ms",
    "group.consumer.min.session.timeout.ms",
    "group.consumer.max.session.timeout.ms",
)
_HEARTBEAT: Final = _Interval(
    "consumer.heartbeat.interval.ms",
    "group.consumer.heartbeat.interval.ms",
    "group.consumer.min.heartbeat.interval.ms",
    "group.consumer.max.heartbeat.interval.ms",
)
_ASSIGNMENT: Final = _Interval(
    "consumer.assignment.interval.ms",
    "group.consumer.assignment.interval.ms",
    "group.consumer.min.assignment.interval.ms",
    "group.consumer.max.assignment.interval.ms",
)
_ASSIGNORS: Final[Mapping[str, Assignor]] = {uniform.NAME: uniform.assign, range_assignor.NAME: range_assignor.assign}


def group_limits(group_id: GroupId, config: BrokerConfig, configs: Mapping[str, str], warn: Warn) -> GroupLimits:
    """The settings of a group with ``configs``; ``warn`` gets a sentence about each value that is capped."""
    session_ms = _effective_ms(_SESSION, group_id, config, configs, warn)
    heartbeat_ms = _effective_ms(_HEARTBEAT, group_id, config, configs, warn)
    if session_ms <= heartbeat_ms:
        warn(
            f"The effective {_SESSION.own} ({session_ms}) for group '{group_id}' is not greater than {_HEARTBEAT.own} "
            f"({heartbeat_ms}). Check that the broker-level min/max bounds for session timeout and heartbeat interval "
            "do not overlap."
        )
    names = [ASSIGNOR_CLASSES.get(name, name) for name in config.get("group.consumer.assignors")]
    return GroupLimits(
        assignors={name: _ASSIGNORS[name] for name in names},
        assignment_interval_ms=_effective_ms(_ASSIGNMENT, group_id, config, configs, warn),
        max_size=config.get("group.consumer.max.size"),
        regex_refresh_interval_ms=config.get("group.consumer.regex.refresh.interval.ms"),
        session_timeout_ms=session_ms,
        heartbeat_interval_ms=heartbeat_ms,
        migration=MigrationPolicy(config.get("group.consumer.migration.policy").lower()),
        classic_max_size=config.get("group.max.size"),
    )


def _effective_ms(
    interval: _Interval, group_id: GroupId, config: BrokerConfig, configs: Mapping[str, str], warn: Warn
) -> int:
    low, high, value = (int(config.get(key)) for key in (interval.low, interval.high, interval.default))
    subject, allowed = f"The config '{interval.default}'", "the allowed"
    if interval.own in configs:
        value = int(GROUP_KEYS[interval.own].parse(configs[interval.own]))  # type: ignore[arg-type]  # an INT
        subject, allowed = f"The group config '{interval.own}' for group '{group_id}'", "the broker's allowed"
    capped = min(max(value, low), high)
    if capped != value:
        excess = f"is below {allowed} minimum" if value < low else f"exceeds {allowed} maximum"
        warn(f"{subject} has value {value} which {excess} {capped}. The effective value will be capped to {capped}.")
    return capped


def default_limits(_: GroupId) -> GroupLimits:
    """The settings of every group of a broker without configuration."""
    return GroupLimits(_ASSIGNORS)
