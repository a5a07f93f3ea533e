"""The settings of a consumer group: the broker's ``group.consumer.*`` and the group's ``consumer.*``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from typing import Final, NamedTuple

from oncelog.base.ids import GroupId
from oncelog.core.configs.broker import BrokerConfig
from oncelog.core.configs.keys import ASSIGNOR_CLASSES
from oncelog.core.groups.bounded_settings import BoundedSetting, GroupConfigs, Warn
from oncelog.core.groups.consumer.assignors import range as range_assignor
from oncelog.core.groups.consumer.assignors import uniform
from oncelog.core.groups.consumer.assignors.spec import Assignment, GroupSpec

Assignor = Callable[[GroupSpec], Assignment]

_SESSION: Final = BoundedSetting(
    "consumer.session.timeout.ms",
    "group.consumer.session.timeout.ms",
    "group.consumer.min.session.timeout.ms",
    "group.consumer.max.session.timeout.ms",
)
_HEARTBEAT: Final = BoundedSetting(
    "consumer.heartbeat.interval.ms",
    "group.consumer.heartbeat.interval.ms",
    "group.consumer.min.heartbeat.interval.ms",
    "group.consumer.max.heartbeat.interval.ms",
)
_ASSIGNMENT: Final = BoundedSetting(
    "consumer.assignment.interval.ms",
    "group.consumer.assignment.interval.ms",
    "group.consumer.min.assignment.interval.ms",
    "group.consumer.max.assignment.interval.ms",
)
_ASSIGNORS: Final[Mapping[str, Assignor]] = {uniform.NAME: uniform.assign, range_assignor.NAME: range_assignor.assign}


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


def group_limits(group_id: GroupId, config: BrokerConfig, configs: Mapping[str, str], warn: Warn) -> GroupLimits:
    """The settings of a group with ``configs``; ``warn`` gets a sentence about each value that is capped."""
    values = GroupConfigs(group_id, config, configs, warn)
    session_ms, heartbeat_ms = values.number(_SESSION), values.number(_HEARTBEAT)
    values.check_times(_SESSION, session_ms, _HEARTBEAT, heartbeat_ms)
    names = [ASSIGNOR_CLASSES.get(name, name) for name in config.get("group.consumer.assignors")]
    return GroupLimits(
        assignors={name: _ASSIGNORS[name] for name in names},
        assignment_interval_ms=values.number(_ASSIGNMENT),
        max_size=config.get("group.consumer.max.size"),
        regex_refresh_interval_ms=config.get("group.consumer.regex.refresh.interval.ms"),
        session_timeout_ms=session_ms,
        heartbeat_interval_ms=heartbeat_ms,
        migration=MigrationPolicy(config.get("group.consumer.migration.policy").lower()),
        classic_max_size=config.get("group.max.size"),
    )


def default_limits(_: GroupId) -> GroupLimits:
    """The settings of every group of a broker without configuration."""
    return GroupLimits(_ASSIGNORS)
