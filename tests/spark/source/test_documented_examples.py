"""The reading examples of Spark's "Structured Streaming + Kafka Integration Guide", the name of the format changed.

What the guide leaves open (host, topics) is filled in; nothing else is.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.spark.conftest import Topic

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]

MakeTopic = Callable[..., Topic]
PAIR = "struct<key:string,value:string>"


def as_text(df: DataFrame) -> DataFrame:
    return df.selectExpr("CAST(key AS STRING)", "CAST(value AS STRING)")


def test_streaming_queries(spark: SparkSession, topic_with: MakeTopic, tmp_path: Path) -> None:
    first, second = topic_with(6, partitions=2), topic_with(3, partitions=1)
    host = first.bootstrap_servers

    # Subscribe to 1 topic; with headers; to multiple topics; to a pattern
    loaded = (
        spark.readStream.format("oncelog")
        .option("kafka.bootstrap.servers", host)
        .option("subscribe", first.name)
        .load()
    )
    assert as_text(loaded).schema.simpleString() == PAIR
    headers = (
        spark.readStream.format("oncelog")
        .option("kafka.bootstrap.servers", host)
        .option("subscribe", first.name)
        .option("includeHeaders", "true")
        .load()
    )
    with_headers = headers.selectExpr("CAST(key AS STRING)", "CAST(value AS STRING)", "headers")
    assert with_headers.schema.names == ["key", "value", "headers"]
    many = (
        spark.readStream.format("oncelog")
        .option("kafka.bootstrap.servers", host)
        .option("subscribe", f"{first.name},{second.name}")
        .load()
    )
    assert as_text(many).isStreaming
    pattern = (
        spark.readStream.format("oncelog")
        .option("kafka.bootstrap.servers", host)
        .option("subscribePattern", first.name[:-1] + ".*")
        .option("startingOffsets", "earliest")
        .load()
    )
    query = (
        as_text(pattern)
        .writeStream.format("parquet")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start(str(tmp_path / "table"))
    )
    query.awaitTermination()
    assert spark.read.parquet(str(tmp_path / "table")).count() == 9


def test_batch_queries(spark: SparkSession, topic_with: MakeTopic) -> None:
    first, second = topic_with(60, partitions=2), topic_with(60, partitions=2)
    host = first.bootstrap_servers

    # Subscribe to 1 topic defaults to the earliest and latest offsets
    df = spark.read.format("oncelog").option("kafka.bootstrap.servers", host).option("subscribe", first.name).load()
    assert as_text(df).count() == 60

    # Subscribe to multiple topics, specifying explicit Kafka offsets
    starting = {first.name: {"0": 23, "1": -2}, second.name: {"0": -2, "1": -2}}
    ending = {first.name: {"0": 50, "1": -1}, second.name: {"0": -1, "1": -1}}
    ending[first.name]["0"] = 27
    df = (
        spark.read.format("oncelog")
        .option("kafka.bootstrap.servers", host)
        .option("subscribe", f"{first.name},{second.name}")
        .option("startingOffsets", json.dumps(starting))
        .option("endingOffsets", json.dumps(ending))
        .load()
    )
    assert as_text(df).count() == 4 + 30 + 60

    # Subscribe to a pattern, at the earliest and latest offsets
    df = (
        spark.read.format("oncelog")
        .option("kafka.bootstrap.servers", host)
        .option("subscribePattern", first.name[:-1] + ".*")
        .option("startingOffsets", "earliest")
        .option("endingOffsets", "latest")
        .load()
    )
    assert as_text(df).count() == 120
