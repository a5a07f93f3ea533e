"""Protobuf's rules of compatibility: difference by a case that breaks it alone, and changes that break none."""

from __future__ import annotations

import pytest

from oncelog.schemas.compatibility.levels import differences
from oncelog.schemas.compatibility.protobuf import PROTOBUF_RULES
from oncelog.schemas.formats.parsed import AnySchema, parse
from oncelog.schemas.schema import Reference, Schema, SchemaType

PROTO3 = 'syntax = "proto3"; package p; '


def messages(fields: str, syntax: str = PROTO3) -> str:
    return f"{syntax}message M {{ {fields} }} message N {{ int32 n = 1; }} enum E {{ A = 0; }}"


def proto2(fields: str) -> str:
    return f"package p; message M {{ {fields} }}"


# Each with the rule, where it is broken, the reader's schema and the writer's.
BROKEN = [
    ("PACKAGE_CHANGED", "#/", "package q; message M {}", "package p; message M {}"),
    ("MESSAGE_REMOVED", "#/M", f"{PROTO3}message N {{}}", f"{PROTO3}message N {{}} message M {{}}"),
    ("MESSAGE_REMOVED", "#/M/I", messages(""), messages("message I {}")),
    ("FIELD_KIND_CHANGED", "#/M/1", messages("N a = 1;"), messages("string a = 1;")),
    ("FIELD_KIND_CHANGED", "#/M/1", messages("map<string, N> a = 1;"), messages("repeated N a = 1;")),
    ("FIELD_KIND_CHANGED", "#/M/1", proto2("optional group G = 1 {} "), proto2("message G {} optional G g = 1;")),
    ("FIELD_SCALAR_KIND_CHANGED", "#/M/1", messages("int32 a = 1;"), messages("sint32 a = 1;")),
    ("FIELD_SCALAR_KIND_CHANGED", "#/M/1", messages("fixed32 a = 1;"), messages("float a = 1;")),
    ("FIELD_SCALAR_KIND_CHANGED", "#/M/1", messages("map<string, int32> a = 1;"), messages("map<int32, int32> a = 1;")),
    ("FIELD_SCALAR_KIND_CHANGED", "#/M/1", messages("E a = 1;"), messages("string a = 1;")),
    ("FIELD_NAMED_TYPE_CHANGED", "#/M/1", messages("N a = 1;"), messages("M a = 1;")),
    ("FIELD_NUMERIC_LABEL_CHANGED", "#/M/1", messages("int32 a = 1;"), messages("repeated int32 a = 1;")),
    ("FIELD_NUMERIC_LABEL_CHANGED", "#/M/1", messages("repeated E a = 1;"), messages("optional E a = 1;")),
    ("REQUIRED_FIELD_ADDED", "#/M/1", proto2("required int32 a = 1;"), proto2("")),
    ("REQUIRED_FIELD_ADDED", "#/M/1", proto2("required string a = 1;"), proto2("optional string a = 1;")),
    ("REQUIRED_FIELD_REMOVED", "#/M/1", proto2(""), proto2("required int32 a = 1;")),
    ("ONEOF_FIELD_REMOVED", "#/M/o/2", messages("oneof o { string a = 1; }"),
     messages("oneof o { string a = 1; string b = 2; }")),
    ("MULTIPLE_FIELDS_MOVED_TO_ONEOF", "#/M/o", messages("oneof o { string a = 1; string b = 2; }"),
     messages("string a = 1; string b = 2;")),
    ("FIELD_MOVED_TO_EXISTING_ONEOF", "#/M/o", messages("oneof o { string a = 1; string b = 2; }"),
     messages("string a = 1; oneof o { string b = 2; }")),
]  # fmt: skip


def compare(reader: str, writer: str) -> list[tuple[str, str]]:
    parsed = [parse(Schema(text, SchemaType.PROTOBUF)) for text in (reader, writer)]
    return [(broken.rule.name, broken.path) for broken in differences(*parsed)]


@pytest.mark.parametrize(("rule", "path", "reader", "writer"), BROKEN)
def test_a_broken_rule_is_reported_at_its_place(rule: str, path: str, reader: str, writer: str) -> None:
    assert compare(reader, writer) == [(rule, path)]


def test_each_rule_has_a_case() -> None:
    assert {rule.name for rule in PROTOBUF_RULES} == {rule for rule, *_ in BROKEN}
    assert all("Protocol Buffers" in rule.citation or "Confluent" in rule.citation for rule in PROTOBUF_RULES)


@pytest.mark.parametrize(
    ("reader", "writer"),
    [
        (messages("string b = 1;"), messages("string a = 1;")),
        (messages("string a = 1; int32 b = 2;"), messages("string a = 1;")),
        (messages("reserved 2;"), messages("int32 a = 2;")),
        (messages("int64 a = 1;"), messages("uint32 a = 1;")),
        (messages("E a = 1;"), messages("bool a = 1;")),
        (messages("bytes a = 1;"), messages("string a = 1;")),
        (messages("repeated string a = 1;"), messages("string a = 1;")),
        (messages("optional int32 a = 1;"), messages("int32 a = 1;")),
        (messages("oneof o { int32 a = 1; }"), messages("int32 a = 1;")),
        (messages("oneof o { int32 a = 1; int32 b = 2; }"), messages("oneof o { int32 a = 1; }")),
        (messages("int32 a = 1;"), messages("oneof o { int32 a = 1; }")),
        (messages(""), messages("oneof o { int32 a = 1; }")),
        (f"{PROTO3}message B {{}} message A {{}}", f"{PROTO3}message A {{}} message B {{}}"),
        (f"{PROTO3}message A {{}}", f"{PROTO3}message A {{}} enum E {{ X = 0; }}"),
        (messages("M next = 1;"), messages("M next = 1;")),
        (messages("enum C { X = 0; Y = 1; } C c = 1;"), messages("enum C { X = 0; } C c = 1;")),
    ],
)
def test_what_reads_the_bytes_is_compatible(reader: str, writer: str) -> None:
    assert compare(reader, writer) == []


def test_a_message_of_another_version_of_a_reference_is_compared() -> None:
    def schema(field: str) -> AnySchema:
        root = Schema(
            'syntax = "proto3"; import "i.proto"; message M { i.I i = 1; }',
            SchemaType.PROTOBUF,
            (Reference("i.proto", "i", 1),),
        )
        imported = Schema(f'syntax = "proto3"; package i; message I {{ {field} }}', SchemaType.PROTOBUF)
        return parse(root, lambda _: imported)

    reader, writer = schema("string a = 1;"), schema("int32 a = 1;")
    broken = [(difference.rule.name, difference.path) for difference in differences(reader, writer)]
    assert broken == [("FIELD_SCALAR_KIND_CHANGED", "#/M/1/1")]


def test_recursive_messages_are_compared_once() -> None:
    fields = " ".join(f"M{other} f{other} = {other + 1};" for other in range(30))
    text = PROTO3 + " ".join(f"message M{number} {{ {fields} }}" for number in range(30))
    assert compare(text, text) == []
