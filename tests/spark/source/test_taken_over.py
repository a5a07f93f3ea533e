"""A checkpoint of Spark's own Kafka connector, as it lies on disk, goes on with ours on every version of Spark.

``test_streams`` does the same with the connector itself, where its jars were fetched.
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


def write_checkpoint(place: Path, topic: str, read: int) -> None:
    """The files that the connector left after one batch: ``read`` records of each of two partitions."""

    def offsets(number: int) -> str:
        return json.dumps({topic: {"0": number, "1": number}}, separators=(",", ":"))

    batch = '{"batchWatermarkMs":0,"batchTimestampMs":1795398067632,"conf":{"spark.sql.shuffle.partitions":"2"}}'
    files = {
        "metadata": '{"id":"754faa3b-0eb4-4bc0-8baf-fdc56afef624"}',
        "offsets/0": f"v1\n{batch}\n{offsets(read)}",
        "commits/0": 'v1\n{"nextBatchWatermarkMs":0}',
        "sources/0/0": f"\0v1\n{offsets(0)}",
    }
    for name, text in files.items():
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_text(text)


def test_a_checkpoint_of_the_connector_goes_on(
    spark: SparkSession, topic_with: Callable[..., Topic], tmp_path: Path
) -> None:
    topic = topic_with(11)
    write_checkpoint(tmp_path, topic.name, 3)
    values: list[bytes] = []

    def keep(batch: DataFrame, number: int) -> None:
        values.extend(bytes(row.value) for row in batch.select("value").collect())

    stream = spark.readStream.format("oncelog").option("kafka.bootstrap.servers", topic.bootstrap_servers)
    writer = stream.option("subscribe", topic.name).load().writeStream.foreachBatch(keep)
    query = writer.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start()
    query.awaitTermination()
    assert sorted(values) == topic.values(6)
    assert (tmp_path / "offsets" / "1").exists()
