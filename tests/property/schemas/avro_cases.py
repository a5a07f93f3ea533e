"""Avro schemas, readers' schemas that evolved from them, and values: drawn by Hypothesis, judged by fastavro."""

from __future__ import annotations

from io import BytesIO
from typing import Any

import fastavro
from hypothesis import strategies as st

_LEAVES = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
# Types of a union have values of different Python types, so that a value tells its branch; and none can be promoted to
# another, as fastavro reads the first that fits, we (and Java) the same type first.
_BRANCHES = ("boolean", "long", "string")


class Names:
    """Names of types that no other type of the schema has."""

    def __init__(self) -> None:
        self._count = 0

    def next(self) -> str:
        self._count += 1
        return f"N{self._count}"


@st.composite
def avro_schemas(draw: st.DrawFn) -> Any:
    return _record(draw, Names(), 2)


def _record(draw: st.DrawFn, names: Names, depth: int) -> Any:
    name = names.next()
    count = draw(st.integers(0 if depth < 2 else 1, 4))
    fields = [{"name": f"f{number}", "type": _type(draw, names, depth)} for number in range(count)]
    return {"type": "record", "name": name, "fields": fields}


def _type(draw: st.DrawFn, names: Names, depth: int) -> Any:
    kinds = ["leaf", "leaf", "fixed", "enum", "nullable"]
    if depth:
        kinds += ["array", "map", "record", "union", "nullable"]
    match draw(st.sampled_from(kinds)):
        case "fixed":
            return {"type": "fixed", "name": names.next(), "size": draw(st.integers(1, 9))}
        case "enum":
            return {"type": "enum", "name": names.next(), "symbols": ["A", "B", "C"][: draw(st.integers(1, 3))]}
        case "array":
            return {"type": "array", "items": _type(draw, names, depth - 1)}
        case "map":
            return {"type": "map", "values": _type(draw, names, depth - 1)}
        case "record":
            return _record(draw, names, depth - 1)
        case "nullable":
            inner = _type(draw, names, max(0, depth - 1))
            if inner == "null" or isinstance(inner, list):
                return inner
            return draw(st.permutations(["null", inner]))
        case "union":
            return draw(st.lists(st.sampled_from(("null", *_BRANCHES)), min_size=1, max_size=4, unique=True))
    return draw(st.sampled_from(_LEAVES))


def values(schema: Any) -> st.SearchStrategy[Any]:
    """Values that fastavro writes by a schema."""
    if isinstance(schema, list):
        return st.one_of(*(values(branch) for branch in schema))
    kind = schema if isinstance(schema, str) else schema["type"]
    match kind:
        case "null":
            return st.none()
        case "boolean":
            return st.booleans()
        case "int":
            return st.integers(-(1 << 31), (1 << 31) - 1)
        case "long":
            return st.integers(-(1 << 63), (1 << 63) - 1)
        case "float":
            return st.floats(width=32, allow_nan=False)
        case "double":
            return st.floats(allow_nan=False)
        case "bytes":
            return st.binary(max_size=20)
        case "string":
            return st.text(max_size=12)
        case "fixed":
            return st.binary(min_size=schema["size"], max_size=schema["size"])
        case "enum":
            return st.sampled_from(schema["symbols"])
        case "array":
            return st.lists(values(schema["items"]), max_size=4)
        case "map":
            return st.dictionaries(st.text(max_size=4), values(schema["values"]), max_size=3)
    return st.fixed_dictionaries({field["name"]: values(field["type"]) for field in schema["fields"]})


@st.composite
def evolved(draw: st.DrawFn, schema: Any) -> Any:
    """A reader's schema for what a record's schema wrote."""
    return _evolved(draw, schema)


def _evolved(draw: st.DrawFn, schema: Any) -> Any:
    if isinstance(schema, list):
        return [_evolved(draw, branch) if isinstance(branch, dict) else branch for branch in schema]
    if isinstance(schema, str):
        wider = {"int": ["long", "double"], "long": ["double"], "float": ["double"], "string": ["bytes"]}
        kind = draw(st.sampled_from([schema, schema, *wider.get(schema, [])]))
        return ["null", kind] if kind != "null" and draw(st.booleans()) else kind
    match schema["type"]:
        case "array":
            return {"type": "array", "items": _evolved(draw, schema["items"])}
        case "map":
            return {"type": "map", "values": _evolved(draw, schema["values"])}
        case "enum":
            return {**schema, "symbols": draw(st.permutations([*schema["symbols"], "Z"]))}
        case "fixed":
            return schema
    fields = []
    for field in schema["fields"]:
        change = draw(st.sampled_from(["keep", "keep", "keep", "drop", "rename"]))
        if change == "drop":
            continue
        renamed = {"name": "r" + field["name"], "aliases": [field["name"]]} if change == "rename" else {}
        fields.append({**field, "type": _evolved(draw, field["type"]), **renamed})
    if draw(st.booleans()):
        fields.append(draw(st.sampled_from(_NEW_FIELDS)))
    return {**schema, "fields": draw(st.permutations(fields))}


_NEW_FIELDS = (
    {"name": "new", "type": ["null", "string"], "default": None},
    {"name": "new", "type": "long", "default": 7},
    {"name": "new", "type": "bytes", "default": "\u007f\u0001"},
    {"name": "new", "type": {"type": "array", "items": "int"}, "default": [1, 2]},
    {"name": "new", "type": {"type": "map", "values": "string"}, "default": {"a": "b"}},
)


def encode(schema: Any, value: Any) -> bytes:
    out = BytesIO()
    fastavro.schemaless_writer(out, schema, value)
    return out.getvalue()


def read(data: bytes, writer: Any, reader: Any = None) -> Any:
    """The value by fastavro. Raises whatever it raises, and ValueError for bytes left over."""
    stream = BytesIO(data)
    value = fastavro.schemaless_reader(stream, writer, reader)
    if stream.read(1):
        raise ValueError("bytes are left over")
    return value


def in_columns(schema: Any, value: Any) -> Any:
    """A value of fastavro as the columns have it."""
    if isinstance(schema, list):
        members = [branch for branch in schema if branch != "null"]
        if value is None or not members:
            return None
        if len(members) == 1:
            return in_columns(members[0], value)
        number = next(number for number, branch in enumerate(members) if _is_of(branch, value))
        chosen = in_columns(members[number], value)
        return {f"member{place}": chosen if place == number else None for place in range(len(members))}
    kind = schema if isinstance(schema, str) else schema["type"]
    match kind:
        case "array":
            return [in_columns(schema["items"], item) for item in value]
        case "map":
            return [(key, in_columns(schema["values"], item)) for key, item in value.items()]
        case "record":
            return {field["name"]: in_columns(field["type"], value[field["name"]]) for field in schema["fields"]}
        case "bytes":
            return value.encode() if isinstance(value, str) else value
    return value


def _is_of(kind: Any, value: Any) -> bool:
    if isinstance(kind, dict):
        return {"array": list, "map": dict, "record": dict, "fixed": bytes, "enum": str}[kind["type"]] is type(value)
    return {"boolean": bool, "long": int, "string": str}[kind] is type(value)
