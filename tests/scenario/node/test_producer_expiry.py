"""Idle producers are forgotten at the interval of their own, whatever the other housekeeping does."""

from __future__ import annotations

from tests.scenario.node.driver import Driver
from tests.scenario.node.requests import PRODUCE_VERSION, alter_brokers, batch, create_topic, log_of, produce, produced

PRODUCER_ID = 7


def write(driver: Driver) -> None:
    records = batch(driver, b"x", producer_id=PRODUCER_ID, producer_epoch=0, base_sequence=0)
    assert produced(driver.connect().ask(produce("t", records), PRODUCE_VERSION))[0] == 0


def test_a_short_interval_is_kept_though_no_other_housekeeping_is_due() -> None:
    driver = Driver({"producer.id.expiration.check.interval.ms": "100"})
    peer = driver.connect()
    create_topic(peer, "t")
    alter_brokers(peer, producer_id_expiration_ms="1000")
    write(driver)
    driver.advance(900)
    assert PRODUCER_ID in log_of(driver, "t").producers.entries
    driver.advance(200)
    assert log_of(driver, "t").producers.entries == {}


def test_a_long_interval_is_waited_out_though_other_housekeeping_comes_sooner() -> None:
    driver = Driver({"log.cleaner.backoff.ms": "100", "log.retention.check.interval.ms": "100"})
    peer = driver.connect()
    create_topic(peer, "t")
    alter_brokers(peer, producer_id_expiration_ms="1000")
    write(driver)
    driver.advance(599_000)
    assert PRODUCER_ID in log_of(driver, "t").producers.entries
    driver.advance(2_000)
    assert log_of(driver, "t").producers.entries == {}
