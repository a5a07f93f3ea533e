"""Values by a schema registry: typed columns in queries and tables, several ids in a topic, schemas that change.

The examples of docs/spark-source.md and docs/jobs.md are run here.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from oncelog.schemas.client.registry import Registry
from oncelog.schemas.schema import Schema, SchemaType
from oncelog.schemas.values.encoding import Encoder
from oncelog.spark import load
from oncelog.spark.jobs.load_report import Event
from oncelog.spark.jobs.shape import Shape
from oncelog.spark.registry_values.decoding import RegistryDecoding
from tests.spark.conftest import Topic
from tests.spark.jobs.test_shaped_load import send
from tests.spark.jobs.test_targets import Died, rows_in
from tests.unit.schemas.fake_registry import fake_registry
from tests.unit.schemas.memory_registry import MemoryRegistry

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]


@pytest.fixture
def registry() -> Iterator[Registry]:
    with fake_registry(MemoryRegistry()) as fake, Registry(fake.url) as client:
        yield client


def avro(*fields: tuple[str, Any] | dict[str, Any]) -> Schema:
    described = [field if isinstance(field, dict) else {"name": field[0], "type": field[1]} for field in fields]
    return Schema(json.dumps({"type": "record", "name": "Order", "fields": described}))


AT = {"type": "long", "logicalType": "timestamp-millis"}
PRICE = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}
FIRST = avro(("id", "int"), ("at", AT))
SECOND = avro(
    ("id", "int"),
    ("at", AT),
    {"name": "price", "type": ["null", PRICE], "default": None},
    {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["NEW", "PAID"]}, "default": "NEW"},
    {"name": "tags", "type": {"type": "array", "items": "string"}, "default": []},
)


def encoder(registry: Registry, topic: Topic, schema: Schema, **settings: Any) -> Encoder:
    return Encoder(registry, f"{topic.name}-value", schema, register=True, **settings)


def url(registry: Registry) -> str:
    return registry.settings.urls[0]


def read(spark: SparkSession, topic: Topic, registry: Registry, **options: str) -> DataFrame:
    return topic.read(spark, **{"valueSchema.registry": url(registry), **options})


def test_topic_of_two_ids_is_one_frame_with_error_rows(
    spark: SparkSession, topic_with: Callable[..., Topic], registry: Registry
) -> None:
    topic = topic_with(0, partitions=1)
    old, new = encoder(registry, topic, FIRST), encoder(registry, topic, SECOND)
    rich = {"id": 2, "at": 1_000, "price": "1.50", "state": "PAID", "tags": ["a"]}
    bad = b"\0\0\0\0\1\x80"
    send(topic, old.encode({"id": 1, "at": 0}).data, new.encode(rich).data, bad, None)
    frame = read(spark, topic, registry)
    assert frame.select("value.*").schema.simpleString() == (
        "struct<id:int,at:timestamp,price:decimal(9,2),state:string,tags:array<string>>"
    )
    fields = "offset, value.id, value.at.value, cast(value.price AS STRING) price, value.state, value.tags, value_error"
    fields = fields.replace("value.at.value", "unix_millis(value.at) at")
    rows = [tuple(row) for row in frame.orderBy("offset").selectExpr(*fields.split(", "), "value_bytes").collect()]
    assert rows == [
        (0, 1, 0, None, "NEW", [], None, None),
        (1, 2, 1_000, "1.50", "PAID", ["a"], None, None),
        (2, None, None, None, None, None, "schema 1: the bytes end within a value", bad),
        (3, None, None, None, None, None, None, None),
    ]
    first = read(spark, topic, registry, **{"valueSchema.version": "1"})
    assert first.schema["value"].dataType.simpleString() == "struct<id:int,at:timestamp>"
    assert [row.id for row in first.orderBy("offset").select("value.id").collect()] == [1, 2, None, None]
    with pytest.raises(Exception, match=r"at offset 2: schema 1: the bytes end within a value"):
        read(spark, topic, registry, badRecords="fail").collect()


def test_no_password_is_in_spark_s_plans_and_errors(
    spark: SparkSession, topic_with: Callable[..., Topic], registry: Registry, tmp_path: Path
) -> None:
    topic = topic_with(0, partitions=1)
    send(topic, encoder(registry, topic, FIRST).encode({"id": 1, "at": 0}).data)
    secret = "hush-4711"
    with_login = url(registry).replace("http://", f"http://user:{secret}@")
    settings = {"basic.auth.user.info": f"user:{secret}"}
    decoding = RegistryDecoding.resolve(url(registry), settings, subject=f"{topic.name}-value")
    for options in ({"valueSchema.registry.url": with_login}, {decoding.option_name: decoding.option()}):
        assert secret in str(options)
        reader = spark.readStream.format("oncelog").option("kafka.bootstrap.servers", topic.bootstrap_servers)
        frame = reader.options(subscribe=topic.name, startingOffsets="earliest", **options).load()
        plan = frame._jdf.queryExecution().toString()
        assert "StreamingRelationV2" in plan
        assert secret not in plan
        failing = frame.selectExpr("raise_error(topic)").writeStream.format("noop").trigger(availableNow=True)
        query = failing.option("checkpointLocation", str(tmp_path / str(len(options)) / next(iter(options)))).start()
        with pytest.raises(Exception, match=topic.name) as failed:
            query.awaitTermination()
        assert secret not in str(failed.value)
        assert secret not in str(query.exception())
        rows = topic.read(spark, **options)
        assert rows.count() == 1
        assert secret not in rows._jdf.queryExecution().toString()
    for name, value in (("registry", with_login), ("basic.auth.user.info", f"user:{secret}")):
        options = {"valueSchema.registry": url(registry), f"valueSchema.{name}": value}
        with pytest.raises(Exception, match=r"give valueSchema\.registry\.url as") as refused:
            topic.read(spark, **options).collect()
        assert secret not in str(refused.value)


@pytest.mark.integration
def test_load_takes_new_fields_as_they_come_each_record_once(
    spark: SparkSession, topic_with: Callable[..., Topic], registry: Registry, tmp_path: Path
) -> None:
    topic, place = topic_with(0, partitions=1), tmp_path / "table"
    old = encoder(registry, topic, FIRST)
    send(topic, *(old.encode({"id": number, "at": number}).data for number in range(4)), b"bad", None)

    def run(die_when: str = "") -> tuple[int, int]:
        def on_event(event: Event) -> None:
            if event.kind == die_when:
                raise Died

        decoding = RegistryDecoding.resolve(url(registry), subject=f"{topic.name}-value")
        shape = Shape("avro", partition_by="day", registry=decoding)
        report = load(
            topic.name, topic.bootstrap_servers, f"delta:{place}", spark=spark, shape=shape, on_event=on_event
        )
        return report.rows, report.quarantined

    assert run() == (5, 1)
    new = encoder(registry, topic, SECOND)
    rich = {"id": 10, "at": 10, "price": "1.50", "state": "PAID", "tags": ["a", "b"]}
    send(topic, new.encode(rich).data, old.encode({"id": 11, "at": 11}).data)
    with pytest.raises(Died):
        run(die_when="writing")
    assert run() == (2, 0)
    assert run() == (0, 0)
    rows = sorted(rows_in("delta", place).to_pylist(), key=lambda row: row["offset"])
    assert [(row["offset"], row["id"]) for row in rows] == [(0, 0), (1, 1), (2, 2), (3, 3), (5, None), (6, 10), (7, 11)]
    assert [(row["state"], row["tags"]) for row in rows[-3:]] == [(None, None), ("PAID", ["a", "b"]), ("NEW", [])]
    assert str(rows[5]["price"]) == "1.50"


PROTO = """syntax = "proto3"; import "google/protobuf/timestamp.proto";
message Order { int32 id = 1; google.protobuf.Timestamp at = 2; map<string, uint64> counts = 3; repeated L lines = 4;
  message L { string sku = 1; } }
"""


@pytest.mark.integration
def test_protobuf_into_a_directory_of_parquet_files(
    spark: SparkSession, topic_with: Callable[..., Topic], registry: Registry, tmp_path: Path
) -> None:
    topic = topic_with(0, partitions=1)
    write = encoder(registry, topic, Schema(PROTO, SchemaType.PROTOBUF))
    full = {"id": 1, "at": "1900-01-01T00:00:00.5Z", "counts": {"a": 2**64 - 1}, "lines": [{"sku": "x"}, {}]}
    send(topic, write.encode(full).data, write.encode({}).data)
    command = [sys.executable, "-c", "from oncelog.cli.main import run; run()", "load", topic.name, "--json"]
    command += ["--to", str(tmp_path / "t"), "--value-format", "protobuf", "--registry", url(registry)]
    done = subprocess.run([*command, "--bootstrap-servers", topic.bootstrap_servers], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert (report["rows"], report["quarantined"]) == (2, 0)
    rows = spark.read.parquet(str(tmp_path / "t")).orderBy("offset")
    taken = rows.selectExpr("id", "unix_micros(at) at", "cast(counts['a'] AS STRING) a", "lines.sku sku").collect()
    assert [tuple(row) for row in taken] == [
        (1, -2_208_988_799_500_000, str(2**64 - 1), ["x", ""]),
        (0, None, None, []),
    ]


@pytest.mark.integration
def test_stream_keeps_the_schema_of_its_start(
    spark: SparkSession, topic_with: Callable[..., Topic], registry: Registry, tmp_path: Path
) -> None:
    topic = topic_with(0, partitions=1)
    old = encoder(registry, topic, FIRST)
    send(topic, old.encode({"id": 1, "at": 0}).data)

    def run() -> None:
        reader = spark.readStream.format("oncelog").option("kafka.bootstrap.servers", topic.bootstrap_servers)
        reader = reader.options(subscribe=topic.name, startingOffsets="earliest")
        frame = reader.option("valueSchema.registry", url(registry)).load()
        new = encoder(registry, topic, SECOND)  # registered after the query has its schema
        send(topic, new.encode({"id": 2, "at": 0, "price": None, "state": "PAID", "tags": []}).data)
        writer = frame.selectExpr("offset", "value.*", "value_error").writeStream.format("parquet")
        writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).option(
            "path", str(tmp_path / "rows")
        )
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()

    run()
    rows = spark.read.parquet(str(tmp_path / "rows")).orderBy("offset")
    assert rows.columns == ["offset", "id", "at", "value_error"]
    assert [(row.offset, row.id, row.value_error) for row in rows.collect()] == [(0, 1, None), (1, 2, None)]
    run()
    merged = spark.read.option("mergeSchema", "true").parquet(str(tmp_path / "rows")).orderBy("offset")
    assert [(row.id, row.state) for row in merged.collect()] == [(1, None), (2, None), (2, "PAID")]
