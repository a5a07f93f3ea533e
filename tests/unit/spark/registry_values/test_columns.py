"""Fields of values as columns of a table, which has columns of its own."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
import pytest

from oncelog.schemas.client.registry import Registry
from oncelog.schemas.schema import Schema
from oncelog.schemas.values.encoding import Encoder
from oncelog.spark.jobs.shape import Shape, schema_columns
from oncelog.spark.registry_values.decoder import RegistryDecoder
from oncelog.spark.registry_values.decoding import RegistryDecoding
from oncelog.spark.session.errors import OptionError
from tests.unit.schemas.fake_registry import fake_registry
from tests.unit.schemas.memory_registry import MemoryRegistry

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

FRAME = cast("DataFrame", None)  # the registry has the schema


def avro(*names: str) -> Schema:
    fields = [{"name": name, "type": "long"} for name in names]
    return Schema(json.dumps({"type": "record", "name": "R", "fields": fields}))


def test_a_field_named_like_a_column_of_the_table_has_a_column_of_its_own() -> None:
    with fake_registry(MemoryRegistry()) as fake, Registry(fake.url) as registry:
        encoder = Encoder(registry, "r-value", avro("id", "timestamp", "Day"), register=True)
        decoding = RegistryDecoding.resolve(fake.url, subject="r-value")
        columns = schema_columns(FRAME, Shape("avro", registry=decoding))
        assert columns is not None
        assert columns.simpleString() == "struct<id:bigint,value_timestamp:bigint,value_Day:bigint>"
        value = encoder.encode({"id": 1, "timestamp": 2, "Day": 3}).data
        own = {"value": pa.array([value, None], pa.binary()), "timestamp": pa.array([7, 8])}
        rows: Any = RegistryDecoder(decoding.with_columns(columns)).decode(pa.RecordBatch.from_pydict(own))
        rows = rows.drop_columns(["value", "_bad"])
        assert rows.to_pylist() == [
            {"timestamp": 7, "id": 1, "value_timestamp": 2, "value_Day": 3},
            {"timestamp": 8, "id": None, "value_timestamp": None, "value_Day": None},
        ]


def test_two_fields_for_one_column_are_refused() -> None:
    with fake_registry(MemoryRegistry()) as fake, Registry(fake.url) as registry:
        registry.register("r-value", avro("day", "value_day"))
        decoding = RegistryDecoding.resolve(fake.url, subject="r-value")
        with pytest.raises(OptionError, match="one name for Spark"):
            schema_columns(FRAME, Shape("avro", registry=decoding))
