"""The settings of consumer groups follow dynamic changes of the broker's and the groups' configs."""

from __future__ import annotations

from oncelog.base.ids import GroupId
from oncelog.core.controller.resources import ConfigResourceType
from oncelog.node.coordinators.group_coordinators import LimitsOfGroups
from oncelog.node.kernel.events import Outbox, Report
from oncelog.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tests.scenario.node.driver import Driver, Peer

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
