"""Apache Kafka on either side, and both: copies, offsets of groups, and what its own tools say of them."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from oncelog.client.blocking import Client
from oncelog.mirror.progress import GroupState
from oncelog.mirror.settings import OnGap
from oncelog.mirror.verification import verify_copies
from oncelog.records.compression import Codec
from oncelog.testing import Broker
from tests.interop.mirror.conftest import FAST, Side, essence, mirror, settings_of
from tests.peers.apache_kafka import ApacheKafka

pytestmark = [pytest.mark.slow, pytest.mark.java]


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Side]:
    with ApacheKafka(tmp_path_factory.mktemp("kafka"), heap_mb=512) as running:
        side = Side.__new__(Side)
        side.broker = running  # type: ignore[assignment]  # what is used of it both have
        side.client = Client(running.bootstrap_servers, config=FAST)
        with side.client:
            yield side


@pytest.fixture
def ours() -> Iterator[Side]:
    with Broker() as broker:
        side = Side(broker)
        with side.client:
            yield side


@pytest.mark.parametrize("from_kafka", [True, False])
def test_copies_and_groups(kafka: Side, ours: Side, from_kafka: bool) -> None:
    source, target = (kafka, ours) if from_kafka else (ours, kafka)
    topic, copy = f"t{from_kafka}", f"a.t{from_kafka}"
    only = {"topics": re.compile(topic), "groups": re.compile(f"g{from_kafka}.*"), "on_gap": OnGap.fail}
    if not from_kafka:
        kafka.client.metadata(None)
    source.create(topic, 2, {"retention.ms": "-1"})
    for codec in Codec:
        source.send(topic, codec.name, "x" * 20_000, codec=codec)
    source.transact(topic, "1", "2")
    source.transact(topic, "aborted", commit=False)
    mirror(source, target, **only)
    source.transact(topic, "3", partition=0)
    end = source.client.list_offsets({at(topic): -1})[at(topic)].offset
    for offset in range(end + 1):
        source.commit(f"g{from_kafka}{offset}", topic, offset)
    engine = mirror(source, target, **only)
    assert {row.state for row in engine.progress.groups} == {GroupState.synced}
    assert essence(target.records(copy)) == essence(source.records(topic))
    for offset in range(end + 1):
        committed = target.committed(f"g{from_kafka}{offset}", copy)
        assert committed is not None
        assert target.values(copy, start=committed) == source.values(topic, start=offset), offset
    settings = settings_of(source, target, **only)

    async def verify() -> list[bool]:
        rows = verify_copies(settings.source, settings.target, re.compile(topic), 1000)
        return [row.is_right async for row in rows]

    assert asyncio.run(verify()) == [True]


def at(topic: str) -> object:
    from oncelog.base.ids import TopicName, TopicPartition

    return TopicPartition(TopicName(topic), 0)


def test_a_drill_with_apache_kafka_as_the_target(tmp_path: Path) -> None:
    from tests.interop.mirror.drill import run

    outcome = run(3, 2, 1, tmp_path, target=ApacheKafka(tmp_path / "kafka", heap_mb=512))
    assert not outcome.wrong
