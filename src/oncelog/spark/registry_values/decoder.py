"""Decodes keys or values of the source's record batches by a registry, in the task that read them.

A bad record is a row without the decoded part, with the reason and its bytes, or ends the query if that is asked for.
A registry that does not answer ends the task, which Spark tries again. A null value (a tombstone) is not bad.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from oncelog.schemas.client.errors import RegistryError
from oncelog.spark.json_values.decoding import BAD
from oncelog.spark.registry_values.arrow_types import converted
from oncelog.spark.registry_values.decoding import RegistryDecoding, column_name
from oncelog.spark.session.errors import SparkSourceError
from oncelog.spark.session.versions import arrow_schema

HEADERS = "headers"


class RegistryDecoder:
    """Decodes batches, whose headers may name the schemas."""

    def __init__(self, decoding: RegistryDecoding) -> None:
        self._decoding = decoding
        self._columns = decoding.registered()
        self._type = decoding.arrow_type()
        self._fields = None if decoding.columns is None else arrow_schema(decoding.columns)

    def decode(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Raises SparkSourceError."""
        place = rows.schema.get_field_index(self._decoding.part)
        data: Any = rows.column(place)
        headers: Any = rows.column(HEADERS) if HEADERS in rows.schema.names else None
        try:
            decoded = self._columns.decode(data, headers)
        except RegistryError as error:
            raise SparkSourceError(f"the registry at {self._decoding.shown_url}: {error}") from error
        reasons: Any = pa.nulls(len(data), pa.string()) if decoded.reasons is None else decoded.reasons
        if self._decoding.fails and decoded.reasons is not None:
            raise SparkSourceError(_first_reason(rows, reasons, self._decoding.part))
        bytes_of_bad = pc.if_else(pc.is_valid(reasons), data, pa.scalar(None, pa.binary()))
        arrays, names = list(rows.columns), list(rows.schema.names)
        if self._fields is not None:
            arrays[place] = bytes_of_bad  # those of decoded rows are not needed any longer
            values: Any = decoded.values
            return _batch([*arrays, *self._as_columns(values), reasons], [*names, *self._fields.names, BAD])
        arrays[place] = converted(decoded.values, self._type)
        if self._decoding.fails:
            return _batch(arrays, names)
        part = self._decoding.part
        return _batch([*arrays, reasons, bytes_of_bad], [*names, f"{part}_error", f"{part}_bytes"])

    def _as_columns(self, values: Any) -> list[Any]:
        """The table's columns: those that the schema lacks are null."""
        assert self._fields is not None
        by_name = dict(zip([column_name(field.name) for field in values.type], values.flatten(), strict=True))
        return [
            converted(by_name[field.name], field.type) if field.name in by_name else pa.nulls(len(values), field.type)
            for field in self._fields
        ]


def _batch(arrays: list[Any], names: list[str]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(arrays, names=names)


def _first_reason(rows: pa.RecordBatch, reasons: Any, part: str) -> str:
    row = pc.index(pc.is_valid(reasons), True).as_py()
    topic, partition, offset = (rows.column(name)[row].as_py() for name in ("topic", "partition", "offset"))
    return f"the {part} of {topic}-{partition} at offset {offset}: {reasons[row].as_py()} (badRecords=fail)"
