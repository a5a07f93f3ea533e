from __future__ import annotations

import pytest

from oncelog.base.ids import GroupId
from oncelog.core.configs.broker import BrokerConfig
from oncelog.core.configs.keys import ASSIGNORS
from oncelog.core.configs.kinds import ConfigError
from oncelog.core.groups.consumer.assignors import range as range_assignor
from oncelog.core.groups.consumer.assignors import uniform
from oncelog.core.groups.consumer.settings import GroupLimits, MigrationPolicy, default_limits, group_limits

GROUP = GroupId("g")


def limits(settings: dict[str, str], configs: dict[str, str]) -> tuple[GroupLimits, list[str]]:
    warnings: list[str] = []
    return group_limits(GROUP, BrokerConfig(settings), configs, warnings.append), warnings


def test_without_configuration_they_are_apache_kafkas_defaults() -> None:
    defaults = default_limits(GROUP)
    assert limits({}, {}) == (defaults, [])
    assert tuple(defaults.assignors) == ASSIGNORS, "the first is the default"


def test_a_groups_own_values_replace_the_brokers() -> None:
    settings = {
        "group.consumer.session.timeout.ms": "50000",
        "group.consumer.heartbeat.interval.ms": "6000",
        "group.consumer.assignors": "org.apache.kafka.coordinator.group.assignor.RangeAssignor,uniform",
        "group.consumer.max.size": "3",
        "group.consumer.migration.policy": "Upgrade",
        "group.max.size": "4",
    }
    configs = {"consumer.heartbeat.interval.ms": "7000", "consumer.assignment.interval.ms": "0"}
    known, warnings = limits(settings, configs)
    assert (known.session_timeout_ms, known.heartbeat_interval_ms, known.assignment_interval_ms) == (50_000, 7000, 0)
    assert (known.max_size, known.migration, known.classic_max_size) == (3, MigrationPolicy.UPGRADE, 4)
    assert known.assignors == {"range": range_assignor.assign, "uniform": uniform.assign}
    assert list(known.assignors) == ["range", "uniform"], "the first is the default"
    assert not warnings


@pytest.mark.parametrize(
    ("settings", "configs", "effective_ms", "warning"),
    [
        (
            {"group.consumer.min.assignment.interval.ms": "500"},
            {"consumer.assignment.interval.ms": "100"},
            500,
            "The group config 'consumer.assignment.interval.ms' for group 'g' has value 100 which is below the "
            "broker's allowed minimum 500. The effective value will be capped to 500.",
        ),
        (
            {},
            {"consumer.assignment.interval.ms": "15001"},
            15_000,
            "The group config 'consumer.assignment.interval.ms' for group 'g' has value 15001 which exceeds the "
            "broker's allowed maximum 15000. The effective value will be capped to 15000.",
        ),
        (
            {"group.consumer.assignment.interval.ms": "20000"},
            {},
            15_000,
            "The config 'group.consumer.assignment.interval.ms' has value 20000 which exceeds the allowed maximum "
            "15000. The effective value will be capped to 15000.",
        ),
    ],
)
def test_a_value_outside_this_brokers_bounds_is_capped_with_a_warning(
    settings: dict[str, str], configs: dict[str, str], effective_ms: int, warning: str
) -> None:
    known, warnings = limits(settings, configs)
    assert known.assignment_interval_ms == effective_ms
    assert warnings == [warning]


def test_overlapping_bounds_are_warned_about() -> None:
    settings = {
        "group.consumer.min.heartbeat.interval.ms": "60000",
        "group.consumer.max.heartbeat.interval.ms": "60000",
    }
    _, warnings = limits(settings, {"consumer.heartbeat.interval.ms": "5000"})
    assert len(warnings) == 2
    assert "consumer.session.timeout.ms (45000) for group 'g' is not greater than" in warnings[1]


def test_assignors_are_only_our_own() -> None:
    with pytest.raises(ConfigError, match="oncelog loads no Java classes; set uniform, range or both"):
        BrokerConfig({"group.consumer.assignors": "uniform,com.example.Mine"})
    with pytest.raises(ConfigError, match="must not be empty"):
        BrokerConfig({"group.consumer.assignors": ""})
