"""The streaming reader of Spark before 4.2, called as Spark 4.0 and 4.1 call it."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import pytest

from oncelog.admin.topics import NewTopic, add_partitions, create_topic
from oncelog.base.ids import TopicName, TopicPartition
from oncelog.client.blocking import Client, TransactionalProducer, TransactionSettings
from oncelog.records.builder import build_batch
from oncelog.records.record import Record
from oncelog.spark.session.errors import DataLoss
from oncelog.spark.source.offset_ranges import OffsetRange
from oncelog.spark.source.options import parse_options
from oncelog.spark.source.self_limited_reader import SelfLimitedReader
from oncelog.testing import Broker

NUMBERS = count()


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as running:
        yield running


class Query:
    """A topic, and Spark's calls for a query that reads it."""

    def __init__(self, client: Client, servers: str, **options: object) -> None:
        self.client, self.topic = client, f"self-limited-{next(NUMBERS)}"
        create_topic(client, NewTopic(self.topic, 1))
        base = {
            "kafka.bootstrap.servers": servers,
            "subscribe": self.topic,
            "startingOffsets": "earliest",
        }
        self.options = parse_options({**base, **{name: str(value) for name, value in options.items()}})
        self.checkpoint: dict[str, Any] | None = None
        self.reader = SelfLimitedReader(self.options)

    def restart(self) -> None:
        """A new process, which a query with a checkpoint first tells where it stands."""
        self.reader.stop()
        self.reader = SelfLimitedReader(self.options)
        if self.checkpoint is not None:
            assert self.reader.partitions(self.checkpoint, self.checkpoint) == []

    def produce(self, rows: int, partition: int = 0) -> None:
        records = [Record(-1, 1_700_000_000_000, None, b"%d" % number) for number in range(rows)]
        self.client.produce(TopicPartition(TopicName(self.topic), partition), build_batch(records))

    def batch(self) -> list[tuple[int, int, int]]:
        """Plan a micro-batch, if there is anything new: (partition, start, end) of its ranges."""
        end = self.reader.latestOffset()
        start = self.checkpoint if self.checkpoint is not None else self.reader.initialOffset()
        if end == start:
            return []
        self.checkpoint = end
        return self.ranges(start, end)

    def ranges(self, start: dict[str, Any], end: dict[str, Any]) -> list[tuple[int, int, int]]:
        planned = [partition for partition in self.reader.partitions(start, end) if isinstance(partition, OffsetRange)]
        return [(batch.partition, batch.start, batch.end) for batch in planned]


MakeQuery = Callable[..., Query]


@pytest.fixture
def client(broker: Broker) -> Iterator[Client]:
    with Client(broker.bootstrap_servers) as made:
        yield made


@pytest.fixture
def query_with(client: Client, broker: Broker) -> Iterator[MakeQuery]:
    """Makes queries: ``query_with(maxOffsetsPerTrigger=10)``."""
    made: list[Query] = []

    def make(**options: object) -> Query:
        made.append(Query(client, broker.bootstrap_servers, **options))
        return made[-1]

    yield make
    for query in made:
        query.reader.stop()


def test_the_first_batch_takes_all_and_the_next_ones_are_limited(
    query_with: MakeQuery, caplog: pytest.LogCaptureFixture
) -> None:
    query = query_with(maxOffsetsPerTrigger=10)
    query.produce(25)
    assert query.batch() == [(0, 0, 25)]
    assert "maxOffsetsPerTrigger=10 applies from the second batch on; the first reads 15 offsets more" in caplog.text
    assert "limitFirstBatch=true" in caplog.text
    query.produce(15)
    assert [query.batch(), query.batch(), query.batch()] == [[(0, 25, 35)], [(0, 35, 40)], []]
    assert len(caplog.records) == 1


def test_a_first_batch_is_limited_where_others_are_said_to_follow(
    query_with: MakeQuery, caplog: pytest.LogCaptureFixture
) -> None:
    query = query_with(maxOffsetsPerTrigger=10, limitFirstBatch=True)
    query.produce(25)
    assert query.batch() == [(0, 0, 10)]
    assert "the first batch leaves 15 offsets to the next" in caplog.text
    query.restart()
    assert [query.batch(), query.batch(), query.batch()] == [[(0, 10, 20)], [(0, 20, 25)], []]


def test_nothing_is_said_where_nothing_is_left_out(query_with: MakeQuery, caplog: pytest.LogCaptureFixture) -> None:
    query = query_with(maxOffsetsPerTrigger=10)
    query.produce(10)
    assert query.batch() == [(0, 0, 10)]
    query.restart()
    assert query.batch() == []
    assert not caplog.records


def test_a_batch_that_is_run_again_says_what_waits_behind_it(
    query_with: MakeQuery, caplog: pytest.LogCaptureFixture
) -> None:
    query = query_with()
    query.produce(4)
    query.batch()
    before = query.checkpoint
    query.produce(3)
    query.batch()
    query.restart()
    assert before is not None
    assert query.checkpoint is not None
    assert query.ranges(before, query.checkpoint) == [(0, 4, 7)]
    assert not caplog.records
    query.produce(2)
    query.restart()
    query.ranges(before, query.checkpoint)
    assert "runs again; 2 offsets follow it" in caplog.text
    assert query.batch() == [(0, 7, 9)]


def test_a_batch_waits_for_its_minimum_from_the_second_on(query_with: MakeQuery) -> None:
    query = query_with(minOffsetsPerTrigger=5, maxTriggerDelay="1h")
    query.produce(2)
    assert query.batch() == [(0, 0, 2)]
    query.produce(3)
    assert query.batch() == []
    query.produce(2)
    assert query.batch() == [(0, 2, 7)]


def test_a_new_query_begins_where_its_first_end_was_measured_from(query_with: MakeQuery) -> None:
    query = query_with(startingOffsets="latest")
    query.produce(3)
    end = query.reader.latestOffset()
    query.produce(4)
    assert query.reader.initialOffset() == end
    assert query.ranges(end, query.reader.latestOffset()) == [(0, 3, 7)]


def test_partitions_that_are_added_are_read_from_their_beginning(query_with: MakeQuery, client: Client) -> None:
    query = query_with(**{"kafka.metadata.max.age.ms": 1})
    query.produce(2)
    assert query.batch() == [(0, 0, 2)]
    add_partitions(client, query.topic, 2)
    query.produce(3, partition=1)
    assert query.batch() == [(1, 0, 3)]


def test_a_position_behind_the_log_is_a_loss_after_a_restart(query_with: MakeQuery) -> None:
    query = query_with(**{"fetchOffset.retryIntervalMs": "1ms"})
    query.produce(2)
    query.batch()
    assert query.checkpoint is not None
    query.checkpoint = {**query.checkpoint, query.topic: {"0": 9}}
    query.restart()
    with pytest.raises(DataLoss, match="the log ends there"):
        query.reader.latestOffset()


def test_a_transaction_that_holds_the_query_is_logged(
    query_with: MakeQuery, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    query = query_with(**{"kafka.isolation.level": "read_committed", "heldAfter": "0s"})
    producer = TransactionalProducer(client, TransactionSettings("self-limited-holder"))
    producer.initialize()
    producer.begin()
    producer.send(query.topic, b"open", partition=0)
    producer.flush()
    assert query.batch() == []
    assert "held by transaction 'self-limited-holder'" in caplog.text
    producer.abort()
    producer.close()


def test_a_copy_for_tasks_remembers_nothing(query_with: MakeQuery) -> None:
    query = query_with(maxOffsetsPerTrigger=1)
    query.produce(5)
    query.batch()
    copy = pickle.loads(pickle.dumps(query.reader))
    assert (copy._position, copy._is_first) == (None, True)
    assert copy._options == query.options
