"""The writing examples of Spark's "Structured Streaming + Kafka Integration Guide", the name of the format changed.

What the guide leaves open (host, topics, checkpoint) is filled in. One thing more is not as there: batch writes need
``.mode("append")``, as Spark takes the default mode from no Python data source.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from oncelog.testing import Broker
from tests.spark.sink.queries import committed_values, make_input

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def test_streaming_and_batch_writes(spark: SparkSession, sink_broker: Broker, tmp_path: Path) -> None:
    host = sink_broker.bootstrap_servers
    values = make_input(host, "guide-in", 20)
    source = {"kafka.bootstrap.servers": host, "subscribe": "guide-in", "startingOffsets": "earliest"}
    df = spark.readStream.format("oncelog").options(**source).load().withColumnRenamed("topic", "from")
    df = df.selectExpr("*", "'guide-named' AS topic")

    # Write key-value data from a DataFrame to a specific topic specified in an option; using a topic in the data
    ds = (
        df.selectExpr("CAST(key AS STRING)", "CAST(value AS STRING)")
        .writeStream.format("oncelog")
        .option("kafka.bootstrap.servers", host)
        .option("topic", "guide-stream")
        .option("checkpointLocation", str(tmp_path / "one"))
        .trigger(availableNow=True)
        .start()
    )
    ds.awaitTermination()
    ds = (
        df.selectExpr("topic", "CAST(key AS STRING)", "CAST(value AS STRING)")
        .writeStream.format("oncelog")
        .option("kafka.bootstrap.servers", host)
        .option("checkpointLocation", str(tmp_path / "two"))
        .trigger(availableNow=True)
        .start()
    )
    ds.awaitTermination()
    df = spark.read.format("oncelog").options(**source).load().drop("topic").selectExpr("*", "'guide-data' AS topic")
    (
        df.selectExpr("CAST(key AS STRING)", "CAST(value AS STRING)")
        .write.format("oncelog")
        .option("kafka.bootstrap.servers", host)
        .option("topic", "guide-batch")
        .mode("append")
        .save()
    )
    (
        df.selectExpr("topic", "CAST(key AS STRING)", "CAST(value AS STRING)")
        .write.format("oncelog")
        .option("kafka.bootstrap.servers", host)
        .mode("append")
        .save()
    )
    for topic in ("guide-stream", "guide-named", "guide-batch", "guide-data"):
        assert committed_values(host, topic) == values
