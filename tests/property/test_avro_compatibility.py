"""A pair of Avro schemas that is judged compatible is so: what the writer writes, the reader reads."""

from __future__ import annotations

import io
import json
from typing import Any

import fastavro
from hypothesis import HealthCheck, event, given, reject, settings
from hypothesis import strategies as st

from oncelog.schemas.compatibility.avro import avro_differences
from oncelog.schemas.formats.avro.schema import AvroSchema
from oncelog.schemas.formats.avro.types import Array, AvroType, Enum, Fixed, Map, Named, Record, Union
from oncelog.schemas.formats.parsed import parse
from oncelog.schemas.schema import Schema, SchemaError

PRIMITIVES = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
DEFAULTS: dict[str, Any] = {
    "null": None, "boolean": True, "int": 1, "long": 2, "float": 0.5, "double": 1.5, "bytes": "b", "string": "s",
}  # fmt: skip
# Few names, so that pairs of schemas often share them.
NAMESPACES = ("", "n.", "m.")
SYMBOLS = ("A", "B", "C")
FIELDS = ("f", "g", "h")


@st.composite
def schemas(draw: st.DrawFn, depth: int = 3, defined: dict[str, Any] | None = None) -> Any:
    """A schema; each name is defined once, and used again."""
    defined = {} if defined is None else defined
    kinds = [*PRIMITIVES, "enum", "fixed"] + ["record", "array", "map", "union", "union", "record"] * (depth > 0)
    kind = draw(st.sampled_from([*kinds, *defined]))
    if kind in ("record", "enum", "fixed"):
        name = draw(st.sampled_from(NAMESPACES)) + {"record": "R", "enum": "E", "fixed": "F"}[kind]
        name += draw(st.sampled_from(["", "", "2"]))
        if name in defined:
            return name
        return _named(draw, kind, name, depth, defined)
    if kind == "array":
        return {"type": "array", "items": draw(schemas(depth - 1, defined))}
    if kind == "map":
        return {"type": "map", "values": draw(schemas(depth - 1, defined))}
    if kind == "union":
        branches = [draw(schemas(depth - 1, defined)) for _ in range(draw(st.integers(1, 3)))]
        # fastavro tells branches apart by their unqualified names.
        simple = {_identity(branch).rpartition(".")[2]: branch for branch in branches if not isinstance(branch, list)}
        return list(simple.values()) or ["null"]
    return kind


def _named(draw: st.DrawFn, kind: str, name: str, depth: int, defined: dict[str, Any]) -> Any:
    schema: dict[str, Any] = {"type": kind, "name": name}
    defined[name] = schema
    if draw(st.integers(0, 3)) == 0:
        simple = name.rpartition(".")[2]
        schema["aliases"] = [draw(st.sampled_from(NAMESPACES)) + draw(st.sampled_from([simple, f"{simple}2"]))]
    if kind == "fixed":
        schema["size"] = draw(st.integers(1, 2))
    elif kind == "enum":
        schema["symbols"] = draw(st.lists(st.sampled_from(SYMBOLS), min_size=1, unique=True))
        if draw(st.booleans()):
            schema["default"] = schema["symbols"][0]
    else:
        names = draw(st.lists(st.sampled_from(FIELDS), max_size=3, unique=True))
        schema["fields"] = [_field(draw, name, depth, defined) for name in names]
    return schema


def _field(draw: st.DrawFn, name: str, depth: int, defined: dict[str, Any]) -> dict[str, Any]:
    kind = draw(schemas(depth - 1, defined))
    field = {"name": name, "type": kind}
    simple = kind[0] if isinstance(kind, list) and kind else kind
    if isinstance(simple, str) and simple in DEFAULTS and draw(st.booleans()):
        field["default"] = DEFAULTS[simple]
    if draw(st.integers(0, 3)) == 0:
        field["aliases"] = [draw(st.sampled_from(FIELDS))]
    return field


def _identity(schema: Any) -> str:
    if isinstance(schema, str):
        return schema
    return str(schema.get("name", schema["type"]))


@st.composite
def values(draw: st.DrawFn, kind: AvroType, depth: int = 0) -> Any:
    if isinstance(kind, Union):
        short = [branch for branch in kind.branches if branch.kind == "null"] if depth > 4 else []
        branch = draw(st.sampled_from(short or kind.branches))
        value = draw(values(branch, depth + 1))
        return (branch.full_name, value) if isinstance(branch, Named) else value
    if isinstance(kind, Record):
        if depth > 8:
            raise RecursionError
        return {field.name: draw(values(field.type, depth + 1)) for field in kind.fields}
    if isinstance(kind, Array):
        return [draw(values(kind.items, depth + 1)) for _ in range(draw(st.integers(0, 2)) * (depth < 4))]
    if isinstance(kind, Map):
        count = draw(st.integers(0, 2)) * (depth < 4)
        return {str(key): draw(values(kind.values, depth + 1)) for key in range(count)}
    if isinstance(kind, Enum):
        return draw(st.sampled_from(kind.symbols))
    if isinstance(kind, Fixed):
        return b"x" * kind.size
    return draw(_SCALARS[kind.kind])


_SCALARS = {
    "null": st.none(),
    "boolean": st.booleans(),
    "int": st.integers(-5, 5),
    "long": st.integers(-5, 5),
    "float": st.sampled_from([0.0, 0.5]),
    "double": st.sampled_from([0.0, 0.5]),
    # Bytes may be read as a string only if they are UTF-8, by the specification.
    "bytes": st.sampled_from([b"", b"ab"]),
    "string": st.sampled_from(["", "ä"]),
}


def parsed(schema: Any) -> AvroSchema:
    try:
        result = parse(Schema(json.dumps(schema)))
    except SchemaError:  # for example a branch that defined a name has been dropped
        reject()
    assert isinstance(result, AvroSchema)
    return result


@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data(), reader=schemas(), writer=schemas())
def test_what_is_compatible_is_read_by_fastavro(data: st.DataObject, reader: Any, writer: Any) -> None:
    check(data, reader, writer)


@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data(), schema=schemas())
def test_a_changed_schema_that_is_compatible_is_read_by_fastavro(data: st.DataObject, schema: Any) -> None:
    check(data, data.draw(changed(schema)), schema)
    check(data, schema, data.draw(changed(schema)))


def check(data: st.DataObject, reader: Any, writer: Any) -> None:
    reader_schema, writer_schema = parsed(reader), parsed(writer)
    if avro_differences(reader_schema.root, writer_schema.root):
        event("incompatible")
        return
    event("compatible")
    try:
        value = data.draw(values(writer_schema.root))
    except RecursionError:  # a record that contains itself has no value
        return
    written = io.BytesIO()
    fastavro.schemaless_writer(written, writer_schema.fastavro, value)
    written.seek(0)
    fastavro.schemaless_reader(written, writer_schema.fastavro, reader_schema.fastavro)
    assert not written.read()


@st.composite
def changed(draw: st.DrawFn, schema: Any) -> Any:
    """The schema with one change somewhere: promoted, wrapped in a union, a field or symbol more or less."""
    copy = json.loads(json.dumps(schema))
    places = list(_places(copy, None))
    if not places:
        return draw(st.sampled_from([[schema], ["null", schema] if schema != "null" else schema]))
    holder, key = draw(st.sampled_from(places))
    kind = holder[key]
    change = draw(st.integers(0, 3))
    if change == 0 and isinstance(kind, str) and kind in PRIMITIVES:
        holder[key] = draw(st.sampled_from(PRIMITIVES))
    elif change == 1 and not isinstance(kind, list) and kind != "null" and not isinstance(holder, list):
        holder[key] = draw(st.sampled_from([["null", kind], [kind, "null"]]))
    elif isinstance(kind, dict) and kind["type"] == "record":
        _change_fields(draw, kind)
    elif isinstance(kind, dict) and kind["type"] == "enum":
        kind["symbols"] = draw(st.permutations(SYMBOLS))
    elif isinstance(kind, list) and len(kind) > 1:
        kind.pop(draw(st.integers(0, len(kind) - 1)))
    return copy


def _places(schema: Any, holder: Any) -> Any:
    keys: list[Any] = []
    if isinstance(schema, list):
        keys = list(range(len(schema)))
    elif isinstance(schema, dict):
        keys = [key for key in ("items", "values") if key in schema]
        for field in schema.get("fields", ()):
            yield field, "type"
            yield from _places(field["type"], field)
    for key in keys:
        yield schema, key
        yield from _places(schema[key], schema)


def _change_fields(draw: st.DrawFn, record: dict[str, Any]) -> None:
    fields = record["fields"]
    if fields and draw(st.booleans()):
        fields.pop(draw(st.integers(0, len(fields) - 1)))
    free = [name for name in FIELDS if all(field["name"] != name for field in fields)]
    if free and draw(st.booleans()):
        fields.append({"name": draw(st.sampled_from(free)), "type": "int", "default": 1})
    if fields and free and draw(st.booleans()):
        field = draw(st.sampled_from(fields))
        name = draw(st.sampled_from(free))
        if all(other["name"] != name for other in fields):
            field.update(name=name, aliases=[field["name"]])
