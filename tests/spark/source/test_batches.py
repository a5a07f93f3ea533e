"""Batch queries: filters that are pushed down, values that Spark decodes, rows that the JVM connector wrote."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from oncelog.spark import OptionError, decode_values
from oncelog.spark.session import versions
from tests.spark.conftest import TIME, Topic

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]

MakeTopic = Callable[..., Topic]
PUSHDOWN = "spark.sql.python.filterPushdown.enabled"


def values(frame: DataFrame) -> list[bytes]:
    return sorted(bytes(row.value) for row in frame.select("value").collect())


def test_filters_are_pushed_down_only_if_asked(spark: SparkSession, topic_with: MakeTopic) -> None:
    topic = topic_with(40, partitions=4)
    wanted = f"partition IN (1, 3) AND offset >= 2 AND offset < 8 AND timestamp >= timestamp_millis({TIME + 17_000})"
    plain = topic.read(spark).where(wanted)
    expected = values(plain)
    assert len(expected) == 8
    if not versions.has_pushdown():  # the option has no effect
        requests = topic.read(spark, pushdown="true").where(wanted)
        assert (values(requests), requests.rdd.getNumPartitions()) == (expected, 4)
        return
    with pytest.raises(Exception, match=PUSHDOWN):
        topic.read(spark, pushdown="true").count()
    spark.conf.set(PUSHDOWN, "true")
    try:
        pushed = topic.read(spark, pushdown="true").where(wanted)
        assert values(pushed) == expected
        assert (plain.rdd.getNumPartitions(), pushed.rdd.getNumPartitions()) == (4, 2)
        assert values(topic.read(spark).where(wanted)) == expected  # without the option nothing is pushed
    finally:
        spark.conf.set(PUSHDOWN, "false")


def test_values_are_decoded_by_sparks_functions(spark: SparkSession, topic_with: MakeTopic) -> None:
    topic = topic_with(1, partitions=1)  # v0: no JSON
    source = topic.read(spark, **{"value.format": "utf8"})
    parsed = decode_values(source.selectExpr("explode(array(value, '{\"id\": 7}')) AS value"), "json", "id INT")
    cut = decode_values(topic.read(spark), "utf8", skip_bytes=1).select("value").withColumnRenamed("value", "id")
    union = parsed.select("value.id").unionByName(cut.selectExpr("CAST(id AS INT) + 100 AS id"))
    assert sorted(str(row.id) for row in union.collect()) == ["100", "7", "None"]
    if "avro" not in spark.conf.get("spark.jars", ""):
        with pytest.raises(OptionError, match=r"org\.apache\.spark:spark-avro_2\.13:"):
            decode_values(source, "avro", '"string"')
    with pytest.raises(OptionError, match="needs a schema"):
        decode_values(source, "json")
    with pytest.raises(
        OptionError, match=r"^the schema 'id BIGINTT' cannot be read: Syntax error at or near 'BIGINTT'"
    ):
        decode_values(source, "json", "id BIGINTT")


def test_values_of_a_stream_are_decoded_and_what_cannot_be_is_kept_if_asked(
    spark: SparkSession, topic_with: MakeTopic, tmp_path: Path
) -> None:
    topic = topic_with(1, partitions=1)
    stream = spark.readStream.format("oncelog").option("kafka.bootstrap.servers", topic.bootstrap_servers)
    frame = stream.options(subscribe=topic.name, startingOffsets="earliest").load()
    frame = decode_values(frame, "json", "id INT, bad STRING", options={"columnNameOfCorruptRecord": "bad"})
    place = str(tmp_path / "table")
    writer = frame.writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "checkpoint"))
    writer.trigger(availableNow=True).start(place).awaitTermination()
    assert [row.value.bad for row in spark.read.parquet(place).collect()] == ["v0"]


@pytest.mark.peer("spark-connector")
def test_rows_that_the_jvm_connector_wrote(spark: SparkSession, topic_with: MakeTopic) -> None:
    topic = topic_with(0, partitions=3)
    rows = spark.range(200).selectExpr(
        "CAST(CAST(id % 7 AS STRING) AS BINARY) AS key",
        "IF(id % 5 = 0, NULL, CAST(repeat('x', CAST(id AS INT)) AS BINARY)) AS value",
        "IF(id % 2 = 0, array(struct('n' AS key, CAST(CAST(id AS STRING) AS BINARY) AS value)), NULL) AS headers",
    )
    writer = rows.write.format("kafka").option("kafka.bootstrap.servers", topic.bootstrap_servers)
    writer.option("kafka.compression.type", "lz4").option("includeHeaders", "true").option("topic", topic.name).save()
    read = topic.read(spark, includeHeaders="true").select("key", "value", "headers")
    assert read.exceptAll(rows).count() == rows.exceptAll(read).count() == 0
