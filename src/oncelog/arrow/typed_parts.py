"""Keys and values of record batches as typed columns, by their schemas in a registry."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from oncelog.client.errors import ConfigError
from oncelog.records.columns.decode import column_schema
from oncelog.schemas.wire_format import KEY, VALUE

if TYPE_CHECKING:
    from oncelog.schemas.client.registry import Registry
    from oncelog.schemas.columns.registered import RegisteredColumns
    from oncelog.schemas.schema import Schema

_HEADERS = "headers"


class TypedParts:
    """Decodes the parts that have a schema. Each is followed by its errors and, of bad records, its bytes, as the last
    columns."""

    def __init__(
        self, parts: dict[str, RegisteredColumns], registry: Registry | None, *, include_headers: bool
    ) -> None:
        """``registry``: the client to close at the end."""
        self._parts, self._registry, self._include_headers = parts, registry, include_headers

    def close(self) -> None:
        if self._registry is not None:
            self._registry.close()

    @property
    def schema(self) -> pa.Schema:
        schema = column_schema(include_headers=self._include_headers)
        for part, columns in self._parts.items():
            schema = schema.set(schema.get_field_index(part), pa.field(part, columns.type))
            schema = schema.append(pa.field(f"{part}_error", pa.string()))
            schema = schema.append(pa.field(f"{part}_bytes", pa.binary()))
        return schema

    def decode(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Decode a batch with headers. Raises RegistryError."""
        from pyarrow import compute

        headers: Any = rows.column(_HEADERS)
        arrays = list(rows.columns) if self._include_headers else list(rows.columns)[:-1]
        for part, columns in self._parts.items():
            place = rows.schema.get_field_index(part)
            data: Any = rows.column(place)
            decoded = columns.decode(data, headers)
            arrays[place] = decoded.values
            reasons: Any = pa.nulls(len(data), pa.string()) if decoded.reasons is None else decoded.reasons
            arrays += [reasons, compute.if_else(compute.is_valid(reasons), data, pa.scalar(None, pa.binary()))]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)


def typed_parts(
    topics: Sequence[str],
    registry: Registry | str | None,
    key_schema: str | Schema | None,
    value_schema: str | Schema | None,
    *,
    include_headers: bool,
) -> TypedParts | None:
    """None without a registry. Raises ConfigError, RegistryError, SchemaError."""
    if registry is None:
        if key_schema is not None or value_schema is not None:
            raise ConfigError("key_schema and value_schema need a registry: give its URL")
        return None
    from oncelog.schemas.client.registry import Registry

    if key_schema is None and value_schema is None:
        if len(topics) != 1:
            raise ConfigError("value_schema is needed to read several topics: give a subject")
        value_schema = f"{topics[0]}-value"
    given = {KEY: key_schema, VALUE: value_schema}
    own = Registry(registry) if isinstance(registry, str) else None
    client = registry if own is None else own
    assert isinstance(client, Registry)
    try:
        parts = {part: _columns(client, schema, part) for part, schema in given.items() if schema is not None}
    except BaseException:
        if own is not None:
            own.close()
        raise
    return TypedParts(parts, own, include_headers=include_headers)


def _columns(registry: Registry, schema: str | Schema, part: str) -> RegisteredColumns:
    from oncelog.schemas.columns.registered import RegisteredColumns, reader_schema
    from oncelog.schemas.values.decoding import subject_version

    if not isinstance(schema, str):
        return RegisteredColumns(registry, schema, part)
    subject, version = subject_version(schema)
    reader, context, _ = reader_schema(registry, subject, version)
    return RegisteredColumns(registry, reader, part, context=context, subject=subject)
