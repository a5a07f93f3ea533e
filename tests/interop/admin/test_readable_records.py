"""The lag that the console shows of a group, against what librdkafka's consumer of committed records then really reads.

Partitions of random shapes: plain records, transactions that were committed, aborted or are open, records that were
deleted or compacted away, and a group somewhere among them.
"""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError
from confluent_kafka import TopicPartition as Place

from oncelog.admin.topics import NewTopic, create_topic, delete_records
from oncelog.admin.transactions.partition_offsets import bounds_of
from oncelog.base.ids import TopicPartition
from oncelog.client.blocking import Client, Committed, FetchSettings, TransactionalProducer, TransactionSettings
from oncelog.client.machine.consumed_records import read_fetched
from oncelog.client.programs.group import commit_offsets
from oncelog.records.builder import build_batch
from oncelog.records.record import Record
from tests.interop.admin.lab import ByHand, at
from tests.unit.console.visits import visiting
from tests.waiting import wait_until

pytestmark = pytest.mark.slow
PARTITIONS = 4
STEPS = 8
KEYS = 3
COMPACT = {"cleanup.policy": "compact", "segment.ms": "1", "min.cleanable.dirty.ratio": "0.01"}


def plain(client: Client, partition: TopicPartition, keys: list[bytes], moment_ms: int = 0) -> None:
    """A batch of records of these keys."""
    client.produce(partition, build_batch([Record(number, moment_ms, key, b"v") for number, key in enumerate(keys)]))


def shape(client: Client, topic: str, draws: random.Random) -> None:
    """Writes something random to all partitions, the same transactions in some of them; one may stay open."""
    places = [at(topic, index) for index in range(PARTITIONS)]
    producer = ByHand(client, f"x-{topic}")
    for _ in range(STEPS):
        some = draws.sample(places, draws.randint(1, PARTITIONS))
        kind = draws.choice(("plain", "plain", "committed", "aborted"))
        if kind == "plain":
            for where in some:
                plain(client, where, [b"%d" % draws.randrange(KEYS) for _ in range(draws.randint(1, 4))])
        else:
            for _ in range(draws.randint(1, 2)):
                producer.begin(*some)
            producer.end(commit=kind == "committed")
            producer.restart()
    ByHand(client, f"open-{topic}", timeout_ms=900_000).begin(*draws.sample(places, draws.randint(0, 2)))
    for where in draws.sample(places, 2):
        plain(client, where, [b"behind"])


def readable_records(client: Client, partition: TopicPartition, stable: int) -> int:
    """The records from the first offset on, counted one by one."""
    first = client.list_offsets({partition: -2})[partition].offset
    fetched = client.fetch({partition: first}, until={partition: stable}, settings=FetchSettings(read_committed=True))
    return sum(1 for item in fetched for _ in read_fetched(item, read_committed=True))


def compact(client: Client, topic: str) -> None:
    """A topic with one key in hundreds of records, most of which compaction has taken away."""
    place = at(topic)
    create_topic(client, NewTopic(topic, configs=COMPACT))
    with TransactionalProducer(client, TransactionSettings(f"x-{topic}")) as producer:
        producer.initialize()
        for number in range(30):
            plain(client, place, [b"k"] * 10, 100 * number)  # Segments are rolled by the time of records.
            if number % 10 == 5:
                producer.begin()
                producer.send(topic, b"v", key=b"k", partition=0)
                producer.flush()
                if number == 15:
                    producer.abort()
                else:
                    producer.commit()
    plain(client, place, [b"last"], 100_000)
    stable = bounds_of(client, [place])[0][place].last_stable_offset
    wait_until(lambda: readable_records(client, place, stable) < 100, "compaction")


def read_by(
    servers: str, group: str, committed: dict[TopicPartition, int]
) -> tuple[Counter[TopicPartition], dict[TopicPartition, int]]:
    """The records that librdkafka's consumer gets in each partition, and the position it ends at."""
    config = {"bootstrap.servers": servers, "group.id": group, "isolation.level": "read_committed"}
    more = {"enable.partition.eof": True, "enable.auto.commit": False, "auto.offset.reset": "earliest"}
    consumer = Consumer(config | more)
    result: Counter[TopicPartition] = Counter()
    ends: dict[TopicPartition, int] = {}
    try:
        consumer.assign([Place(where.topic, where.partition, offset) for where, offset in committed.items()])
        while len(ends) < len(committed):
            message = consumer.poll(60)
            if message is None:
                continue
            place = at(message.topic() or "", message.partition() or 0)
            error = message.error()
            if error is None:
                result[place] += 1
            elif error.code() == KafkaError._PARTITION_EOF:
                ends[place] = message.offset() or 0
            else:
                raise AssertionError(error)
        return result, ends
    finally:
        consumer.close()


def shown(servers: str, group: str) -> list[dict[str, Any]]:
    """The rows of the group's page."""
    with visiting(servers) as visitor:
        body = visitor.get("/groups/one.json", params={"name": group}).json()
    rows: list[dict[str, Any]] = body["partitions"]["rows"]
    return rows


def check(client: Client, servers: str, group: str, committed: dict[TopicPartition, int]) -> None:
    """Compare each row of the group's page with what its consumer reads."""
    commit_offsets(client, group, {where: Committed(offset) for where, offset in committed.items()})
    rows, result, ends = shown(servers, group), *read_by(servers, group, committed)
    while [row["records"] for row in rows] != [item["records"] for item in shown(servers, group)]:  # It is compacted.
        rows, result, ends = shown(servers, group), *read_by(servers, group, committed)
    assert len(rows) == len(committed)
    for row in rows:
        place = at(row["topic"], row["partition"])
        assert row["records"] == result[place], (row, ends[place])
        assert row["readable"] >= row["records"]
        if committed[place] <= row["last_stable_offset"]:
            assert row["last_stable_offset"] == ends[place], row


@pytest.mark.parametrize("seed", range(3))
def test_lag_is_what_a_consumer_of_committed_records_reads(client: Client, servers: str, seed: int) -> None:
    draws = random.Random(f"shape {seed}")
    topic = f"shape-{seed}"
    create_topic(client, NewTopic(topic, partitions=PARTITIONS))
    shape(client, topic, draws)
    places = [at(topic, index) for index in range(PARTITIONS)]
    bounds, _ = bounds_of(client, places)
    for number in range(3):
        if number == 2:
            delete_records(client, {places[0]: bounds[places[0]].last_stable_offset // 2})
        committed = {place: draws.randint(0, bounds[place].end_offset) for place in places}
        check(client, servers, f"g-{topic}-{number}", committed)


def test_lag_of_a_compacted_topic_counts_what_is_left(client: Client, servers: str) -> None:
    compact(client, "compacted")
    place = at("compacted")
    end = bounds_of(client, [place])[0][place].end_offset
    for offset in (0, end // 3, end - 2):
        check(client, servers, f"g-compacted-{offset}", {place: offset})
