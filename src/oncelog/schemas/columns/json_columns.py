"""JSON values by a JSON Schema: the properties of its objects become columns.

Python's parser reads each value, and a batch's columns are made property by property. If one of them does not fit,
values are converted one by one, which finds the bad ones. A property whose type is one of JSON's scalars becomes a
column of it, an object with properties a struct, an array a list; all others, as unions, are their JSON text. Nothing
is converted: a value of another type has a reason, and so has a number that the column cannot hold.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple, NoReturn, TypeAlias

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


class _Column(NamedTuple):
    """How values of a property become a column: all at once by ``read``, which raises _Misfit if any of them does not
    fit, or each by ``convert``."""

    type: pa.DataType
    convert: Convert
    read: Callable[[Sequence[Any]], Array]


def _converted(kind: pa.DataType, convert: Convert) -> _Column:
    def read(values: Sequence[Any]) -> Array:
        try:
            return pa.array([convert(value, "") for value in values], kind)
        except RecursionError:
            raise _Misfit(_TOO_DEEP) from None

    return _Column(kind, convert, read)


def _native(kind: pa.DataType, native: type, convert: Convert) -> _Column:
    """A type of JSON that is one of Python's."""
    fitting = {native, type(None)}

    def read(values: Sequence[Any]) -> Array:
        if set(map(type, values)) <= fitting:
            try:
                return pa.array(values, kind)
            except (pa.ArrowInvalid, OverflowError, UnicodeEncodeError):
                pass
        raise _Misfit

    return _Column(kind, convert, read)


class JsonDecoder:
    """Decodes payloads in JSON. Raises SchemaError for a schema without an object's properties."""

    def __init__(self, schema: JsonSchema) -> None:
        document = json.loads(schema.canonical)
        self._fields = 0
        self._root = self._column(document)
        self.type = self._root.type
        if not pa.types.is_struct(self.type):
            raise SchemaError("the JSON Schema has no properties of an object, which would be the columns")

    def decode(self, payloads: Array, starts: Longs | None = None) -> Decoded:
        documents: list[Any] = []
        reasons: dict[int, str] = {}
        for row, payload in enumerate(payloads.to_pylist()):
            document = None
            if payload is not None:
                try:
                    document = _document(payload[0 if starts is None else int(starts[row]) :])
                    if document is None:
                        raise _Misfit("$ is no object")
                except _Misfit as error:
                    reasons[row] = str(error)
            documents.append(document)
        try:
            values = self._root.read(documents)
        except _Misfit:
            values = self._one_by_one(documents, reasons)
        return Decoded(values, pa.array(map(reasons.get, range(len(values))), pa.string()) if reasons else None)

    def _one_by_one(self, documents: Sequence[Any], reasons: dict[int, str]) -> Array:
        values: list[Any] = []
        for row, document in enumerate(documents):
            value = None
            try:
                value = self._root.convert(document, "$")
            except _Misfit as error:
                reasons[row] = str(error)
            except RecursionError:
                reasons[row] = _TOO_DEEP
            values.append(value)
        return pa.array(values, self.type)

    def _column(self, schema: Any) -> _Column:
        self._fields += 1
        if self._fields > _MAX_FIELDS:
            raise SchemaError(f"the schema has more than {_MAX_FIELDS:,} properties; use fewer columns")
        kind = _single_type(schema)
        if kind is not None and kind in _SCALARS:
            return _SCALARS[kind]
        if kind == "array" and isinstance(schema.get("items"), Mapping):
            item = self._column(schema["items"])
            return _converted(pa.list_(item.type), _array(item.convert))
        if kind == "object" and isinstance(schema.get("properties"), Mapping) and schema["properties"]:
            return _struct({name: self._column(inner) for name, inner in schema["properties"].items()})
        return _converted(pa.string(), _text)


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


_PARSER: Final = json.JSONDecoder(parse_constant=_refuse)


def _document(payload: bytes) -> Any:
    try:
        return _PARSER.decode(payload.decode())
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


def _struct(columns: Mapping[str, _Column]) -> _Column:
    fields = [pa.field(name, column.type) for name, column in columns.items()]

    def convert(value: Any, path: str) -> Any:
        if value is None:
            return None
        if type(value) is not dict:
            raise _Misfit(f"{path} is no object")
        return {name: column.convert(value.get(name), f"{path}.{name}") for name, column in columns.items()}

    def read(values: Sequence[Any]) -> Array:
        if not set(map(type, values)) <= {dict, type(None)}:
            raise _Misfit
        arrays: list[Any] = [
            column.read([None if value is None else value.get(name) for value in values])
            for name, column in columns.items()
        ]
        absent: Any = pa.array([value is None for value in values], pa.bool_())
        return pa.StructArray.from_arrays(arrays, fields=fields, mask=absent)

    return _Column(pa.struct(fields), convert, read)


_FLOATS: Final = _native(pa.float64(), float, _number)


def _read_numbers(values: Sequence[Any]) -> Array:
    if int in set(map(type, values)):
        values = [_number(value, "") for value in values]
    return _FLOATS.read(values)


_SCALARS: Final[Mapping[str, _Column]] = {
    "string": _native(pa.string(), str, _string),
    "integer": _native(pa.int64(), int, _scalar("integer of 64 bits", _is_integer)),
    "number": _FLOATS._replace(read=_read_numbers),
    "boolean": _native(pa.bool_(), bool, _scalar("boolean", lambda value: type(value) is bool)),
}
