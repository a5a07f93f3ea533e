"""Changes by AlterConfigs take effect at once."""

from __future__ import annotations

from tests.scenario.node.driver import Driver
from tests.scenario.node.requests import PRODUCE_VERSION, alter_brokers, batch, create_topic, log_of, produce, produced


def test_broker_configs_that_logs_obey_reach_logs_that_are_there_and_those_to_come():
    driver = Driver()
    peer = driver.connect()
    create_topic(peer, "t")
    alter_brokers(peer, producer_id_expiration_ms="5000", message_max_bytes="200", log_retention_ms="9000")
    create_topic(peer, "later")
    for topic in ("t", "later"):
        assert log_of(driver, topic).storage.producer_id_expiration_ms == 5000
        assert log_of(driver, topic).config.retention_ms == 9000
        assert produced(peer.ask(produce(topic, batch(driver, b"x" * 300)), PRODUCE_VERSION))[0] == 10
