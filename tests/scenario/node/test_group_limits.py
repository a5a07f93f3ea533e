"""The settings of consumer groups follow dynamic changes of the broker's and the groups' configs."""

from __future__ import annotations

import pytest

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import GroupId
from oncelog.core.controller.resources import ConfigResourceType
from oncelog.node.cluster.group_settings import LimitsOfGroups
from oncelog.node.coordinators import runner
from oncelog.node.kernel.events import Outbox, Report
from oncelog.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse
from oncelog.wire.messages.find_coordinator import FindCoordinatorRequest
from oncelog.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tests.scenario.node.driver import Driver, Peer
from tests.scenario.node.requests import create_topic

GROUP, OTHER = GroupId("g"), GroupId("h")
INTERVAL = "consumer.assignment.interval.ms"


def alter(peer: Peer, kind: int, name: str, key: str, value: str | None) -> None:
    change = AlterableConfig(name=key, config_operation=0 if value is not None else 1, value=value)
    resource = AlterConfigsResource(resource_type=kind, resource_name=name, configs=[change])
    response = peer.ask(IncrementalAlterConfigsRequest(resources=[resource]), 1)
    assert [result.error_code for result in response.responses] == [0], response


def test_a_change_takes_effect_at_once() -> None:
    driver = Driver({"group.consumer.max.assignment.interval.ms": "5000"})
    peer, outbox = driver.connect(), Outbox()
    limits = LimitsOfGroups(driver.node.cluster, outbox)

    def intervals_ms() -> tuple[int, int]:
        return limits.of(GROUP).assignment_interval_ms, limits.of(OTHER).assignment_interval_ms

    assert intervals_ms() == (1000, 1000)
    alter(peer, ConfigResourceType.GROUP, GROUP, INTERVAL, "10")
    assert intervals_ms() == (10, 1000)
    assert limits.of(GROUP) is limits.of(GROUP), "computed once"
    alter(peer, ConfigResourceType.BROKER, "", f"group.{INTERVAL}", "2000")
    assert intervals_ms() == (10, 2000)
    alter(peer, ConfigResourceType.GROUP, GROUP, INTERVAL, None)
    assert intervals_ms() == (2000, 2000)
    assert not outbox.effects


def test_a_value_that_another_broker_accepted_is_capped_here() -> None:
    driver = Driver()
    alter(driver.connect(), ConfigResourceType.GROUP, GROUP, INTERVAL, "10000")
    driver.node.cluster.config = Driver({"group.consumer.max.assignment.interval.ms": "5000"}).config
    outbox = Outbox()
    assert LimitsOfGroups(driver.node.cluster, outbox).of(GROUP).assignment_interval_ms == 5000
    assert [type(effect) for effect in outbox.effects] == [Report]


def limit_batches(peer: Peer, size_bytes: int) -> None:
    alter(peer, ConfigResourceType.TOPIC, "__consumer_offsets", "max.message.bytes", str(size_bytes))


def joins(peer: Peer, group: str, **fields: object) -> ConsumerGroupHeartbeatResponse:
    request = ConsumerGroupHeartbeatRequest(
        group_id=group, member_id="m", rebalance_timeout_ms=60_000, topic_partitions=[], **fields
    )
    return peer.ask(request, 1)


def test_a_member_whose_records_exceed_the_logs_limit_is_refused_and_the_operator_told_once() -> None:
    """As Apache Kafka 4.3.1 and 4.4.0 answer; each log line there has neither the group nor a way out."""
    driver = Driver()
    peer = driver.connect()
    create_topic(peer, "t", 60)
    peer.ask(FindCoordinatorRequest(coordinator_keys=["g"]), 4)
    limit_batches(peer, 700)
    for _ in range(3):
        assert joins(peer, "g", subscribed_topic_names=["t"]).error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    (line,) = driver.reports
    for part in ("group 'g'", "bytes which exceeds", "value of 700", "fewer topics", "max.message.bytes"):
        assert part in line
    assert joins(peer, "other", subscribed_topic_names=["t"]).error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert len(driver.reports) == 2
    driver.advance(runner.TOO_LARGE_AGAIN_MS)
    joins(peer, "g", subscribed_topic_names=["t"])
    assert len(driver.reports) == 3
    limit_batches(peer, 10_000)
    answer = joins(peer, "g", subscribed_topic_names=["t"])
    assert [len(topic.partitions) for topic in answer.assignment.topic_partitions] == [60]


def test_an_expression_whose_topics_exceed_the_logs_limit_matches_none_and_the_operator_is_told() -> None:
    driver = Driver()
    peer = driver.connect()
    names = [f"{number}".ljust(200, "x") for number in range(4)]
    for name in names:
        create_topic(peer, name)
    peer.ask(FindCoordinatorRequest(coordinator_keys=["g"]), 4)
    limit_batches(peer, 700)
    answer = joins(peer, "g", subscribed_topic_regex=".*x")
    assert (answer.error_code, answer.assignment.topic_partitions) == (0, [])
    (line,) = driver.reports
    assert "group 'g'" in line


def test_only_so_many_names_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "MAX_TOO_LARGE", 2)
    driver = Driver()
    peer = driver.connect()
    create_topic(peer, "t", 60)
    peer.ask(FindCoordinatorRequest(coordinator_keys=["g"]), 4)
    limit_batches(peer, 700)
    for number in range(5):
        joins(peer, f"g{number}", subscribed_topic_names=["t"])
    assert len(driver.reports) == 2
