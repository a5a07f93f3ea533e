"""Avro values, by Spark's own package ``spark-avro``: decoded in queries and in loads, as Confluent's serializers frame
them, bad ones in quarantine."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from oncelog.spark import decode_values, load
from oncelog.spark.jobs.shape import Shape
from tests.spark.conftest import Topic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.peer("spark-avro")]

SCHEMA = json.dumps(
    {
        "type": "record",
        "name": "Flight",
        "fields": [{"name": "number", "type": ["null", "int"]}, {"name": "tail", "type": ["null", "string"]}],
    }
)


def test_avro_written_by_spark_is_read_in_queries_and_loaded_into_columns(
    spark: SparkSession, topic_with: Callable[..., Topic], tmp_path: Path
) -> None:
    from pyspark.sql import functions as f
    from pyspark.sql.avro.functions import to_avro

    topic = topic_with(0, partitions=1)
    rows = spark.createDataFrame([(1, "N1"), (None, None)], "number INT, tail STRING").coalesce(1)
    encoded = to_avro(f.struct("number", "tail"), SCHEMA)
    framed = rows.select(f.concat(f.unhex(f.lit("0000000007")), encoded).alias("value"))
    bad = spark.sql("SELECT unhex('00000000070202') AS value")
    for frame in (framed, bad):
        writer = frame.write.format("oncelog").mode("append").option("kafka.bootstrap.servers", topic.bootstrap_servers)
        writer.option("topic", topic.name).save()
    source = topic.read(spark, **{"kafka.isolation.level": "read_committed"})
    decoded = decode_values(source, "avro", SCHEMA, skip_bytes=5)
    collected = decoded.orderBy("offset").select("value").collect()
    assert [row.value and tuple(row.value) for row in collected] == [(1, "N1"), (None, None), None]
    shape = Shape("avro", SCHEMA, skip_bytes=5)
    report = load(topic.name, topic.bootstrap_servers, tmp_path, spark=spark, shape=shape)
    assert (report.rows, report.quarantined) == (2, 1)
    table = spark.read.parquet(str(tmp_path)).orderBy("offset").select("number", "tail").collect()
    assert [tuple(row) for row in table] == [(1, "N1"), (None, None)]
