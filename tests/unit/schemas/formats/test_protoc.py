"""Protobuf's own compiler as the judge of ours: the same descriptors, and the same texts refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto, FileDescriptorSet
from grpc_tools import protoc

from oncelog.schemas.formats.protobuf.schema import ProtobufSchema, parse_protobuf
from oncelog.schemas.schema import Schema, SchemaError, SchemaType
from tests.unit.schemas.formats.test_protobuf import CANONICAL

pytestmark = pytest.mark.slow

VALID = {
    "proto2": """
        syntax = "proto2"; package a.b;
        message M {
          required int32 a = 1; optional string s = 2 [default = "it's\\n\\"x\\""];
          repeated int64 r = 3 [packed = true];
          optional bytes b = 4 [default = "\\000\\xff"]; optional float f = 5 [default = 1.5e3];
          optional double inf = 6 [default = -inf]; optional bool t = 7 [default = true];
          optional Kind k = 8 [default = TWO]; optional int32 n = 9 [default = -0x10];
          optional double d = 10 [default = 3];
          optional group Grp = 11 { optional int32 x = 1; } extensions 100 to 199, 500 to max;
          oneof o { string q = 12; group Other = 13 { optional M m = 1; } }
          enum Kind { option allow_alias = true; ONE = 1; TWO = 2; DEUX = 2; NEG = -1; }
          extend M { optional string inner = 102; }
        }
        extend M { optional int32 outer = 100; repeated .a.b.M more = 101; }
    """,
    "maps between types": """
        syntax = "proto3";
        message M { map<string, N> first = 1; message P {} map<int32, N.Deep> snake_case_name = 2; }
        message N { message Deep {} }
        message O { optional int32 x = 1; optional string other = 2;
          oneof y { int32 z = 3; } }
    """,
    "scopes": """
        syntax = "proto3"; package a.b;
        message Outer {
          message b { message X {} }
          message Inner { b.X x = 1; Outer o = 2; .a.b.Y y = 3; a.b.Y z = 4; }
        }
        message Y { Outer.Inner i = 1; Outer.b.X x = 2; }
    """,
    "services": """
        syntax = "proto3"; package s; message Q {}
        import "google/protobuf/empty.proto";
        service S { option deprecated = true; rpc A(Q) returns (stream Q);
          rpc B(stream .s.Q) returns (google.protobuf.Empty) {
          option idempotency_level = IDEMPOTENT; } }
    """,
    "options": """
        syntax = "proto3"; import "google/protobuf/descriptor.proto";
        option java_package = "a" 'b'; option optimize_for = SPEED;
        message Opt { int32 a = 1; repeated string b = 2; Opt c = 3; map<string, int32> m = 4; }
        extend google.protobuf.FieldOptions { Opt opt = 50000; repeated int32 many = 50001; }
        extend google.protobuf.MessageOptions { string label = 50000; }
        message M {
          option (label) = "x"; option deprecated = true;
          int32 a = 1 [(opt) = {a: 1, b: ["x", "y"] c { a: -2 } m: [{key: "k" value: 3}]}, (many) = 1, (many) = 0x2];
          int32 b = 2 [(opt).c.a = 5, (opt).a = 6, json_name = "bee"];
        }
    """,
    "editions": """
        edition = "2023"; package e; option features.field_presence = IMPLICIT;
        message M { int32 a = 1; string s = 2 [features.field_presence = EXPLICIT]; repeated int32 r = 3; N n = 4; }
        message N { M m = 1 [features = { message_encoding: DELIMITED }]; reserved foo, bar; }
    """,
}
INVALID = [
    'syntax = "proto3"; message M { int32 a = 1; string a = 2; }',
    'syntax = "proto3"; message M { int32 a = 1; string b = 1; }',
    'syntax = "proto3"; message M { required int32 a = 1; }',
    'syntax = "proto3"; message M { int32 a = 1 [default = 1]; }',
    'syntax = "proto3"; enum E { A = 1; }',
    'syntax = "proto3"; enum E {}',
    'syntax = "proto3"; message M { oneof o {} }',
    'syntax = "proto3"; message M { map<float, int32> m = 1; }',
    'syntax = "proto3"; message M { int32 foo_bar = 1; int32 fooBar = 2; }',
    'syntax = "proto2"; message M { optional int32 a = 536870912; }',
    'syntax = "proto2"; message M { optional int32 a = 1 [default = 1.5]; }',
    'syntax = "proto2"; message M {} extend M { optional int32 a = 1; }',
    'syntax = "proto3"; import "google/protobuf/none.proto";',
    'syntax = "proto3"; message M { M.None m = 1; }',
    'syntax = "proto3"; enum E { A = 0; } enum F { A = 0; }',
    'syntax = "proto3"; service S { rpc A(int32) returns (S); }',
]


def ours(text: str) -> ProtobufSchema:
    return parse_protobuf(Schema(text, SchemaType.PROTOBUF), {})


def theirs(text: str, directory: Path) -> FileDescriptorProto | None:
    (directory / "default").write_text(text)
    (directory / "out").unlink(missing_ok=True)
    include = Path(protoc.__file__).parent / "_proto"
    arguments = ["protoc", f"-I{directory}", f"-I{include}", f"--descriptor_set_out={directory / 'out'}", "default"]
    if protoc.main(arguments):
        return None
    return FileDescriptorSet.FromString((directory / "out").read_bytes()).file[0]


def without_derived_names(file: FileDescriptorProto) -> FileDescriptorProto:
    """Without each json_name that follows from the name, which protoc alone writes."""
    for field in file.extension:
        _drop_derived(field)
    for message in file.message_type:
        _clear(message)
    return file


def _clear(message: DescriptorProto) -> None:
    for field in (*message.field, *message.extension):
        _drop_derived(field)
    for nested in message.nested_type:
        _clear(nested)


def _drop_derived(field: FieldDescriptorProto) -> None:
    first, *others = field.name.split("_")
    if field.json_name == first + "".join(part[:1].upper() + part[1:] for part in others):
        field.ClearField("json_name")


@pytest.mark.parametrize("name", list(VALID))
def test_descriptors_are_protocs(name: str, tmp_path: Path) -> None:
    compiled = theirs(VALID[name], tmp_path)
    assert compiled is not None
    assert without_derived_names(ours(VALID[name]).files[-1]) == without_derived_names(compiled)


@pytest.mark.parametrize("name", list(VALID))
def test_canonical_and_normalized_text_are_the_same_schema_to_protoc(name: str, tmp_path: Path) -> None:
    parsed = ours(VALID[name])
    for text in (parsed.canonical, parsed.normalized):
        compiled = theirs(text, tmp_path)
        assert compiled is not None, text
        assert ours(text).normalized == parsed.normalized


@pytest.mark.parametrize("text", INVALID)
def test_what_protoc_refuses_is_refused(text: str, tmp_path: Path) -> None:
    assert theirs(text, tmp_path) is None
    with pytest.raises(SchemaError):
        ours(text)


def test_the_registrys_text_of_meta_options_is_ours() -> None:
    assert ours(CANONICAL).serialized == ours(ours(CANONICAL).canonical).serialized
