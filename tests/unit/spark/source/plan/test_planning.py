"""Plans, and reads of their ranges, from a real broker without Spark: topics that change, ends that are held."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest

from oncelog.admin.topics import NewTopic, create_topic, delete_topics
from oncelog.base.ids import TopicName, TopicPartition
from oncelog.client.blocking import Client, TransactionalProducer, TransactionSettings
from oncelog.records.builder import build_batch
from oncelog.records.record import Record
from oncelog.spark.jobs.load_plan import plan_partition, steps_of
from oncelog.spark.jobs.load_report import LoadRequest
from oncelog.spark.jobs.spark_reader import ranges_option
from oncelog.spark.session.errors import DataLoss, SparkSourceError
from oncelog.spark.source.batch_reader import OncelogReader
from oncelog.spark.source.offset_ranges import OffsetRange
from oncelog.spark.source.options import SourceOptions, parse_options
from oncelog.spark.source.plan.stream_planner import HELD, StreamPlanner
from oncelog.spark.source.read.range_reader import read_range
from oncelog.spark.table.directory import RowsFile
from oncelog.spark.targets.entry import ClusterLog
from oncelog.testing import Broker

TIME = 1_700_000_000_000
NUMBERS = count()
Make = Callable[..., str]
SOON = {
    "kafka.fetch.max.wait.ms": "5",
    "kafka.unknown.topic.grace.ms": "20",
    "kafka.retry.backoff.ms": "1",
    "kafka.retry.backoff.max.ms": "1",
    "fetchOffset.retryIntervalMs": "1ms",
    "heldAfter": "0s",
}
COMMITTED = {"kafka.isolation.level": "read_committed"}


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as running:
        yield running


@pytest.fixture(scope="module")
def client(broker: Broker) -> Iterator[Client]:
    with Client(broker.bootstrap_servers) as made:
        yield made


@pytest.fixture
def make(client: Client) -> Make:
    def made(name: str | None = None, *, values: str = "old", rows: int = 5) -> str:
        topic = name or f"planning-{next(NUMBERS)}"
        create_topic(client, NewTopic(topic, 1, configs={"retention.ms": "-1"}))
        client.view.forget(topic)
        records = [Record(-1, TIME, None, f"{values}{n}".encode()) for n in range(rows)]
        client.produce(partition(topic), build_batch(records))
        return topic

    return made


def partition(topic: str) -> TopicPartition:
    return TopicPartition(TopicName(topic), 0)


def options(broker: Broker, topic: str, **given: str) -> SourceOptions:
    base = {"kafka.bootstrap.servers": broker.bootstrap_servers, "subscribe": topic, "startingOffsets": "earliest"}
    return parse_options({**base, **SOON, **given})


def values(given: SourceOptions, ranges: list[OffsetRange]) -> list[bytes | None]:
    return [value for range_ in ranges for rows in read_range(given, range_) for value in rows.column(1).to_pylist()]


def planned(given: SourceOptions) -> list[OffsetRange]:
    return [item for item in OncelogReader(given).partitions() if isinstance(item, OffsetRange)]


def begin_a_transaction(client: Client, topic: str) -> TransactionalProducer:
    """Two records that are not committed."""
    producer = TransactionalProducer(client, TransactionSettings(f"{topic}-holder"))
    producer.initialize()
    producer.begin()
    for value in (b"open", b"too"):
        producer.send(topic, value, partition=0)
    producer.flush()
    return producer


def test_a_task_reads_nothing_of_a_topic_that_was_created_anew_since_it_was_planned(
    broker: Broker, client: Client, make: Make
) -> None:
    topic = make()
    given = options(broker, topic)
    ranges = planned(given)
    assert values(given, ranges) == [b"old%d" % number for number in range(5)]
    delete_topics(client, [topic])
    with pytest.raises(DataLoss, match="the topic was deleted"):
        values(given, ranges)
    make(topic, values="NEW", rows=9)
    with pytest.raises(DataLoss, match=r"requested offset 0, available is 0: the topic was deleted and .* \(its id"):
        values(given, ranges)
    assert values(options(broker, topic, failOnDataLoss="false"), ranges) == []
    assert values(given, planned(given)) == [b"NEW%d" % number for number in range(9)]


def test_a_batch_of_a_stream_and_a_step_of_a_load_know_their_topic_too(
    broker: Broker, client: Client, make: Make
) -> None:
    topic = make()
    given = options(broker, topic)
    follower = StreamPlanner(given)
    start = follower.initial()
    of_stream = follower.ranges(start, follower.latest_after(start))
    follower.close()
    (state,) = ClusterLog(given, LoadRequest((topic,), Path(), {})).states(_NoFiles())
    ((_, step),) = steps_of([plan_partition(state, fail_on_data_loss=True)], 100, 1)
    of_load = options(broker, topic, ranges=ranges_option(step)).ranges
    delete_topics(client, [topic])
    make(topic, values="NEW")
    for ranges in (of_stream, list(of_load or ())):
        assert [(range_.start, range_.end) for range_ in ranges] == [(0, 5)]
        with pytest.raises(DataLoss, match="created anew"):
            values(given, ranges)


def test_a_topic_that_is_deleted_while_a_task_reads_it_ends_the_task(
    broker: Broker, client: Client, make: Make
) -> None:
    topic = make()
    given = options(broker, topic)
    (wanted,) = planned(given)
    beyond = OffsetRange(topic, 0, 0, 9, wanted.topic_id)  # waits for four more
    for how, expected in (("true", DataLoss), ("false", None)):
        patient = options(broker, topic, failOnDataLoss=how, **{"fetchOffset.retryIntervalMs": "1h"})
        read = read_range(patient, beyond)
        assert next(read).num_rows == 5
        delete_topics(client, [topic])
        if expected is None:
            assert list(read) == []
        else:
            with pytest.raises(expected, match="the topic was deleted"):
                list(read)
            make(topic)
            beyond = OffsetRange(topic, 0, 0, 9)


def test_what_an_open_transaction_holds_is_not_said_to_be_beyond_the_log(
    broker: Broker, client: Client, make: Make
) -> None:
    topic = make(rows=1)
    producer = begin_a_transaction(client, topic)
    end = f'{{"{topic}":{{"0":3}}}}'
    given = options(broker, topic, endingOffsets=end, **COMMITTED)
    impatient = options(broker, topic, **COMMITTED, **{"kafkaConsumer.pollTimeoutMs": "30"})
    ranges = planned(given)
    with pytest.raises(
        SparkSourceError, match=f"Cannot fetch record for offset 1 .*held by transaction '{topic}-holder"
    ):
        values(impatient, ranges)
    producer.commit()
    assert values(given, ranges) == [b"old0", b"open", b"too"]
    producer.close()


def test_a_stream_that_reads_committed_from_now_on_waits_where_it_stands_and_says_for_whom(
    broker: Broker, client: Client, make: Make
) -> None:
    topic = make(rows=1)
    producer = begin_a_transaction(client, topic)
    follower = StreamPlanner(options(broker, topic))
    stands = follower.latest()
    follower.close()
    assert stands.offsets == {partition(topic): 3}
    for how in ("true", "false"):
        follower = StreamPlanner(options(broker, topic, failOnDataLoss=how, **COMMITTED))
        latest = follower.latest_after(stands)
        assert latest == stands
        assert follower.ranges(stands, latest) == []
        (message,) = follower.report(latest, latest, 0)[HELD]
        assert f"{topic}-0 at offset 1, 2 offsets below its end: held by transaction '{topic}-holder'" in message
        follower.close()
    producer.abort()
    producer.close()


class _NoFiles:
    """A table that is new."""

    def files(self, partitions: object) -> dict[tuple[str, int], list[RowsFile]]:
        return {}
