"""Values by a schema registry: one by one, as columns, and in Spark, in three formats, beside what reads them today.

Ours are read from a topic of two ids. Spark's functions know one schema: their topic has records of one id, behind
bytes that they cut off. Both sides have to find the same number of records, and the same sum, before they are timed.
"""

from __future__ import annotations

import io
import json
import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tests.peers.jars import SPARK_AVRO, jars_of
from tests.unit.schemas.fake_registry import fake_registry
from tests.unit.schemas.memory_registry import MemoryRegistry

from bench.options import progress
from bench.report import Comparison, Figures, paired
from bench.spark_processes import cpu_seconds

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from bench.options import Options
    from oncelog.schemas import Registry, Schema

COUNT: Final = 1_000_000
_DISTINCT: Final = 20_000
_BATCH: Final = 2_000
SCHEMA_GOALS: Final = {"Avro, columns: values/s": "≥ 1.5 ×", "Avro, Spark: rows/s": "≥ 1.5 ×"}
_OPTIONAL: Final = ["null", "int"]
_FIELDS: Final[list[tuple[str, Any]]] = [
    *((name, "int") for name in ("year", "month", "day", "flight")),
    *((name, _OPTIONAL) for name in ("dep_time", "dep_delay", "arr_delay")),
    *((name, "string") for name in ("carrier", "origin", "dest")),
    ("tailnum", ["null", "string"]),
    ("distance", "double"),
    ("at", {"type": "long", "logicalType": "timestamp-millis"}),
    ("id", "long"),
    ("weather", ["null", {"type": "record", "name": "W", "fields": [{"name": "t", "type": "double"}]}]),
]
OLD: Final = {"type": "record", "name": "Flight", "fields": [{"name": name, "type": kind} for name, kind in _FIELDS]}
NEW: Final = {**OLD, "fields": [*OLD["fields"], {"name": "note", "type": ["null", "string"], "default": None}]}
_PROTO: Final = """syntax = "proto3";
message Flight {
  int32 year = 1; int32 month = 2; int32 day = 3; int32 flight = 4;
  optional int32 dep_time = 5; optional int32 dep_delay = 6; optional int32 arr_delay = 7;
  string carrier = 8; string origin = 9; string dest = 10; optional string tailnum = 11;
  double distance = 12; int64 at = 13; int64 id = 14; message Weather { double t = 1; } Weather weather = 15;
"""
PROTOS: Final = (_PROTO + "}", _PROTO + "optional string note = 16; }")
_JSON_TYPES: Final = {"int": "integer", "long": "integer", "string": "string", "double": "number"}
_SQL_TYPES: Final = {"integer": "BIGINT", "string": "STRING", "number": "DOUBLE"}


def _json_type(kind: Any) -> str:
    return _JSON_TYPES[kind[1] if isinstance(kind, list) else kind["type"] if isinstance(kind, dict) else kind]


_PLAIN: Final = {name: _json_type(kind) for name, kind in _FIELDS if name != "weather"}
_WEATHER: Final = {"type": "object", "properties": {"t": {"type": "number"}}}
_PROPERTIES: Final = {**{name: {"type": kind} for name, kind in _PLAIN.items()}, "weather": _WEATHER}
JSONS: Final = tuple(
    json.dumps({"title": "Flight", "type": "object", "properties": properties})
    for properties in (_PROPERTIES, {**_PROPERTIES, "note": {"type": "string"}})
)
_DDL: Final = ", ".join(
    [*(f"{name} {_SQL_TYPES[kind]}" for name, kind in _PLAIN.items()), "weather STRUCT<t: DOUBLE>", "note STRING"]
)


def _flight(chance: random.Random, number: int) -> dict[str, Any]:
    cancelled = chance.random() < 0.03
    times = dict.fromkeys(("dep_time", "dep_delay", "arr_delay"), None if cancelled else chance.randint(-30, 2359))
    return {
        "year": 2013,
        "month": chance.randint(1, 12),
        "day": chance.randint(1, 28),
        "flight": number % 8000,
        **times,
        "carrier": chance.choice(["UA", "AA", "B6"]),
        "origin": "EWR",
        "dest": chance.choice(["IAH", "MIA"]),
        "tailnum": None if cancelled else f"N{chance.randint(0, 99999):05}",
        "distance": float(chance.randint(100, 3000)),
        "at": 1_370_000_000_000 + number,
        "id": chance.getrandbits(62),
        "weather": None if chance.random() < 0.1 else {"t": number / 2},
        "note": "late" if chance.random() < 0.1 else None,
    }


def encoded(schema: Any, schema_id: int) -> list[bytes]:
    """Different values of a schema, as Confluent's serializers frame them."""
    import fastavro

    chance, parsed, values = random.Random(1), fastavro.parse_schema(schema), []
    for number in range(_DISTINCT):
        out = io.BytesIO(b"\0" + schema_id.to_bytes(4, "big"))
        out.seek(5)
        fastavro.schemaless_writer(out, parsed, _flight(chance, number))
        values.append(out.getvalue())
    return values


class _Format(NamedTuple):
    """Values under two schemas, and how Spark decodes those of the newer one; None: Maven lacks its package."""

    name: str
    subject: str
    old: list[bytes]
    new: list[bytes]
    decode: Callable[[DataFrame], DataFrame] | None


def _avro(registry: Registry) -> _Format:
    from oncelog.schemas import Schema

    old, new = (encoded(schema, registry.register("avro-value", Schema(json.dumps(schema)))) for schema in (OLD, NEW))
    return _Format("Avro", "avro", old, new, _by_from_avro)


def _protobuf(registry: Registry) -> _Format:
    from oncelog.schemas import Schema, SchemaType

    old, new = (_written(registry, "protobuf-value", Schema(text, SchemaType.PROTOBUF)) for text in PROTOS)
    return _Format("Protobuf", "protobuf", old, new, None)


def _json(registry: Registry) -> _Format:
    from oncelog.schemas import Schema, SchemaType

    old, new = (_written(registry, "json-value", Schema(text, SchemaType.JSON)) for text in JSONS)
    return _Format("JSON", "json", old, new, _by_from_json)


_FORMATS: Final = {"avro": _avro, "protobuf": _protobuf, "json": _json}
"""By the words of ``--only``; another word leaves Spark out."""


def _written(registry: Registry, subject: str, schema: Schema) -> list[bytes]:
    from oncelog.schemas import Encoder

    encoder, chance, values = Encoder(registry, subject, schema, register=True), random.Random(1), []
    for number in range(_DISTINCT):
        flight = {name: value for name, value in _flight(chance, number).items() if value is not None}
        if "note" not in schema.text:
            flight.pop("note", None)
        values.append(encoder.encode(flight).data)
    return values


def _by_from_avro(frame: DataFrame) -> DataFrame:
    from oncelog.spark import decode_values

    return decode_values(frame, "avro", json.dumps(NEW), skip_bytes=5)


def _by_from_json(frame: DataFrame) -> DataFrame:
    from oncelog.spark import decode_values

    return decode_values(frame, "json", _DDL, skip_bytes=5)


def _fill(servers: str, topic: str, values: list[bytes], count: int) -> None:
    from oncelog.admin.topics import NewTopic, create_topic
    from oncelog.base.ids import TopicName, TopicPartition
    from oncelog.client.blocking import Client
    from oncelog.records.builder import build_batch
    from oncelog.records.record import Record

    now_ms = int(time.time() * 1000)  # records of 1970 would be old enough to be deleted meanwhile
    with Client(servers) as client:
        create_topic(client, NewTopic(topic, 1))
        for first in range(0, count, _BATCH):
            records = [
                Record(-1, now_ms, None, values[number % len(values)]) for number in range(first, first + _BATCH)
            ]
            client.produce(TopicPartition(TopicName(topic), 0), build_batch(records))


def _seconds(run: Callable[[], object], clock: Callable[[], float] = time.perf_counter) -> float:
    started = clock()
    run()
    return clock() - started


@contextmanager
def _spark() -> Iterator[SparkSession]:
    from oncelog.spark.session.local_session import local_session

    with local_session(master="local[2]", config={"spark.jars": ",".join(map(str, jars_of(SPARK_AVRO)))}) as spark:
        spark.sparkContext.setLogLevel("ERROR")
        yield spark


class _Queries:
    """The same values by both sides in Spark."""

    def __init__(self, spark: SparkSession, servers: str, registry_url: str, count: int) -> None:
        self._spark, self._servers, self._url, self._count = spark, servers, registry_url, count

    def ours(self, kind: _Format) -> DataFrame:
        settings = {"valueSchema.registry": self._url, "valueSchema.subject": f"{kind.subject}-value"}
        return self._read(f"{kind.subject}-mixed", settings)

    def theirs(self, kind: _Format) -> DataFrame | None:
        return kind.decode and kind.decode(self._read(f"{kind.subject}-alone", {}))

    def _read(self, topic: str, settings: dict[str, str]) -> DataFrame:
        reader = self._spark.read.format("oncelog").option("kafka.bootstrap.servers", self._servers)
        return reader.options(subscribe=topic, **settings).load()

    def check(self, kind: _Format) -> None:
        """Both sides read all records. The JVM compiles meanwhile."""
        for frame in filter(None, (self.ours(kind), self.theirs(kind))):
            counted = frame.selectExpr("count(value.id)", "sum(value.distance)").collect()[0]
            expected = self._count, _distances(self._count)
            if tuple(counted) != expected:
                raise RuntimeError(f"{kind.name}: read {tuple(counted)} instead of {expected}")

    def figures(self, name: str, frame: DataFrame) -> dict[str, float]:
        """All fields are decoded, and nothing is kept."""
        jvm = self._spark.sparkContext._gateway.proc.pid  # type: ignore[union-attr]  # a local session has one
        writer = frame.select("value.*").write.format("noop").mode("overwrite")
        cpu = cpu_seconds(jvm)
        seconds = _seconds(writer.save)
        used = (cpu_seconds(jvm) - cpu) / self._count * 1e6
        return {f"{name}, Spark: rows/s": self._count / seconds, f"{name}, Spark: CPU µs a row": used}


def _distances(count: int) -> float:
    chance = random.Random(1)
    distances: list[float] = [_flight(chance, number)["distance"] for number in range(_DISTINCT)]
    return sum(distances) * (count // _DISTINCT)


def schemas(options: Options) -> Comparison:
    """Values by a registry beside fastavro, confluent-kafka's deserializer and Spark's from_avro, from_json."""
    import fastavro
    import numpy as np
    import pyarrow as pa
    from confluent_kafka.schema_registry import SchemaRegistryClient
    from confluent_kafka.schema_registry.avro import AvroDeserializer
    from confluent_kafka.serialization import MessageField, SerializationContext

    from oncelog.schemas import Decoder, Registry
    from oncelog.schemas.columns.avro import AvroDecoder
    from oncelog.testing import Broker

    count = max(2 * _DISTINCT, options.scaled(COUNT) // (2 * _DISTINCT) * 2 * _DISTINCT)
    others = "fastavro, confluent-kafka, from_avro, from_json"
    comparison = Comparison("Values by a schema registry", "oncelog", others, SCHEMA_GOALS)
    parsed = fastavro.parse_schema(NEW)
    names = [name for name in options.only or _FORMATS if name in _FORMATS]
    in_spark: Any = _spark() if names else nullcontext()
    with Broker() as broker, fake_registry(MemoryRegistry()) as fake, Registry(fake.url) as registry, in_spark as spark:
        kinds = [_FORMATS[name](registry) for name in names]
        queries = _Queries(spark, broker.bootstrap_servers, fake.url, count)
        for kind in kinds:
            mixed = [value for pair in zip(kind.old, kind.new, strict=True) for value in pair]
            _fill(broker.bootstrap_servers, f"{kind.subject}-mixed", mixed, count)
            _fill(broker.bootstrap_servers, f"{kind.subject}-alone", kind.new, count)
            queries.check(kind)
        new = _avro(registry).new
        array, starts = pa.array(new, pa.binary()), np.full(len(new), 5)
        columns, decoder = AvroDecoder(parsed), Decoder(registry)
        deserializer = AvroDeserializer(SchemaRegistryClient({"url": fake.url}))
        context = SerializationContext("avro", MessageField.VALUE, [])

        def row_by_row() -> object:
            return pa.array([fastavro.schemaless_reader(io.BytesIO(value[5:]), parsed) for value in new], columns.type)

        def figures(
            as_columns: Callable[[], object],
            decode: Callable[[bytes], object],
            query: Callable[[_Format], DataFrame | None],
        ) -> Figures:
            measured = {
                "Avro, columns: values/s": len(new) / _seconds(as_columns, time.thread_time),
                "Avro, row by row: values/s": len(new) / _seconds(lambda: [*map(decode, new)], time.thread_time),
            }
            for kind in kinds:
                if (frame := query(kind)) is not None:
                    measured |= queries.figures(kind.name, frame)
            return measured

        def ours(_: int) -> Figures:
            return figures(lambda: columns.decode(array, starts), decoder.decode, queries.ours)

        def theirs(_: int) -> Figures:
            return figures(row_by_row, lambda value: deserializer(value, context), queries.theirs)

        return paired(comparison, (ours, theirs), options.repeat, progress)
