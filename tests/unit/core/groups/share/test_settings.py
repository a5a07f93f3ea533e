"""The settings of a share group: the broker's, its own, and the bounds of both."""

from __future__ import annotations

import pytest

from oncelog.base.ids import GroupId
from oncelog.core.configs.broker import BrokerConfig
from oncelog.core.configs.combinations import check_combinations
from oncelog.core.configs.kinds import ConfigError
from oncelog.core.configs.limits import OffsetReset
from oncelog.core.groups.share.settings import ShareGroupSettings, default_share_settings, share_group_settings

GROUP = GroupId("g")


def settings(broker: dict[str, str], own: dict[str, str]) -> tuple[ShareGroupSettings, list[str]]:
    warnings: list[str] = []
    return share_group_settings(GROUP, BrokerConfig(broker), own, warnings.append), warnings


def test_without_configuration_they_are_apache_kafkas_defaults() -> None:
    assert settings({}, {}) == (default_share_settings(GROUP), [])


def test_a_groups_own_values_replace_the_brokers() -> None:
    broker = {
        "group.share.session.timeout.ms": "50000",
        "group.share.heartbeat.interval.ms": "6000",
        "group.share.max.size": "7",
        "group.share.delivery.count.limit": "4",
        "group.share.initialize.retry.interval.ms": "1",
        "offsets.commit.timeout.ms": "7000",
    }
    own = {
        "share.heartbeat.interval.ms": "7000",
        "share.record.lock.duration.ms": "20000",
        "share.partition.max.record.locks": "300",
        "share.assignment.interval.ms": "0",
        "share.auto.offset.reset": "by_duration:PT1H",
        "share.isolation.level": "read_committed",
        "share.renew.acknowledge.enable": "false",
        "errors.deadletterqueue.topic.name": "dlq.t",
        "errors.deadletterqueue.copy.record.enable": "true",
    }
    assert settings(broker, own) == (
        ShareGroupSettings(
            session_timeout_ms=50_000,
            heartbeat_interval_ms=7_000,
            assignment_interval_ms=0,
            max_size=7,
            initialize_retry_ms=7_000,
            record_lock_duration_ms=20_000,
            delivery_count_limit=4,
            partition_max_record_locks=300,
            offset_reset=OffsetReset("by_duration", 3_600_000),
            read_committed=True,
            renew_enabled=False,
            dead_letter_topic="dlq.t",
            copies_dead_letters=True,
        ),
        [],
    )


def test_values_beyond_the_brokers_bounds_are_capped_with_a_warning() -> None:
    capped, warnings = settings({}, {"share.delivery.count.limit": "50", "share.record.lock.duration.ms": "1000"})
    assert (capped.delivery_count_limit, capped.record_lock_duration_ms) == (10, 15_000)
    assert len(warnings) == 2
    assert warnings[1] == (
        "The group config 'share.delivery.count.limit' for group 'g' has value 50 which exceeds the broker's allowed "
        "maximum 10. The effective value will be capped to 10."
    )


@pytest.mark.parametrize(
    ("broker", "message"),
    [
        ({"group.share.assignors": "org.example.Mine"}, "set simple"),
        ({"group.share.assignors": "simple,org.apache.kafka.coordinator.group.assignor.SimpleAssignor"}, "exactly one"),
        ({"group.share.max.share.sessions": "100"}, "group.share.max.share.sessions must be greater than or equal to"),
        ({"group.share.heartbeat.interval.ms": "1"}, "group.share.heartbeat.interval.ms must be greater than or equal"),
        ({"group.share.max.size": "1001"}, "Value must be no more than 1000"),
    ],
)
def test_a_broker_with_contradictory_settings_does_not_start(broker: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        check_combinations(BrokerConfig(broker))
