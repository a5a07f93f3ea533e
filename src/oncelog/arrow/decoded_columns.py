"""Keys and values as typed columns, by the schemas that records name in a registry.

A record that cannot be read as the column's schema is null there, with the reason in ``key_error`` or ``value_error``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from oncelog.client.errors import ConfigError

if TYPE_CHECKING:
    from oncelog.schemas import Registry
    from oncelog.schemas.columns.registered import RegisteredColumns

_HEADERS: Final = "headers"


class DecodedColumns:
    """Decodes the parts that have a subject: ``SUBJECT`` or ``SUBJECT@VERSION``. Raises ConfigError, RegistryError,
    SchemaError."""

    def __init__(self, registry: Registry | str | None, subjects: dict[str, str | None]) -> None:
        self._own: Registry | None = None
        self._parts: dict[str, RegisteredColumns] = {}
        chosen = {part: subject for part, subject in subjects.items() if subject is not None}
        if registry is None:
            if chosen:
                raise ConfigError("key_schema and value_schema need a registry: registry='http://HOST:PORT'")
            return
        if not chosen:
            raise ConfigError("a registry needs a schema to read as: value_schema='SUBJECT', or key_schema")
        if isinstance(registry, str):
            from oncelog.schemas import Registry

            registry = self._own = Registry(registry)
        try:
            self._parts = {part: _columns(registry, part, subject) for part, subject in chosen.items()}
        except BaseException:
            self.close()
            raise

    @property
    def needs_headers(self) -> bool:
        """A header may name a record's schema."""
        return bool(self._parts)

    def schema(self, plain: pa.Schema) -> pa.Schema:
        """The schema of rows whose keys and values are bytes, as it is after ``decode``."""
        for part, columns in self._parts.items():
            plain = plain.set(plain.get_field_index(part), pa.field(part, columns.type))
        for part in self._parts:
            plain = plain.append(pa.field(f"{part}_error", pa.string()))
        return plain

    def decode(self, rows: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
        """Rows with headers, as rows of ``schema``. Raises RegistryError if the registry does not answer."""
        if not self._parts:
            return rows
        columns: dict[str, Any] = dict(zip(rows.schema.names, rows.columns, strict=True))
        for part, decoder in self._parts.items():
            decoded = decoder.decode(columns[part], columns[_HEADERS])
            reasons = decoded.reasons
            columns[f"{part}_error"] = pa.nulls(len(rows), pa.string()) if reasons is None else reasons
            columns[part] = decoded.values
        return pa.RecordBatch.from_arrays([columns[name] for name in schema.names], schema=schema)

    def close(self) -> None:
        if self._own is not None:
            self._own.close()


def _columns(registry: Registry, part: str, subject: str) -> RegisteredColumns:
    from oncelog.schemas.columns.registered import RegisteredColumns, reader_schema
    from oncelog.schemas.values.decoding import subject_version

    schema, context, _ = reader_schema(registry, *subject_version(subject))
    return RegisteredColumns(registry, schema, part, context=context)
