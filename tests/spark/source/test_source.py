"""The source in a real Spark, against the in-process broker."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from tests.spark.conftest import TIME, Topic

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]

MakeTopic = Callable[..., Topic]


def values(frame: DataFrame) -> list[bytes]:
    return sorted(bytes(row.value) for row in frame.select("value").collect())


def test_every_column_has_the_connectors_name_type_and_value(spark: SparkSession, topic_with: MakeTopic) -> None:
    topic = topic_with(partitions=1)
    topic.produce(1)
    topic.produce(1, headers=(("trace", b"1"), ("none", None)), key=None)
    frame = topic.read(spark, includeHeaders="true")
    assert frame.schema.simpleString() == (
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,timestamp:timestamp,"
        "timestampType:int,headers:array<struct<key:string,value:binary>>>"
    )
    rows = frame.selectExpr("*", "unix_millis(timestamp) AS time_ms").drop("timestamp").orderBy("offset").collect()
    assert [row.asDict(recursive=True) for row in rows] == [
        {
            "key": bytearray(b"key"),
            "value": bytearray(b"v0"),
            "topic": topic.name,
            "partition": 0,
            "offset": 0,
            "timestampType": 0,
            "headers": None,
            "time_ms": TIME,
        },
        {
            "key": None,
            "value": bytearray(b"v1"),
            "topic": topic.name,
            "partition": 0,
            "offset": 1,
            "timestampType": 0,
            "headers": [{"key": "trace", "value": bytearray(b"1")}, {"key": "none", "value": None}],
            "time_ms": TIME + 1000,
        },
    ]


def test_where_a_batch_begins_and_ends(spark: SparkSession, topic_with: MakeTopic) -> None:
    topic = topic_with(20)

    def at(first: int, second: int) -> str:
        return json.dumps({topic.name: {"0": first, "1": second}})

    assert values(topic.read(spark, startingOffsets=at(9, 10), endingOffsets=at(-1, 10))) == [b"v18"]
    assert values(topic.read(spark, startingOffsets=at(-2, 8), endingOffsets=at(1, -1))) == [b"v0", b"v17", b"v19"]
    assert values(topic.read(spark, startingTimestamp=TIME + 17_500)) == [b"v18", b"v19"]
    by_time = {"startingOffsetsByTimestamp": at(TIME + 18_000, TIME + 19_000), "endingTimestamp": TIME + 19_000}
    assert values(topic.read(spark, **by_time)) == [b"v18"]
    assigned = topic.read(spark, assign=json.dumps({topic.name: [1]}), minPartitions=4)
    assert values(assigned) == sorted(b"v%d" % number for number in range(1, 20, 2))
    assert assigned.rdd.getNumPartitions() == 4


def test_a_start_that_is_later_than_every_record(spark: SparkSession, topic_with: MakeTopic) -> None:
    topic = topic_with(2)
    with pytest.raises(Exception, match="No offset matched from request of topic-partition"):
        topic.read(spark, startingTimestamp=TIME + 10_000).count()
    late = topic.read(spark, startingTimestamp=TIME + 10_000, startingOffsetsByTimestampStrategy="latest")
    assert late.count() == 0


def test_records_lost_to_retention(spark: SparkSession, topic_with: MakeTopic) -> None:
    topic = topic_with(10, partitions=1)
    topic.delete_before(4)
    expected = {"startingOffsets": json.dumps({topic.name: {"0": 1}})}
    with pytest.raises(Exception, match=f"topic '{topic.name}', partition 0: requested offset 1, available is 4"):
        topic.read(spark, **expected).count()
    assert values(topic.read(spark, **expected, failOnDataLoss="false")) == topic.values(4)


def test_a_stream_reads_everything_once_in_limited_batches_and_goes_on_after_a_restart(
    spark: SparkSession, topic_with: MakeTopic, tmp_path_factory: pytest.TempPathFactory
) -> None:
    topic = topic_with(25)
    place = tmp_path_factory.mktemp("stream")

    def run() -> list[int]:
        stream = spark.readStream.format("oncelog").option("kafka.bootstrap.servers", topic.bootstrap_servers)
        options = {"subscribePattern": topic.name[:-1] + ".", "startingOffsets": "earliest", "maxOffsetsPerTrigger": 10}
        writer = stream.options(**options).load().writeStream.format("parquet").trigger(availableNow=True)
        query = writer.option("checkpointLocation", str(place / "checkpoint")).start(str(place / "table"))
        query.awaitTermination()
        return [progress["numInputRows"] for progress in query.recentProgress if progress["numInputRows"]]

    assert sum(run()) == 25
    topic.produce(5)
    assert run() == [5]
    assert values(spark.read.parquet(str(place / "table"))) == topic.values()


@pytest.mark.peer("spark-connector")
def test_sparks_own_connector_reads_the_same(spark: SparkSession, topic_with: MakeTopic) -> None:
    topic = topic_with(partitions=3)
    topic.produce(200)
    topic.produce(100, headers=(("h", b"1"),), key=None)
    ours, theirs = (topic.read(spark, name, includeHeaders="true") for name in ("oncelog", "kafka"))
    assert ours.schema == theirs.schema
    assert ours.exceptAll(theirs).count() == 0
    assert theirs.exceptAll(ours).count() == 0
