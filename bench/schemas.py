"""Avro values to columns: by a schema registry, two ids mixed, beside fastavro value by value and Spark's `from_avro`.

`from_avro` knows one schema, so its topic has records of one id alone, behind five bytes that it cuts off.
"""

from __future__ import annotations

import io
import json
import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from tests.peers.jars import SPARK_AVRO, jars_of
from tests.unit.schemas.fake_registry import fake_registry
from tests.unit.schemas.memory_registry import MemoryRegistry

from bench.options import progress
from bench.report import Comparison, Figures, paired

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from bench.options import Options

COUNT: Final = 1_000_000
_DISTINCT: Final = 20_000
_BATCH: Final = 2_000
SCHEMA_GOALS: Final = {"values/s alone": "≥ 1.5 ×", "rows/s in Spark": "≥ 1.5 ×"}
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
            records = [Record(-1, now_ms, None, values[number % len(values)]) for number in range(first, first + _BATCH)]
            client.produce(TopicPartition(TopicName(topic), 0), build_batch(records))


def _seconds(run: Callable[[], object]) -> float:
    started = time.perf_counter()
    run()
    return time.perf_counter() - started


@contextmanager
def _spark() -> Iterator[SparkSession]:
    from oncelog.spark.session.local_session import local_session

    with local_session(master="local[2]", config={"spark.jars": ",".join(map(str, jars_of(SPARK_AVRO)))}) as spark:
        spark.sparkContext.setLogLevel("ERROR")
        yield spark


def schemas(options: Options) -> Comparison:
    """Avro values of a registry to columns, beside fastavro value by value and Spark's from_avro."""
    import fastavro
    import numpy as np
    import pyarrow as pa

    from oncelog.schemas import Registry, Schema
    from oncelog.schemas.columns.avro import AvroDecoder
    from oncelog.spark import decode_values
    from oncelog.testing import Broker

    count = max(_BATCH, options.scaled(COUNT) // _BATCH * _BATCH)
    comparison = Comparison("Avro values to columns", "oncelog", "fastavro, from_avro", SCHEMA_GOALS)
    parsed = fastavro.parse_schema(NEW)
    with Broker() as broker, fake_registry(MemoryRegistry()) as fake, Registry(fake.url) as registry, _spark() as spark:
        ids = [registry.register("mixed-value", Schema(json.dumps(schema))) for schema in (OLD, NEW)]
        old, new = (encoded(schema, number) for schema, number in zip((OLD, NEW), ids, strict=True))
        mixed = [value for pair in zip(old, new, strict=True) for value in pair]
        _fill(broker.bootstrap_servers, "mixed", mixed, count)
        _fill(broker.bootstrap_servers, "alone", new, count)
        array, starts = pa.array(new, pa.binary()), np.full(len(new), 5)
        decoder = AvroDecoder(parsed)

        def written(topic: str, **settings: str) -> Callable[[], object]:
            reader = spark.read.format("oncelog").option("kafka.bootstrap.servers", broker.bootstrap_servers)
            frame = reader.options(subscribe=topic, **settings).load()
            if not settings:
                frame = decode_values(frame, "avro", json.dumps(NEW), skip_bytes=5)
            return frame.select("value.*").write.format("noop").mode("overwrite").save

        def row_by_row() -> object:
            return pa.array([fastavro.schemaless_reader(io.BytesIO(value[5:]), parsed) for value in new], decoder.type)

        def ours(_: int) -> Figures:
            in_spark = _seconds(written("mixed", **{"valueSchema.registry": fake.url}))
            alone = _seconds(lambda: decoder.decode(array, starts))
            return {"values/s alone": len(new) / alone, "rows/s in Spark": count / in_spark}

        def theirs(_: int) -> Figures:
            in_spark = _seconds(written("alone"))
            return {"values/s alone": len(new) / _seconds(row_by_row), "rows/s in Spark": count / in_spark}

        for warm_up in (ours, theirs):  # the JVM compiles
            warm_up(0)
        return paired(comparison, (ours, theirs), options.repeat, progress)
