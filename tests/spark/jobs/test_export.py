"""Tables into topics: each row once, whatever ran before."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from oncelog.admin.topics import NewTopic, create_topic, delete_topics
from oncelog.client.blocking import Client
from oncelog.spark import export as export_module
from oncelog.spark import load
from oncelog.spark.export import export
from oncelog.spark.jobs.shape import Shape
from oncelog.spark.table.compact import compact
from oncelog.testing import Broker
from tests.spark.conftest import Topic
from tests.spark.jobs.test_shaped_load import flight, send

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def test_what_is_new_is_sent_once_also_when_a_run_died_after_its_commit(
    spark: SparkSession, topic_with: Callable[..., Topic], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, copy = topic_with(30), topic_with(0)
    servers = topic.bootstrap_servers

    def sent() -> list[bytes]:
        read = copy.read(spark, **{"kafka.isolation.level": "read_committed"})
        return sorted(bytes(row.value) for row in read.select("value").collect())

    load(topic.name, servers, tmp_path, spark=spark)
    with monkeypatch.context() as patch:
        patch.setattr(export_module._Progress, "finish", lambda self: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            export(tmp_path, copy.name, servers, spark=spark, keep_partitions=True)
    assert sent() == topic.values()
    topic.produce(10)
    load(topic.name, servers, tmp_path, spark=spark)
    compact(tmp_path)
    assert export(tmp_path, copy.name, servers, spark=spark, keep_partitions=True).resumed
    assert sent() == topic.values()[:0] + sorted(b"v%d" % n for n in range(30))
    assert export(tmp_path, copy.name, servers, spark=spark, keep_partitions=True).rows == 10
    assert sent() == topic.values()
    assert export(tmp_path, copy.name, servers, spark=spark).job is None
    of_copy = copy.read(spark).select("partition", "offset", "value").where("partition = 0").orderBy("offset").collect()
    numbers = [int(bytes(row.value)[1:]) for row in of_copy]
    assert numbers == sorted(numbers)


def test_another_topic_of_the_same_name_gets_everything(
    spark: SparkSession, topic_with: Callable[..., Topic], tmp_path: Path
) -> None:
    topic, copy = topic_with(4), topic_with(0)
    load(topic.name, topic.bootstrap_servers, tmp_path, spark=spark)
    assert export(tmp_path, copy.name, topic.bootstrap_servers, spark=spark).rows == 4
    with Client(topic.bootstrap_servers) as client:
        delete_topics(client, [copy.name])
        create_topic(client, NewTopic(copy.name, 1))
    assert export(tmp_path, copy.name, topic.bootstrap_servers, spark=spark).rows == 4
    with Broker() as other:
        assert export(tmp_path, copy.name, other.bootstrap_servers, spark=spark).rows == 4
        assert export(tmp_path, copy.name, other.bootstrap_servers, spark=spark).job is None


def test_rows_that_leave_the_quarantine_are_sent_then(
    spark: SparkSession, topic_with: Callable[..., Topic], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, copy = topic_with(0), topic_with(0)
    servers = topic.bootstrap_servers
    send(topic, b"#" + flight(0), b"", b"#" + flight(2))
    assert load(topic.name, servers, tmp_path, spark=spark, shape=Shape("json", "number INT")).quarantined == 3
    assert export(tmp_path, copy.name, servers, spark=spark).job is None
    mended = Shape("json", "number INT", skip_bytes=1)
    assert load(topic.name, servers, tmp_path, spark=spark, shape=mended, from_ms=0).quarantined == 1
    monkeypatch.setattr(export_module, "MAX_CONDITIONS", 1)
    assert export(tmp_path, copy.name, servers, spark=spark).rows == 2
    values = [json.loads(bytes(row.value)) for row in copy.read(spark).collect()]
    assert sorted(values, key=str) == [json.loads(flight(0)), json.loads(flight(2))]  # with the field of no column
    assert export(tmp_path, copy.name, servers, spark=spark).job is None


def test_decoded_columns_are_sent_as_json_with_the_fields_that_had_no_column(
    spark: SparkSession, topic_with: Callable[..., Topic], tmp_path: Path
) -> None:
    topic, copy = topic_with(0), topic_with(0)
    send(topic, flight(1, more=[1, 2]), None, b'{"only": "other"}')
    load(topic.name, topic.bootstrap_servers, tmp_path, spark=spark, shape=Shape("json", "number INT, tail STRING"))
    export(tmp_path, copy.name, topic.bootstrap_servers, spark=spark)
    values = [row.value for row in copy.read(spark).orderBy("offset").collect()]
    assert [value and json.loads(bytes(value)) for value in values] == [
        {"number": 1, "tail": "N1", "more": [1, 2]},
        None,
        {"only": "other"},
    ]
