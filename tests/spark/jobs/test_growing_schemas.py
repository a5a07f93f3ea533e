"""Loads and streams by a registry into Delta and Iceberg while schemas grow: each commit has one schema, a field of a
record is never left out, and no record is lost or twice."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

from oncelog.schemas.client.registry import Registry
from oncelog.schemas.schema import Schema
from oncelog.schemas.values.encoding import Encoder
from oncelog.spark.jobs.load_report import Event, LoadReport
from oncelog.spark.jobs.shape import Shape
from oncelog.spark.jobs.stream_query import StreamRequest
from oncelog.spark.registry_values.decoding import RegistryDecoding
from oncelog.spark.session.errors import OptionError
from oncelog.spark.table.directory import TableError
from oncelog.spark.targets.entry import load, stream
from tests.spark.conftest import Topic
from tests.spark.jobs.test_shaped_load import send
from tests.unit.schemas.fake_registry import fake_registry
from tests.unit.schemas.memory_registry import MemoryRegistry
from tests.unit.spark.targets.tables import Lake

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [
    pytest.mark.integration,
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.filterwarnings(
        "ignore::ResourceWarning"
    ),  # pyiceberg leaves its catalogs' connections to the collector
]
Lakes = Callable[[str], Lake]
KINDS = ("delta", "iceberg-rest")


class Died(Exception):
    """The load, where the test wants it."""


@pytest.fixture
def registry() -> Iterator[Registry]:
    with fake_registry(MemoryRegistry()) as fake, Registry(fake.url) as client:
        yield client


class Producer:
    """Writes records with the first fields of a schema that grows: f0, f1, …, each of the number of the record."""

    def __init__(self, topic: Topic, registry: Registry) -> None:
        self._topic, self._registry = topic, registry
        self.written: list[dict[str, object]] = []

    def write(self, count: int, fields: int, kind: str = "long") -> None:
        names = [f"f{number}" for number in range(fields)]
        described = [{"name": name, "type": ["null", kind], "default": None} for name in names]
        schema = Schema(json.dumps({"type": "record", "name": "R", "fields": described}))
        encoder = Encoder(self._registry, f"{self._topic.name}-value", schema, register=True)
        first = len(self.written)
        to_value = str if kind == "string" else int
        rows = [dict.fromkeys(names, to_value(number)) for number in range(first, first + count)]
        self.written += rows
        send(self._topic, *(encoder.encode(row).data for row in rows))


def shape_of(topic: Topic, registry: Registry) -> Shape:
    decoding = RegistryDecoding.resolve(registry.settings.urls[0], subject=f"{topic.name}-value")
    return Shape("avro", registry=decoding)


def rows_of(place: Lake) -> list[dict[str, Any]]:
    """The rows' fields that are not null, in the order of offsets; each offset is there once."""
    columns = place.open().columns()
    if columns is None:
        return []
    names = [name for name in columns.names if name.startswith("f")]
    rows = place.rows("offset", *names)
    assert [row[0] for row in rows] == list(range(len(rows)))
    return [{name: value for name, value in zip(names, row[1:], strict=True) if value is not None} for row in rows]


@pytest.mark.parametrize("kind", ["delta", pytest.param("iceberg-rest", marks=pytest.mark.long)])
@pytest.mark.parametrize(
    "point",
    [pytest.param("writing", marks=pytest.mark.long), "publishing", pytest.param("committed", marks=pytest.mark.long)],
)
def test_a_load_that_died_goes_on_by_a_newer_schema(
    spark: SparkSession, topic_with: Callable[..., Topic], lake: Lakes, registry: Registry, kind: str, point: str
) -> None:
    topic, place = topic_with(0, partitions=1), lake(kind)
    producer = Producer(topic, registry)

    def run(die_at: str = "") -> int:
        def on_event(event: Event) -> None:
            if event.kind == die_at:
                raise Died

        return load(
            topic.name,
            topic.bootstrap_servers,
            place.to,
            spark=spark,
            rows_per_step=4,
            shape=shape_of(topic, registry),
            on_event=on_event,
            catalog=place.catalog,
            storage_options=place.options,
        ).rows

    producer.write(6, 1)
    with pytest.raises(Died):
        run(point)
    committed = len(rows_of(place))
    assert committed == (4 if point == "committed" else 0)
    producer.write(3, 2)
    assert run() == 9 - committed
    producer.write(2, 1)
    producer.write(2, 3)
    assert run() == 4
    assert run() == 0
    assert rows_of(place) == producer.written


@pytest.mark.parametrize("kind", KINDS)
def test_a_schema_registered_between_the_start_and_the_plan_is_taken(
    spark: SparkSession, topic_with: Callable[..., Topic], lake: Lakes, registry: Registry, kind: str
) -> None:
    topic, place = topic_with(0, partitions=1), lake(kind)
    producer = Producer(topic, registry)
    producer.write(1, 1)
    shape = shape_of(topic, registry)
    producer.write(1, 2)
    arguments = {"spark": spark, "catalog": place.catalog, "storage_options": place.options, "shape": shape}
    assert load(topic.name, topic.bootstrap_servers, place.to, **arguments).rows == 2  # type: ignore[arg-type]
    assert rows_of(place) == producer.written


@pytest.mark.parametrize("kind", [pytest.param("delta", marks=pytest.mark.long), "iceberg-rest"])
def test_a_stream_takes_new_fields_from_the_first_record_that_has_them(
    spark: SparkSession, topic_with: Callable[..., Topic], lake: Lakes, registry: Registry, kind: str
) -> None:
    topic, place = topic_with(0, partitions=1), lake(kind)
    producer = Producer(topic, registry)
    producer.write(3, 1)
    grown = threading.Event()

    def grow(event: Event) -> None:
        # While a batch is written, records of the next schema arrive.
        if event.kind == "writing" and not grown.is_set():
            grown.set()
            producer.write(3, 2)

    def on_batch(report: LoadReport) -> None:
        if report.rows == 6:
            producer.write(2, 4)
        if report.rows >= 8:
            how.stop.set()

    how = StreamRequest("200 milliseconds", on_batch=on_batch, on_event=grow)
    arguments = {"spark": spark, "catalog": place.catalog, "storage_options": place.options}
    shape = shape_of(topic, registry)
    report = stream(topic.name, topic.bootstrap_servers, place.to, how, shape=shape, **arguments)  # type: ignore[arg-type]
    assert (report.rows, report.new_columns) == (8, ["f1", "f2", "f3"])
    assert rows_of(place) == producer.written
    producer.write(1, 5)
    how = StreamRequest("available-now")
    report = stream(topic.name, topic.bootstrap_servers, place.to, how, shape=shape, **arguments)  # type: ignore[arg-type]
    assert report.rows == 1
    assert rows_of(place) == producer.written


def test_a_schema_that_the_table_cannot_take_ends_the_stream_before_its_records(
    spark: SparkSession, topic_with: Callable[..., Topic], lake: Lakes, registry: Registry
) -> None:
    topic, place = topic_with(0, partitions=1), lake("iceberg-rest")
    producer = Producer(topic, registry)
    producer.write(2, 1)

    def on_batch(report: LoadReport) -> None:
        producer.write(1, 1, "string")

    how = StreamRequest("200 milliseconds", on_batch=on_batch)
    arguments = {"spark": spark, "catalog": place.catalog, "storage_options": place.options}
    with pytest.raises((OptionError, TableError), match="column 'f0' is bigint in the table and string in the schema"):
        stream(
            topic.name,
            topic.bootstrap_servers,
            place.to,
            how,
            shape=shape_of(topic, registry),
            **arguments,  # type: ignore[arg-type]
        )
    assert rows_of(place) == producer.written[:2]
