"""``oncelog.testing.Broker`` through an unmodified client."""

from __future__ import annotations

import os
import time

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from oncelog.admin import topics as admin_topics
from oncelog.admin.topics import create_topic
from oncelog.client.blocking import Client, ClientConfig
from oncelog.client.errors import UnknownTopic
from oncelog.core.configs.kinds import ConfigError
from oncelog.testing import Broker
from tests.waiting import HANG_S

pytestmark = pytest.mark.slow


def produce(broker, topic: str, *values: bytes) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 0})
    for value in values:
        producer.produce(topic, value)
    assert producer.flush(HANG_S) == 0


def consume(broker, topic: str, count: int) -> list[bytes]:
    settings = {"bootstrap.servers": broker.bootstrap_servers, "group.id": "test", "enable.partition.eof": False}
    consumer = Consumer(settings)
    consumer.assign([TopicPartition(topic, 0, 0)])
    values = []
    while len(values) < count:
        message = consumer.poll(HANG_S)
        assert message is not None, f"only {values}"
        assert message.error() is None, message.error()
        values.append(message.value())
    consumer.close()
    return values


def topics(broker) -> set[str]:
    return set(AdminClient({"bootstrap.servers": broker.bootstrap_servers}).list_topics(timeout=HANG_S).topics)


def test_it_starts_fast_and_several_run_at_once():
    started_s = time.process_time()  # of this process only: others may have the machine meanwhile
    with Broker() as first, Broker() as second:
        assert time.process_time() - started_s < 2
        assert first.port != second.port
        produce(first, "t", b"a")
        assert topics(second) == set()


def test_reset_empties_it_and_keeps_the_port():
    with Broker() as broker:
        produce(broker, "t", b"a")
        port = broker.port
        broker.reset()
        assert broker.port == port
        assert topics(broker) == set()
        produce(broker, "t", b"b")
        assert consume(broker, "t", 1) == [b"b"]


def test_settings_may_be_numbers_and_truth_values():
    with (
        Broker({"num.partitions": 3, "auto.create.topics.enable": False}) as broker,
        Client(broker.bootstrap_servers, config=ClientConfig(unknown_topic_grace_ms=100)) as client,
    ):
        create_topic(client, admin_topics.NewTopic("t"))
        assert len(client.topic("t").partitions) == 3
        with pytest.raises(UnknownTopic):
            client.topic("u", create=True)
    with pytest.raises(TypeError, match=r"num\.partitions: expected text, a number, True or False, got list"):
        Broker({"num.partitions": [3]})


def test_a_start_that_is_refused_leaves_nothing_behind(monkeypatch, tmp_path):
    def descriptors_left_behind() -> set[str]:
        before = set(os.listdir("/proc/self/fd"))
        with pytest.raises(ConfigError, match=r"num\.partitions"), Broker({"num.partitions": "three"}):
            pass
        return set(os.listdir("/proc/self/fd")) - before

    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    # Clients of earlier tests may open one just then; a start that leaves one behind does so each time.
    assert not all(descriptors_left_behind() for _ in range(5))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("how", ["restart", "kill"])
def test_data_survives_a_restart_and_a_kill(how):
    with Broker({"log.sync.policy": "commit"}) as broker:
        produce(broker, "t", b"a", b"b")
        if how == "restart":
            broker.restart()
        else:
            broker.kill()
            broker.start()
        assert consume(broker, "t", 2) == [b"a", b"b"]


def test_virtual_time_makes_retention_a_test_without_sleeps():
    config = {"log.retention.check.interval.ms": "1000"}
    with Broker(config, virtual_time=True) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        settings = {"retention.ms": "60000", "segment.ms": "10000"}
        admin.create_topics([NewTopic("t", 1, 1, config=settings)])["t"].result(HANG_S)
        produce(broker, "t", b"old")
        broker.advance(11_000)
        produce(broker, "t", b"new")
        assert first_offset(broker) == 0
        broker.advance(62_000)
        assert first_offset(broker) > 0


def first_offset(broker) -> int:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "test"})
    low, _ = consumer.get_watermark_offsets(TopicPartition("t", 0), timeout=HANG_S)
    consumer.close()
    return low


def test_the_fixture_gives_an_empty_broker(oncelog_broker):
    produce(oncelog_broker, "fixture", b"a")
    assert topics(oncelog_broker) == {"fixture"}


def test_the_fixture_is_empty_for_the_next_test(oncelog_broker):
    produce(oncelog_broker, "another", b"a")
    assert topics(oncelog_broker) == {"another"}
