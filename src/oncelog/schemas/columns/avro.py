"""Avro payloads of one writer's schema to columns of the reader's, by the specification's rules of resolution.

Schemas are parsed ones of fastavro: names are full names. A union of null and one type is a nullable column, one of
several types a struct of ``member0``, ``member1``, …, as Spark's ``from_avro`` has it. Arrow has no recursive types: a
record within itself is its JSON text. A field that the writer lacks is null if it has no default.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from oncelog.schemas.columns.avro_types import PROMOTIONS, SchemaNode, Types, members_of, primitive_node, value_type
from oncelog.schemas.columns.cursor import Array, Cursor, Damage, Longs, Payloads, nulls
from oncelog.schemas.columns.decoded import Decoded, decode_in_pieces
from oncelog.schemas.columns.json_text import JsonText, encode_default, with_default_values
from oncelog.schemas.columns.nested import Branch, Constant, Nullable, Record, Union, UnionShape, Wrapped
from oncelog.schemas.columns.nodes import Binary, Enum, Node, Null, Unreadable
from oncelog.schemas.columns.repeated import Repeated
from oncelog.schemas.schema import SchemaError

Parsed: TypeAlias = Any
"""A schema as ``fastavro.parse_schema`` returns it."""


class AvroDecoder:
    """Decodes payloads of the schema ``writer`` to values of ``reader``. Raises SchemaError if that cannot be."""

    def __init__(self, writer: Parsed, reader: Parsed | None = None) -> None:
        try:
            self._root = _Resolution(Types(writer), Types(writer if reader is None else reader)).root()
        except RecursionError:
            raise SchemaError("the schema's types are nested too deeply to be columns") from None

    @property
    def type(self) -> pa.DataType:
        return self._root.type

    def decode(self, payloads: Array, starts: Longs | None = None) -> Decoded:
        return decode_in_pieces(self._root.read, self.type, payloads, starts)


class _Resolution:
    """Pairs the writer's types with the reader's."""

    def __init__(self, writer: Types, reader: Types) -> None:
        self._writer, self._reader = writer, reader
        self._open: list[str] = []

    def root(self) -> Node:
        return self.node(self._writer.root, self._reader.root)

    def node(self, writer: SchemaNode, reader: SchemaNode) -> Node:
        written, expected = self._writer.resolved(writer), self._reader.resolved(reader)
        if isinstance(written, list):
            return self._from_union(written, expected)
        if isinstance(expected, list):
            return self._into_union(written, expected)
        if expected["type"] not in PROMOTIONS.get(written["type"], (written["type"],)):
            raise SchemaError(f"{_label(written)} cannot be read as {_label(expected)}")
        match expected["type"]:
            case "record" | "error":
                return self._record(written, expected)
            case "array":
                item = self.node(written["items"], expected["items"])
                return Repeated(item, pa.list_(item.type), self._writer.walks.of(written["items"]))
            case "map":
                value = self.node(written["values"], expected["values"])
                entry = Record(("key", "value"), [(Binary(pa.string()), 0), (value, 1)], {})
                walk = self._writer.walks.entry(written["values"])
                return Repeated(entry, pa.map_(pa.string(), value.type), walk)
            case "enum":
                return _enum(written, expected)
        return primitive_node(written, expected)

    def _record(self, written: Mapping[str, Any], expected: Mapping[str, Any]) -> Node:
        name = expected["name"]
        if name in self._open:
            walk, min_bytes = self._writer.walks.of(written["name"]), self._writer.min_bytes(written["name"])
            return JsonText(
                walk, min_bytes, self._writer.parsed(written["name"]), with_default_values(self._reader, name)
            )
        self._open.append(name)
        try:
            return self._fields(written, expected)
        finally:
            self._open.pop()

    def _fields(self, written: Mapping[str, Any], expected: Mapping[str, Any]) -> Node:
        sources = {field["name"]: field for field in written["fields"]}
        columns: dict[str, int] = {}
        constants: dict[int, Constant] = {}
        for column, field in enumerate(expected["fields"]):
            names = [name for name in (field["name"], *field.get("aliases", ())) if name in sources]
            source = next((name for name in names if name not in columns), None)
            if source is not None:
                columns[source] = column
            elif "default" in field:
                constants[column] = self._default(field)
            else:  # stricter readers refuse it, but a table's column is null there
                kind = self._reader.arrow_type(field["type"], tuple(self._open))
                constants[column] = Constant(nulls(1, kind))
        steps: list[tuple[Node, int | None]] = []
        for field in written["fields"]:
            target = columns.get(field["name"])
            if target is None:
                steps.append((_Resolution(self._writer, self._writer).node(field["type"], field["type"]), None))
            else:
                steps.append((self._field(field, expected["fields"][target], expected["name"]), target))
        return Record([field["name"] for field in expected["fields"]], steps, constants)

    def _field(self, written: Mapping[str, Any], expected: Mapping[str, Any], record: str) -> Node:
        try:
            return self.node(written["type"], expected["type"])
        except SchemaError as error:
            raise SchemaError(f"field {expected['name']!r} of {record}: {error}") from None

    def _default(self, field: Mapping[str, Any]) -> Constant:
        reading = _Resolution(self._reader, self._reader)
        reading._open = list(self._open)
        node = reading.node(field["type"], field["type"])
        data = encode_default(field["default"], field["type"], self._reader)
        payloads = Payloads(np.frombuffer(data, np.uint8))
        damage = Damage(1)
        end = np.array([len(data)], np.int64)
        cursor = Cursor(payloads, np.zeros(1, np.int64), end, np.arange(1), damage)
        value = node.read(cursor)
        cursor.finish()
        if damage.any:
            raise SchemaError(f"the default of field {field['name']!r} is not of its type: {damage.reasons()[0]}")
        return Constant(value)

    # Unions

    def _shape(self, expected: SchemaNode) -> UnionShape:
        return self._reader.shape(expected, tuple(self._open))

    def _from_union(self, written: list[SchemaNode], expected: SchemaNode) -> Node:
        members = members_of(expected)
        shape = self._shape(expected)
        branches = [self._branch(branch, expected, members, shape) for branch in written]
        if len(branches) == 2 and len(members) == 1:
            nulls = [number for number, branch in enumerate(branches) if branch.member is None]
            if len(nulls) == 1 and isinstance(branches[nulls[0]].node, Null):
                node = branches[1 - nulls[0]].node
                if node.maskable:
                    return Nullable(node, nulls[0])
        return Union(branches, shape)

    def _branch(
        self, written: SchemaNode, expected: SchemaNode, members: list[SchemaNode], shape: UnionShape
    ) -> Branch:
        branch = self._writer.resolved(written)
        if value_type(branch) == "null":
            if isinstance(expected, list) and any(
                value_type(self._reader.resolved(kind)) == "null" for kind in expected
            ):
                return Branch(Null(), None)
            if not isinstance(expected, list) and value_type(expected) == "null":
                return Branch(Null(), None)
            return Branch(Unreadable(Null(), pa.null(), "null, but the reader's schema has no null there"), None)
        best = self._member_for(branch, members)
        if best is not None:
            return Branch(*best)
        node = _Resolution(self._writer, self._writer).node(branch, branch)
        reason = f"the reader's schema has no type for the union's {_label(branch)}"
        return Branch(Unreadable(node, pa.null(), reason), None)

    def _into_union(self, written: SchemaNode, expected: list[SchemaNode]) -> Node:
        if value_type(written) == "null" and any(
            value_type(self._reader.resolved(kind)) == "null" for kind in expected
        ):
            return _AlwaysNull(self._shape(expected).type)
        members = members_of(expected)
        best = self._member_for(written, members)
        if best is None:
            raise SchemaError(f"{_label(written)} cannot be read as any type of the union")
        return best[0] if len(members) == 1 else Wrapped(best[0], best[1], self._shape(expected))

    def _member_for(self, written: SchemaNode, members: list[SchemaNode]) -> tuple[Node, int] | None:
        """The first member of the reader's union that takes a type: the same name or kind before a promotion."""
        resolved = [self._reader.resolved(member) for member in members]
        order = sorted(range(len(members)), key=lambda number: _distance(written, resolved[number]))
        for number in order:
            if _distance(written, resolved[number]) > _PROMOTED:
                break
            try:
                return self.node(written, members[number]), number
            except SchemaError:
                continue
        return None


class _AlwaysNull(Null):
    def __init__(self, kind: pa.DataType) -> None:
        self.type = kind

    def read(self, cursor: Cursor, valid: object = None) -> Array:
        return nulls(len(cursor), self.type)


_SAME_NAME, _SAME_KIND, _PROMOTED, _DIFFERENT = range(4)


def _distance(written: SchemaNode, expected: SchemaNode) -> int:
    """How far a type is from a member of a union."""
    kind, other = value_type(written), value_type(expected)
    if kind == other:
        if "name" not in expected:
            return _SAME_NAME
        names = {expected["name"], *expected.get("aliases", ())}
        return _SAME_NAME if written["name"] in names else _SAME_KIND
    return _PROMOTED if other in PROMOTIONS.get(kind, ()) else _DIFFERENT


def _enum(written: Mapping[str, Any], expected: Mapping[str, Any]) -> Node:
    symbols = list(expected["symbols"])
    fallback = symbols.index(expected["default"]) if "default" in expected else -1
    codes = [symbols.index(symbol) if symbol in symbols else fallback for symbol in written["symbols"]]
    return Enum(symbols, codes, expected["name"])


def _label(schema: SchemaNode) -> str:
    if isinstance(schema, list):
        return "a union"
    return f"{schema['type']} {schema['name']}" if "name" in schema else str(schema["type"])
