"""Two clusters of one broker each, a mirror between them, and what readers see of both."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import pytest

from oncelog.admin.topics import NewTopic, create_topic
from oncelog.base.ids import TopicName, TopicPartition
from oncelog.client.blocking import Client, ClientConfig, Committed, FetchSettings
from oncelog.client.blocking.producer import Producer, ProducerSettings
from oncelog.client.blocking.transactions import TransactionalProducer, TransactionSettings
from oncelog.client.machine.consumed_records import ConsumedRecord, read_fetched
from oncelog.client.programs.group import commit_offsets, committed_offsets
from oncelog.mirror.engine import Engine
from oncelog.mirror.settings import Cluster, MirrorSettings
from oncelog.records.compression import Codec
from oncelog.testing import Broker

FAST = ClientConfig(retry_backoff_ms=10, retry_backoff_max_ms=50, unknown_topic_grace_ms=500, retry_timeout_ms=15_000)


class Side:
    """A cluster as its users have it."""

    def __init__(self, broker: Broker, config: ClientConfig = FAST) -> None:
        self.broker = broker
        self.client = Client(broker.bootstrap_servers, config=config)

    def create(self, topic: str, partitions: int = 1, configs: Mapping[str, str] | None = None) -> None:
        create_topic(self.client, NewTopic(topic, partitions, configs=configs or {}))

    def send(self, topic: str, *values: str, partition: int = 0, codec: Codec = Codec.NONE) -> None:
        """Each value in a batch of its own."""
        with Producer(self.client, ProducerSettings(codec=codec)) as producer:
            for value in values:
                producer.send(topic, value.encode(), key=b"k", partition=partition, headers=(("h", b"1"),))
                producer.flush()

    def transact(self, topic: str, *values: str, commit: bool = True, partition: int = 0) -> None:
        with TransactionalProducer(self.client, TransactionSettings("app")) as producer:
            producer.initialize()
            producer.begin()
            for value in values:
                producer.send(topic, value.encode(), partition=partition)
            producer.flush()
            if commit:
                producer.commit()
            else:
                producer.abort()

    def records(self, topic: str, partition: int = 0, start: int | None = None) -> list[ConsumedRecord]:
        """The records that a reader at read_committed sees, from ``start`` or the beginning."""
        at = TopicPartition(TopicName(topic), partition)
        end = self.client.list_offsets({at: -1}, read_committed=True)[at].offset
        first = self.client.list_offsets({at: -2})[at].offset if start is None else start
        if first >= end:
            return []
        fetched = self.client.fetch({at: first}, until={at: end}, settings=FetchSettings(read_committed=True))
        return [record for item in fetched for record in read_fetched(item, read_committed=True)]

    def values(self, topic: str, partition: int = 0, start: int | None = None) -> list[str]:
        return [(record.value or b"").decode() for record in self.records(topic, partition, start)]

    def commit(self, group: str, topic: str, offset: int, partition: int = 0) -> None:
        commit_offsets(self.client, group, {TopicPartition(TopicName(topic), partition): Committed(offset)})

    def committed(self, group: str, topic: str, partition: int = 0) -> int | None:
        value = committed_offsets(self.client, group).get(TopicPartition(TopicName(topic), partition))
        return None if value is None else value.offset


@pytest.fixture
def source() -> Iterator[Side]:
    with Broker() as broker:
        side = Side(broker)
        with side.client:
            yield side


@pytest.fixture
def target() -> Iterator[Side]:
    with Broker() as broker:
        side = Side(broker)
        with side.client:
            yield side


def settings_of(source: Side, target: Side, alias: str = "a", **changes: Any) -> MirrorSettings:
    """A mirror of everything, with its groups, in short transactions."""
    plain = MirrorSettings(
        Cluster(alias, source.broker.bootstrap_servers, FAST),
        Cluster("", target.broker.bootstrap_servers, FAST),
        re.compile(".*"),
        groups=re.compile(".*"),
        commit_interval_ms=20,
        refresh_interval_ms=50,
        groups_interval_ms=50,
    )
    return replace(plain, **changes)


def mirror(source: Side, target: Side, **changes: Any) -> Engine:
    """Mirror what is there; the engine when it has ended."""
    engine = Engine(settings_of(source, target, **changes), until_caught_up=True)
    asyncio.run(engine.run())
    return engine


def essence(records: list[ConsumedRecord]) -> list[tuple[object, ...]]:
    """The parts of a record that a copy keeps."""
    return [(record.timestamp, record.key, record.value, record.headers) for record in records]
