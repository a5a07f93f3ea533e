"""Avro's types in Arrow, and how a primitive type is read as another one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa

from oncelog.schemas.columns.cursor import Array, Cursor
from oncelog.schemas.columns.decimals import MAX_PRECISION, decimal_type, decimals, uuid_texts
from oncelog.schemas.columns.nested import UnionShape
from oncelog.schemas.columns.nodes import INT_BOUNDS, Binary, Boolean, Converted, Float, Node, Null, Varint
from oncelog.schemas.schema import SchemaError
from oncelog.schemas.values.avro_bounds import Walks, named_types

SchemaNode: TypeAlias = Any
"""A name, a union (a list) or an object of a schema."""

PROMOTIONS: Final[Mapping[str, tuple[str, ...]]] = {
    "int": ("int", "long", "float", "double"),
    "long": ("long", "float", "double"),
    "float": ("float", "double"),
    "bytes": ("bytes", "string"),
    "string": ("string", "bytes"),
    "record": ("record", "error"),
    "error": ("error", "record"),
}
_MAX_PARTS: Final = 5_000
"""Types within types of a schema, each as often as it is used: few lines can define millions."""
_PRIMITIVES: Final[Mapping[str, pa.DataType]] = {
    "null": pa.null(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
}
_LOGICAL: Final[Mapping[tuple[str, str], pa.DataType]] = {
    ("int", "date"): pa.date32(),
    ("int", "time-millis"): pa.time32("ms"),
    ("long", "time-micros"): pa.time64("us"),
    ("long", "timestamp-millis"): pa.timestamp("ms", "UTC"),
    ("long", "timestamp-micros"): pa.timestamp("us", "UTC"),
    ("long", "timestamp-nanos"): pa.timestamp("ns", "UTC"),
    ("long", "local-timestamp-millis"): pa.timestamp("ms"),
    ("long", "local-timestamp-micros"): pa.timestamp("us"),
    ("long", "local-timestamp-nanos"): pa.timestamp("ns"),
}
_DAY: Final = {"ms": 86_400_000, "us": 86_400_000_000}
_MIN_BYTES: Final = {"null": 0, "float": 4, "double": 8}


class Types:
    """A parsed schema and its named types."""

    def __init__(self, parsed: SchemaNode) -> None:
        self.root = parsed
        self.named = named_types(parsed)
        self.walks = Walks(self.named)
        self._parts = 0
        self.filled: Mapping[str, Any] | None = None
        """The named types with values for defaults, once they are needed."""

    def resolved(self, schema: SchemaNode) -> Any:
        """A union's list, or an object with a ``type``: what the name stands for. Raises SchemaError."""
        self._parts += 1
        if self._parts > _MAX_PARTS:
            raise SchemaError(f"the schema has more than {_MAX_PARTS:,} types within types; use fewer columns")
        while True:
            if isinstance(schema, list):
                return schema
            if isinstance(schema, str):
                if schema in _PRIMITIVES:
                    return {"type": schema}
                if schema not in self.named:
                    raise SchemaError(f"type {schema!r} is not defined in the schema or its references")
                schema = self.named[schema]
            elif isinstance(schema["type"], str) and (schema["type"] in _COMPLEX or schema["type"] in _PRIMITIVES):
                return schema
            else:
                schema = schema["type"]

    def parsed(self, name: str) -> Any:
        """A named type, parsed as if it were a schema of its own."""
        return as_parsed(self.named, name)

    def min_bytes(self, schema: SchemaNode, inside: tuple[str, ...] = ()) -> int:
        """The fewest bytes of a value."""
        resolved = self.resolved(schema)
        kind = value_type(resolved)
        if kind == "fixed":
            return int(resolved["size"])
        if kind not in ("record", "error"):
            return _MIN_BYTES.get(kind, 1)
        if resolved["name"] in inside:
            return 0
        return sum(self.min_bytes(field["type"], (*inside, resolved["name"])) for field in resolved["fields"])

    def arrow_type(self, schema: SchemaNode, inside: tuple[str, ...] = ()) -> pa.DataType:
        """The type of a value's column, within the records ``inside``."""
        resolved = self.resolved(schema)
        if isinstance(resolved, list):
            return self.shape(resolved, inside).type
        match resolved["type"]:
            case "record" | "error":
                if resolved["name"] in inside:
                    return pa.string()
                within = (*inside, resolved["name"])
                return pa.struct(
                    [(field["name"], self.arrow_type(field["type"], within)) for field in resolved["fields"]]
                )
            case "array":
                return pa.list_(self.arrow_type(resolved["items"], inside))
            case "map":
                return pa.map_(pa.string(), self.arrow_type(resolved["values"], inside))
            case "enum":
                return pa.dictionary(pa.int32(), pa.string())
        return _primitive_type(resolved)

    def shape(self, schema: SchemaNode, inside: tuple[str, ...] = ()) -> UnionShape:
        members = members_of(self.resolved(schema))
        return UnionShape(tuple(self.arrow_type(member, inside) for member in members))


def as_parsed(named: Mapping[str, Any], name: str) -> Any:
    return {**named[name], "__fastavro_parsed": True, "__named_schemas": named}


_COMPLEX: Final = frozenset({"record", "error", "enum", "array", "map", "fixed"})


def value_type(schema: SchemaNode) -> str:
    if isinstance(schema, list):
        return "union"
    return schema if isinstance(schema, str) else str(schema["type"])


def members_of(schema: SchemaNode) -> list[SchemaNode]:
    """The types of a union without null; of another schema itself."""
    branches = schema if isinstance(schema, list) else [schema]
    return [branch for branch in branches if value_type(branch) != "null"]


def _primitive_type(schema: Mapping[str, Any]) -> pa.DataType:
    kind, logical = schema["type"], schema.get("logicalType", "")
    if kind in ("bytes", "fixed") and logical == "decimal" and (kind_of_decimal := _decimal(schema)) is not None:
        return kind_of_decimal
    if kind == "fixed":
        return pa.string() if logical == "uuid" and schema["size"] == 16 else pa.binary(schema["size"])
    return _LOGICAL.get((kind, logical), _PRIMITIVES[kind])


def _decimal(schema: Mapping[str, Any]) -> pa.DataType | None:
    """None for one that Arrow lacks or that is not valid, which is read as its bytes (Avro's rule)."""
    precision, scale = schema.get("precision"), schema.get("scale", 0)
    if not isinstance(precision, int) or not isinstance(scale, int):
        return None
    return decimal_type(precision, scale) if 0 <= scale <= precision and 0 < precision <= MAX_PRECISION else None


def primitive_node(written: Mapping[str, Any], expected: Mapping[str, Any]) -> Node:
    """Reads one primitive or fixed type as another. Raises SchemaError."""
    kind, target = written["type"], _primitive_type(expected)
    match kind:
        case "null":
            return Null()
        case "boolean":
            return Boolean()
        case "float" | "double":
            return Float(4 if kind == "float" else 8, target)
        case "int" | "long":
            return _varint(kind, _primitive_type(written), target)
        case "fixed" if written["size"] != expected["size"]:
            raise SchemaError(f"fixed of {written['size']} bytes cannot be read as fixed of {expected['size']}")
    return _binary(written, target)


def _varint(kind: str, source: Any, target: Any) -> Node:
    bounds = INT_BOUNDS if kind == "int" else None
    if pa.types.is_floating(target):
        return Varint(target, np.float32 if target == pa.float32() else np.float64, bounds)
    for same in (pa.types.is_timestamp, pa.types.is_time):
        if same(source) and same(target) and source.unit != target.unit:
            return Converted(_whole_number(source, bounds), target, _convert_to(target))
    return _whole_number(target, bounds)


def _whole_number(kind: Any, bounds: tuple[int, int] | None) -> Node:
    if pa.types.is_time(kind):
        return Varint(kind, f"i{kind.bit_width // 8}", (0, _DAY[kind.unit] - 1), "a time of day")
    return Varint(kind, f"i{kind.bit_width // 8}", bounds)


def _convert_to(kind: Any) -> Callable[[Array, Cursor], Array]:
    """Another unit. Values beyond the finer unit's range mark their records, finer digits are dropped."""

    def convert(array: Any, cursor: Cursor) -> Any:
        converted: Any = array.cast(kind, safe=False)
        if pa.types.is_timestamp(kind):
            changed = np.asarray(converted.cast(array.type, safe=False).view(pa.int64()).fill_null(0))
            original = np.asarray(array.view(pa.int64()).fill_null(0))
            step = {"s": 1, "ms": 1000, "us": 1_000_000, "ns": 1_000_000_000}
            slack = max(1, step[array.type.unit] // step[kind.unit])
            cursor.mark(np.abs(changed.astype(np.float64) - original) > slack, "a time is outside the reader's range")
        return converted

    return convert


def _binary(written: Mapping[str, Any], target: pa.DataType) -> Node:
    size = written["size"] if written["type"] == "fixed" else None
    own = _primitive_type(written)
    if pa.types.is_decimal(target):
        if pa.types.is_decimal(own) and own != target:
            raise SchemaError(f"{own} cannot be read as {target}: precision and scale must be the same")
        raw = Binary(pa.binary(), size)
        return Converted(raw, target, lambda array, cursor: decimals(array, cursor, target))
    if size is not None and target == pa.string():
        return Converted(Binary(pa.binary(size), size), target, uuid_texts)
    return Binary(target, size)
