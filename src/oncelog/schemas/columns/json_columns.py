"""JSON values by a JSON Schema: the properties of its objects become columns.

Python's parser reads each value. A property whose type is one of JSON's scalars becomes a column of it, an object with
properties a struct, an array a list; all others, as unions, are their JSON text. Nothing is converted: a value of
another type has a reason, and so has a number that the column cannot hold.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

import pyarrow as pa

from oncelog.schemas.columns.cursor import Array, Longs
from oncelog.schemas.columns.decoded import Decoded
from oncelog.schemas.formats.json_schema.schema import JsonSchema
from oncelog.schemas.schema import SchemaError

Convert: TypeAlias = Callable[[Any, str], Any]
"""Takes a value and its path. Raises _Misfit."""
_MAX_FIELDS: Final = 5_000
_TOO_DEEP: Final = "not JSON: it is nested too deeply"
_INT64: Final = range(-(1 << 63), 1 << 63)


class _Misfit(ValueError):
    pass


class JsonDecoder:
    """Decodes payloads in JSON. Raises SchemaError for a schema without an object's properties."""

    def __init__(self, schema: JsonSchema) -> None:
        document = json.loads(schema.canonical)
        self._fields = 0
        self.type, self._convert = self._column(document)
        if not pa.types.is_struct(self.type):
            raise SchemaError("the JSON Schema has no properties of an object, which would be the columns")

    def decode(self, payloads: Array, starts: Longs | None = None) -> Decoded:
        values: list[Any] = []
        reasons: list[str | None] = []
        for row, payload in enumerate(payloads.to_pylist()):
            value, reason = None, None
            if payload is not None:
                try:
                    value = self._convert(_document(payload[0 if starts is None else int(starts[row]) :]), "$")
                except _Misfit as error:
                    reason = str(error)
                except RecursionError:
                    reason = _TOO_DEEP
            values.append(value)
            reasons.append(reason)
        bad = any(reason is not None for reason in reasons)
        return Decoded(pa.array(values, self.type), pa.array(reasons, pa.string()) if bad else None)

    def _column(self, schema: Any) -> tuple[pa.DataType, Convert]:
        self._fields += 1
        if self._fields > _MAX_FIELDS:
            raise SchemaError(f"the schema has more than {_MAX_FIELDS:,} properties; use fewer columns")
        kind = _single_type(schema)
        if kind is not None and kind in _SCALARS:
            return _SCALARS[kind]
        if kind == "array" and isinstance(schema.get("items"), Mapping):
            item, convert = self._column(schema["items"])
            return pa.list_(item), _array(convert)
        if kind == "object" and isinstance(schema.get("properties"), Mapping) and schema["properties"]:
            columns = {name: self._column(inner) for name, inner in schema["properties"].items()}
            return pa.struct([(name, column[0]) for name, column in columns.items()]), _object(columns)
        return pa.string(), _text


def _document(payload: bytes) -> Any:
    def refuse(name: str) -> Any:
        raise ValueError(f"{name} is not JSON")

    try:
        return json.loads(payload.decode(), parse_constant=refuse)
    except RecursionError:
        raise _Misfit(_TOO_DEEP) from None
    except ValueError as error:
        raise _Misfit(f"not JSON: {error}") from None


def _single_type(schema: Any) -> str | None:
    """The type of a property, without null; None for several types, references and compositions."""
    if not isinstance(schema, Mapping):
        return None
    kinds = schema.get("type")
    if kinds is None and isinstance(schema.get("oneOf"), list):  # as Confluent's serializers write optional ones
        inner = [part for part in schema["oneOf"] if part != {"type": "null"}]
        return _single_type(inner[0]) if len(inner) == 1 and set(inner[0]) <= {"type"} else None
    if isinstance(kinds, list):
        kinds = [kind for kind in kinds if kind != "null"]
        return kinds[0] if len(kinds) == 1 else None
    return kinds if isinstance(kinds, str) else None


def _scalar(name: str, accepted: Callable[[Any], bool]) -> Convert:
    def convert(value: Any, path: str) -> Any:
        if value is None or accepted(value):
            return value
        raise _Misfit(f"{path} is no {name}")

    return convert


def _is_integer(value: Any) -> bool:
    return type(value) is int and value in _INT64


def _number(value: Any, path: str) -> float | None:
    if value is None or type(value) is float:
        return value
    if type(value) is int and int(float(value) if abs(value) < 1 << 1000 else 0) == value:
        return float(value)
    raise _Misfit(f"{path} is no number that a double holds")


def _text(value: Any, path: str) -> str | None:
    return None if value is None else _unicode(json.dumps(value, ensure_ascii=False), path)


def _string(value: Any, path: str) -> str | None:
    if value is None:
        return None
    if type(value) is not str:
        raise _Misfit(f"{path} is no string")
    return _unicode(value, path)


def _unicode(text: str, path: str) -> str:
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:  # JSON can escape half of a surrogate pair, which Arrow's text cannot hold
            raise _Misfit(f"{path} has half of a surrogate pair, which is no text") from None
    return text


def _array(convert: Convert) -> Convert:
    def convert_items(value: Any, path: str) -> Any:
        if value is None:
            return None
        if type(value) is not list:
            raise _Misfit(f"{path} is no array")
        return [convert(item, f"{path}[{index}]") for index, item in enumerate(value)]

    return convert_items


def _object(columns: Mapping[str, tuple[pa.DataType, Convert]]) -> Convert:
    def convert_properties(value: Any, path: str) -> Any:
        if value is None:
            return None
        if type(value) is not dict:
            raise _Misfit(f"{path} is no object")
        return {name: convert(value.get(name), f"{path}.{name}") for name, (_, convert) in columns.items()}

    return convert_properties


_SCALARS: Final[Mapping[str, tuple[pa.DataType, Convert]]] = {
    "string": (pa.string(), _string),
    "integer": (pa.int64(), _scalar("integer of 64 bits", _is_integer)),
    "number": (pa.float64(), _number),
    "boolean": (pa.bool_(), _scalar("boolean", lambda value: type(value) is bool)),
}
