"""Rows of the sink, read by Apache Kafka's console consumer and Spark's connector; rows of Java, read by the source."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from oncelog.testing import Broker
from tests.peers.jars import SPARK_CONNECTOR
from tests.spark.conftest import Topic
from tests.spark.java_clients import console_consumed, write_with_every_codec
from tests.spark.sink.queries import Copy, make_input

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.java]

COMMITTED = {"kafka.isolation.level": "read_committed"}


def values_of(spark: SparkSession, servers: str, topic: str, format_name: str, **options: str) -> list[bytes]:
    reader = spark.read.format(format_name).option("kafka.bootstrap.servers", servers).option("subscribe", topic)
    return sorted(bytes(row.value) for row in reader.options(**options).load().select("value").collect())


@pytest.mark.parametrize("mode", ["2pc", "ledger"])
def test_java_consumers_read_what_counts_and_nothing_else(
    spark: SparkSession, sink_broker: Broker, tmp_path: Path, mode: str
) -> None:
    servers = sink_broker.bootstrap_servers
    values = make_input(servers, f"java-in-{mode}", 60)
    copy = Copy(spark, servers, f"java-in-{mode}", f"java-out-{mode}", tmp_path)
    copy.options["exactlyOnce"] = mode
    copy.order("after-flush", "ledger-before-commit")  # something is aborted, too
    copy.run_to_the_end()
    assert console_consumed(servers, copy.sink, len(values)) == values
    if not SPARK_CONNECTOR.missing():
        assert values_of(spark, servers, copy.sink, "kafka", **COMMITTED) == values


@pytest.mark.peer("spark-connector")
def test_our_source_reads_a_java_producers_transactions_of_every_codec(
    spark: SparkSession, topic_with: Callable[..., Topic]
) -> None:
    topic = topic_with(0, partitions=3)
    committed, aborted = write_with_every_codec(spark, topic.bootstrap_servers, topic.name)
    for name in ("oncelog", "kafka"):
        assert values_of(spark, topic.bootstrap_servers, topic.name, name, **COMMITTED) == committed
        assert values_of(spark, topic.bootstrap_servers, topic.name, name) == sorted(committed + aborted)
