"""A pair of Protobuf schemas that is judged compatible is so: bytes parse, and fields that both have keep their values.

Schemas and values come from a plain seeded generator. ``ONCELOG_TEST_SEEDS=100:500 pytest …`` tries other seeds.
"""

from __future__ import annotations

import os
from random import Random
from typing import Any

import pytest
from google.protobuf.descriptor import FieldDescriptor

from oncelog.schemas.compatibility.levels import differences
from oncelog.schemas.formats.parsed import parse
from oncelog.schemas.formats.protobuf.schema import ProtobufSchema
from oncelog.schemas.schema import Schema, SchemaError, SchemaType

SCALARS = (
    "int32", "int64", "uint32", "uint64", "bool", "sint32", "sint64", "string", "bytes", "fixed32", "sfixed32",
    "fixed64", "sfixed64", "float", "double",
)  # fmt: skip
PAIRS_OF_A_SEED = 40


def field_type(random: Random) -> str:
    if random.random() < 0.25:
        return random.choice(["Inner", "Kind", "map<string, Inner>", "map<int32, string>", "Message"])
    return random.choice(SCALARS)


def members(random: Random) -> dict[int, tuple[str, str, str | None]]:
    """Fields by number: label, type, and the oneof around them."""
    fields: dict[int, tuple[str, str, str | None]] = {}
    for number in range(1, 6):
        if random.random() < 0.7:
            kind = field_type(random)
            oneof = random.choice([None, None, "one", "two"]) if not kind.startswith("map") else None
            label = "" if oneof or kind.startswith("map") else random.choice(["", "", "repeated ", "optional "])
            fields[number] = (label, kind, oneof)
    return fields


def changed(random: Random, fields: dict[int, tuple[str, str, str | None]]) -> dict[int, tuple[str, str, str | None]]:
    others = members(random)
    numbers = random.sample(range(1, 6), random.randint(1, 2))
    result = {number: field for number, field in fields.items() if number not in numbers}
    return result | {number: others[number] for number in numbers if number in others}


def text(fields: dict[int, tuple[str, str, str | None]]) -> str:
    lines = [f"{label}{kind} f{number} = {number};" for number, (label, kind, oneof) in fields.items() if oneof is None]
    for name in ("one", "two"):
        inner = [f"{kind} f{number} = {number};" for number, (_, kind, oneof) in fields.items() if oneof == name]
        if inner:
            lines.append(f"oneof {name} {{ {' '.join(inner)} }}")
    body = "\n".join(lines)
    types = "message Inner { int32 i = 1; } enum Kind { A = 0; B = 1; }"
    return f'syntax = "proto3"; message Message {{ {body} {types} }}'


def parsed(source: str) -> ProtobufSchema:
    schema = parse(Schema(source, SchemaType.PROTOBUF))
    assert isinstance(schema, ProtobufSchema)
    return schema


def fill(random: Random, message: Any, depth: int = 0) -> None:
    for field in message.DESCRIPTOR.fields:
        if random.random() < 0.3:
            continue
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            entry = getattr(message, field.name)
            if field.message_type.fields_by_name["value"].message_type is not None:
                entry["k"].i = 7
            else:
                entry[3] = "v"
        elif field.message_type is not None:
            inner = getattr(message, field.name)
            inner = inner.add() if field.is_repeated else inner
            inner.SetInParent()
            if depth < 2:
                fill(random, inner, depth + 1)
        else:
            value = scalar(field)
            if field.is_repeated:
                getattr(message, field.name).extend([value, value])
            else:
                setattr(message, field.name, value)


def scalar(field: Any) -> Any:
    """A value that has the same meaning in each type of the same encoding."""
    if field.enum_type is not None:
        return 1
    values: dict[int, Any] = {
        FieldDescriptor.CPPTYPE_BOOL: True,
        FieldDescriptor.CPPTYPE_FLOAT: 1.0,
        FieldDescriptor.CPPTYPE_DOUBLE: 1.0,
        FieldDescriptor.CPPTYPE_STRING: b"t" if field.type == FieldDescriptor.TYPE_BYTES else "t",
    }
    return values.get(field.cpp_type, 1)


def number_of(value: Any) -> Any:
    """Values of one encoding made equal: True and 1, text and its bytes."""
    return value.encode() if isinstance(value, str) else value + 0 if isinstance(value, (bool, int, float)) else value


def check_kept(writer: Any, reader: Any) -> None:
    reader_fields = {field.number: field for field in reader.DESCRIPTOR.fields}
    for field, value in writer.ListFields():
        other = reader_fields.get(field.number)
        if other is None:
            continue
        read = getattr(reader, other.name)
        if field.message_type is not None:
            assert len(read) == len(value) if other.is_repeated and field.is_repeated else True
            if not field.is_repeated and not other.is_repeated:
                check_kept(value, read)
            continue
        written = list(value) if field.is_repeated else [value]
        kept = list(read) if other.is_repeated else [read]
        # Of several texts a single field keeps the last, as Protobuf's guide says.
        expected = written if other.is_repeated else written[-1:]
        assert [number_of(item) for item in kept] == [number_of(item) for item in expected], (
            field.name,
            writer,
            reader,
        )


def seeds() -> range:
    first, _, last = os.environ.get("ONCELOG_TEST_SEEDS", "0:8").partition(":")
    return range(int(first), int(last))


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds())
def test_bytes_keep_their_values(seed: int) -> None:
    random = Random(seed)
    compatible = 0
    for _ in range(PAIRS_OF_A_SEED):
        fields = members(random)
        sources = text(fields), text(changed(random, fields))
        for source, other in (sources, sources[::-1]):
            try:
                writer, reader = parsed(source), parsed(other)
            except SchemaError:
                pytest.fail(f"not valid: {source} {other}")
            if differences(reader, writer):
                continue
            compatible += 1
            message = writer.message_class((0,))()
            fill(random, message)
            check_kept(message, reader.message_class((0,)).FromString(message.SerializeToString()))
    assert compatible > 3
