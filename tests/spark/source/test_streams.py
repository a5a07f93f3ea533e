"""Streaming queries that wait, that are behind, held up, or find another topic than they left."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from oncelog.admin.topics import NewTopic, create_topic, delete_topics
from oncelog.client.blocking import Client, TransactionalProducer, TransactionSettings
from oncelog.spark.session import versions
from tests.spark.conftest import Topic
from tests.spark.documented_loop import run_documented_loop

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import DataStreamWriter, StreamingQuery

pytestmark = [pytest.mark.spark, pytest.mark.slow]

MakeTopic = Callable[..., Topic]
COMMITTED = {"kafka.isolation.level": "read_committed"}


class Sink:
    """A table that a query writes, and its checkpoint."""

    def __init__(self, spark: SparkSession, topic: Topic, place: Path) -> None:
        self._spark, self._topic, self._place = spark, topic, place

    def start(self, format_name: str = "oncelog", *, once: bool = False, **options: object) -> StreamingQuery:
        writer = self.writer(format_name, **options)
        return (writer.trigger(availableNow=True) if once else writer.trigger(processingTime="0 seconds")).start()

    def writer(self, format_name: str = "oncelog", **options: object) -> DataStreamWriter:
        stream = self._spark.readStream.format(format_name)
        given = {"subscribe": self._topic.name, "startingOffsets": "earliest", **options}
        frame = stream.option("kafka.bootstrap.servers", self._topic.bootstrap_servers).options(**given).load()
        writer = frame.writeStream.option("checkpointLocation", str(self._place / "checkpoint")).format("parquet")
        return writer.option("path", str(self._place / "table"))

    @contextmanager
    def running(self, **options: object) -> Iterator[StreamingQuery]:
        query = self.start(**options)  # type: ignore[arg-type]  # options of the source
        try:
            yield query
        finally:
            query.stop()

    def run(self, format_name: str = "oncelog", **options: object) -> list[int]:
        """Read what is there; the rows of each batch that had any."""
        query = self.start(format_name, once=True, **options)
        query.awaitTermination()
        return [progress["numInputRows"] for progress in query.recentProgress if progress["numInputRows"]]

    def values(self) -> list[bytes]:
        frame = self._spark.read.parquet(str(self._place / "table"))
        return sorted(bytes(row.value) for row in frame.select("value").collect())


def latest(query: StreamingQuery) -> Mapping[str, Any]:
    """The end of the logs, as the source reports it; before Spark 4.2 a Python source is not asked for it."""
    progress = query.lastProgress
    assert progress is not None
    told: Mapping[str, Any] = json.loads(progress["sources"][0]["latestOffset"])
    return told


def test_a_batch_waits_for_its_minimum_and_is_cut_to_its_maximum(
    spark: SparkSession, topic_with: MakeTopic, tmp_path: Path
) -> None:
    topic = topic_with(5, partitions=1)
    sink = Sink(spark, topic, tmp_path)
    limits = {"minOffsetsPerTrigger": 10, "maxOffsetsPerTrigger": 12, "maxTriggerDelay": "1h"}
    with sink.running(**limits) as query:
        query.processAllAvailable()
        assert len(sink.values()) == 5  # the first one does not wait
        topic.produce(8)
        query.processAllAvailable()
        assert len(sink.values()) == 5
        topic.produce(12)
        query.processAllAvailable()  # twelve of twenty, then eight wait again
        assert len(sink.values()) == 17
        if versions.has_admission_control():
            assert latest(query)["@offsetsBehindLatest"] == {"min": 8, "max": 8, "avg": 8.0, "total": 8}
    assert sink.run(**limits) == [8]  # what is available now does not wait
    assert sink.values() == topic.values()


def test_a_stream_with_an_end_is_refused_in_the_sources_words(
    spark: SparkSession, topic_with: MakeTopic, tmp_path: Path
) -> None:
    with pytest.raises(Exception, match="ending offset not valid in streaming queries") as refused:
        Sink(spark, topic_with(1), tmp_path).run(endingOffsets="latest")
    assert "UnboundLocalError" not in str(refused.value)


def test_partitions_that_are_added_are_read_from_their_beginning_and_said(
    spark: SparkSession, topic_with: MakeTopic, tmp_path: Path
) -> None:
    topic = topic_with(5, partitions=1)
    sink = Sink(spark, topic, tmp_path)
    with sink.running(minOffsetsPerTrigger=1) as query:
        query.processAllAvailable()
        topic.grow(3)
        topic.produce(12)
        query.processAllAvailable()
        assert sink.values() == topic.values()
        if versions.has_admission_control():
            assert f"{topic.name}-2 is new: it is read from its beginning" in latest(query)["@notices"]


def test_a_topic_that_was_deleted_and_created_anew_is_not_taken_for_the_old_one(
    spark: SparkSession, topic_with: MakeTopic, tmp_path: Path, broker: Any
) -> None:
    topic = topic_with(4, partitions=1)
    sink = Sink(spark, topic, tmp_path)
    sink.run()
    with Client(broker.bootstrap_servers) as client:
        delete_topics(client, [topic.name])
        create_topic(client, NewTopic(topic.name, 1, configs={"retention.ms": "-1"}))
    topic.produce(6)  # the new log is longer: offsets alone would tell nothing
    with pytest.raises(Exception, match=r"deleted and (re)?created"):
        sink.run()
    assert sum(sink.run(failOnDataLoss="false")) == 6
    assert sink.values() == topic.values()


@pytest.mark.spark_versions(">=4.2")  # before, it is in the log: tests/unit/spark/source/test_self_limited_reader.py
def test_a_query_that_an_open_transaction_holds_up_says_whose_it_is(
    spark: SparkSession, topic_with: MakeTopic, tmp_path: Path, broker: Any
) -> None:
    topic = topic_with(3, partitions=1)
    with Client(broker.bootstrap_servers) as client:
        producer = TransactionalProducer(client, TransactionSettings("the-holder"))
        producer.initialize()
        producer.begin()
        producer.send(topic.name, b"open", partition=0)
        producer.flush()
        topic.produce(4)
        sink = Sink(spark, topic, tmp_path)
        with sink.running(**COMMITTED, heldAfter="0s") as query:
            query.processAllAvailable()
            assert len(sink.values()) == 3
            (message,) = latest(query)["@held"]
            assert "held by transaction 'the-holder' of producer id" in message
            assert ", since " in message
            assert f"see `oncelog txn explain --topic {topic.name} --partition 0`" in message
            producer.abort()
            query.processAllAvailable()
            assert sink.values() == topic.values()
        producer.close()


def test_the_documented_loop_goes_on_behind_a_batch_that_has_no_rows(
    spark: SparkSession, topic_with: MakeTopic, tmp_path: Path, broker: Any
) -> None:
    topic = topic_with(3, partitions=1)
    with Client(broker.bootstrap_servers) as client:
        producer = TransactionalProducer(client, TransactionSettings("the-aborter"))
        producer.initialize()
        producer.begin()
        for _ in range(8):
            producer.send(topic.name, b"aborted", partition=0)
        producer.abort()
        producer.close()
    topic.produce(3)
    sink = Sink(spark, topic, tmp_path)
    run_documented_loop(sink.writer(**COMMITTED, maxOffsetsPerTrigger=5, limitFirstBatch=True))
    assert sink.values() == topic.values()


@pytest.mark.peer("spark-connector")
def test_the_connectors_checkpoint_is_taken_over(spark: SparkSession, topic_with: MakeTopic, tmp_path: Path) -> None:
    topic = topic_with(6)
    sink = Sink(spark, topic, tmp_path)
    assert sum(sink.run("kafka")) == 6
    topic.produce(5)
    assert sum(sink.run()) == 5
    assert sink.values() == topic.values()
