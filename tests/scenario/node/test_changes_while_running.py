"""What AlterConfigs changes takes effect at once."""

from __future__ import annotations

from oncelog.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tests.scenario.node.driver import Driver
from tests.scenario.node.requests import PRODUCE_VERSION, batch, create_topic, log_of, produce, produced

BROKER = 4


def alter(peer, **configs: str) -> None:
    changes = [AlterableConfig(name=key.replace("_", "."), config_operation=0, value=configs[key]) for key in configs]
    resource = AlterConfigsResource(resource_type=BROKER, resource_name="", configs=changes)
    response = peer.ask(IncrementalAlterConfigsRequest(resources=[resource]), 1)
    assert [each.error_code for each in response.responses] == [0], response


def test_broker_configs_that_logs_obey_reach_logs_that_are_there_and_those_to_come():
    driver = Driver()
    peer = driver.connect()
    create_topic(peer, "t")
    alter(peer, producer_id_expiration_ms="5000", message_max_bytes="200", log_retention_ms="9000")
    create_topic(peer, "later")
    for topic in ("t", "later"):
        assert log_of(driver, topic).storage.producer_id_expiration_ms == 5000
        assert log_of(driver, topic).config.retention_ms == 9000
        assert produced(peer.ask(produce(topic, batch(driver, b"x" * 300)), PRODUCE_VERSION))[0] == 10
