"""One task's reads from a real broker, without Spark around it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from oncelog.admin.topics import NewTopic, create_topic
from oncelog.base.ids import TopicName, TopicPartition
from oncelog.client.blocking import Client
from oncelog.client.errors import UnknownTopic
from oncelog.records.builder import build_batch
from oncelog.records.record import Record
from oncelog.spark.session.errors import DataLoss
from oncelog.spark.source.offset_ranges import OffsetRange
from oncelog.spark.source.options import SourceOptions, parse_options
from oncelog.spark.source.plan.offset_planner import OffsetPlanner, open_client
from oncelog.spark.source.read.range_reader import read_range
from oncelog.testing import Broker
from tests.spark.conftest import TIME, Topic

pytestmark = pytest.mark.slow

MakeTopic = Callable[..., Topic]


def options(topic: Topic, **given: str) -> SourceOptions:
    base = {"kafka.bootstrap.servers": topic.bootstrap_servers, "subscribe": topic.name}
    return parse_options(
        {**base, "kafka.fetch.max.wait.ms": "20", **{key.replace("_", "."): v for key, v in given.items()}}
    )


def values(topic: Topic, start: int, end: int, **given: str) -> list[bytes]:
    batches = read_range(options(topic, **given), OffsetRange(topic.name, 0, start, end))
    return [value for batch in batches for value in batch.column("value").to_pylist()]


def test_a_range_is_read_to_its_end_and_no_further(topic_with: MakeTopic) -> None:
    topic = topic_with(30, partitions=1)
    assert values(topic, 7, 19) == [b"v%d" % number for number in range(7, 19)]


def test_many_small_fetches_give_the_same_as_one(topic_with: MakeTopic) -> None:
    topic = topic_with(partitions=1)
    for _ in range(20):
        topic.produce(5)
    everything = values(topic, 0, 100)
    assert everything == values(topic, 0, 100, kafka_max_partition_fetch_bytes="200")
    assert everything == [b"v%d" % number for number in range(100)]


def test_what_retention_removed_under_way(topic_with: MakeTopic) -> None:
    topic = topic_with(30, partitions=1)
    topic.delete_before(10)
    with pytest.raises(DataLoss, match="partition 0: requested offset 4, available is 10"):
        values(topic, 4, 30)
    assert values(topic, 4, 30, failOnDataLoss="false") == [b"v%d" % number for number in range(10, 30)]
    assert values(topic, 4, 8, failOnDataLoss="false") == []


def test_a_range_past_the_logs_end(topic_with: MakeTopic) -> None:
    topic = topic_with(5, partitions=1)
    soon = {"fetchOffset_retryIntervalMs": "1ms"}
    with pytest.raises(DataLoss, match="requested offset 9, available is 5"):
        values(topic, 0, 9, **soon)
    assert values(topic, 0, 9, failOnDataLoss="false", **soon) == [b"v%d" % number for number in range(5)]


def test_planning_finds_topics_by_pattern_and_misses_by_name(topic_with: MakeTopic) -> None:
    first, second = topic_with(1), topic_with(1, partitions=1)
    pattern = {"kafka.bootstrap.servers": first.bootstrap_servers, "subscribePattern": first.name[:-1] + "[01]"}
    with open_client(parse_options(pattern)) as client:
        partitions = OffsetPlanner(client, parse_options(pattern)).partitions()
    assert partitions == [first.partition(0), first.partition(1), second.partition(0)]
    missing = parse_options({"kafka.bootstrap.servers": first.bootstrap_servers, "subscribe": "missing"})
    with open_client(missing) as client, pytest.raises(UnknownTopic, match="'missing'"):
        OffsetPlanner(client, missing).partitions()


@pytest.mark.parametrize(("time_ms", "offset"), [(-(10**15), 0), (-2, 0), (-1, 0), (0, 0), (TIME + 3_600_000, 5)])
def test_times_are_no_special_offsets(topic_with: MakeTopic, time_ms: int, offset: int) -> None:
    topic = topic_with(5, partitions=1)
    parsed = options(topic)
    with open_client(parsed) as client:
        result = OffsetPlanner(client, parsed).at_or_after([topic.partition(0)], time_ms)
    assert result == {topic.partition(0): offset}


def test_what_compaction_removed_is_no_loss() -> None:
    often = {"cleanup.policy": "compact", "segment.bytes": "1048576", "min.cleanable.dirty.ratio": "0.001"}
    with Broker({"log.cleaner.backoff.ms": "20"}) as broker, Client(broker.bootstrap_servers) as client:
        create_topic(client, NewTopic("compacted", 1, configs=often))
        partition = TopicPartition(TopicName("compacted"), 0)
        for number in range(40):  # more than two segments: the last one is never compacted
            record = Record(-1, TIME, b"key %d" % (number % 3), b"%d " % number + b"x" * 60_000)
            client.produce(partition, build_batch([record]))
        base = {"kafka.bootstrap.servers": broker.bootstrap_servers, "subscribe": "compacted"}
        parsed = parse_options(base)

        def offsets(start: int, end: int) -> list[int]:
            batches = read_range(parsed, OffsetRange("compacted", 0, start, end))
            return [offset for batch in batches for offset in batch.column("offset").to_pylist()]

        for _ in range(200):
            if offsets(0, 40) == [*range(31, 40)]:  # the last segment, and the last values before it
                break
            client.pause(0)
        assert offsets(0, 31) == []
        assert offsets(20, 32) == [31]
