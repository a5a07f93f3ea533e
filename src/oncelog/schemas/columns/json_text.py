"""Records within themselves as JSON text, and defaults as Avro's bytes: both by fastavro, a value at a time."""

from __future__ import annotations

import json
from collections.abc import Mapping
from io import BytesIO
from typing import Any, Final

import fastavro
import pyarrow as pa

from oncelog.schemas.columns.avro_types import SchemaNode, Types, as_parsed, value_type
from oncelog.schemas.columns.cursor import Array, Cursor, Mask
from oncelog.schemas.schema import SchemaError
from oncelog.schemas.values.avro_bounds import Walk, walk_value
from oncelog.schemas.values.avro_defaults import replaced
from oncelog.schemas.values.errors import NotReadable
from oncelog.schemas.values.json_output import finite, text_of

_MOST_SHOWN: Final = 200
_HOLDER: Final = "oncelog.Default"


class JsonText:
    """Values of a recursive type as JSON. The walk bounds their depth and their arrays before fastavro reads them."""

    type: pa.DataType = pa.string()
    width: int | None = None
    maskable = False

    def __init__(self, walk: Walk, min_bytes: int, writer: Any, reader: Any) -> None:
        self._walk, self.min_bytes, self._writer, self._reader = walk, min_bytes, writer, reader

    def read(self, cursor: Cursor, valid: Mask | None = None) -> Array:
        texts: list[str | None] = []
        for number, value in enumerate(self._values(cursor)):
            text = None
            if value is not None:
                try:
                    text = self._text(value)
                except Exception as error:  # noqa: BLE001 - hostile bytes reach every corner of the library
                    reason = f"a value within itself is not readable: {type(error).__name__}: {error}"
                    cursor.damage.mark(cursor.rows[number : number + 1], reason[:_MOST_SHOWN])
            texts.append(text)
        return pa.array(texts, pa.string())

    def skip(self, cursor: Cursor) -> None:
        self._values(cursor)

    def _values(self, cursor: Cursor) -> list[bytes | None]:
        values: list[bytes | None] = []
        data, after = cursor.payloads.walked, cursor.at.copy()
        for number, (start, end) in enumerate(zip(cursor.at.tolist(), cursor.ends.tolist(), strict=True)):
            try:
                after[number] = walk_value(self._walk, data, start, max(start, end))
                values.append(data[start : after[number]])
            except NotReadable as error:
                cursor.damage.mark(cursor.rows[number : number + 1], str(error))
                values.append(None)
        cursor.at = after
        return values

    def _text(self, value: bytes) -> str:
        decoded = fastavro.schemaless_reader(BytesIO(value), self._writer, self._reader)
        try:
            return json.dumps(decoded, default=text_of, allow_nan=False)
        except ValueError:
            return json.dumps(finite(decoded), default=text_of, allow_nan=False)


def with_default_values(types: Types, name: str) -> Any:
    """A named type with values for the JSON of defaults, and null where fields have none, as in columns. Raises
    SchemaError."""
    if types.filled is None:
        values = {
            (record, field["name"]): _default_value(field, types) if "default" in field else None
            for record, schema in types.named.items()
            for field in schema.get("fields", ())
        }
        types.filled = {record: replaced(schema, values) for record, schema in types.named.items()}
    return as_parsed(types.filled, name)


def _default_value(field: Mapping[str, Any], types: Types) -> Any:
    data = BytesIO(encode_default(field["default"], field["type"], types))
    held: Any = fastavro.schemaless_reader(data, _holder(field["type"], types), None)
    return held["value"]


def _holder(schema: SchemaNode, types: Types) -> Any:
    """A record of one field ``value``, so that a schema that is a name or a union can be written and read."""
    holder = {"type": "record", "name": _HOLDER, "fields": [{"name": "value", "type": schema}]}
    return as_parsed({**types.named, _HOLDER: holder}, _HOLDER)


def encode_default(value: Any, schema: SchemaNode, types: Types) -> bytes:
    """A field's default in JSON as Avro's bytes. Raises SchemaError."""
    out = BytesIO()
    try:
        fastavro.schemaless_writer(out, _holder(schema, types), {"value": _datum(value, schema, types)})
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError) as error:
        raise SchemaError(f"default {json.dumps(value)[:100]} is not of the field's type: {error}") from None
    return out.getvalue()


def _datum(value: Any, schema: SchemaNode, types: Types) -> Any:
    """A default as fastavro writes it: bytes are text in JSON. A union's default is of its first type."""
    resolved = types.resolved(schema)
    if isinstance(resolved, list):
        first = next((branch for branch in resolved if (value is None) == (value_type(branch) == "null")), "null")
        return _datum(value, first, types)
    match resolved["type"]:
        case "bytes" | "fixed":
            return value.encode("latin-1")
        case "array":
            return [_datum(item, resolved["items"], types) for item in value]
        case "map":
            return {key: _datum(item, resolved["values"], types) for key, item in value.items()}
        case "record" | "error":
            fields = {field["name"]: field for field in resolved["fields"]}
            given = {name: value[name] if name in value else field["default"] for name, field in fields.items()}
            return {name: _datum(given[name], field["type"], types) for name, field in fields.items()}
    return value
