"""Protobuf schemas: text in a registry's layout, descriptors, message indexes, and what is refused."""

from __future__ import annotations

import base64
from textwrap import dedent

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto

from oncelog.schemas.formats import limits
from oncelog.schemas.formats.parsed import parse
from oncelog.schemas.formats.protobuf.schema import ProtobufSchema
from oncelog.schemas.schema import Reference, Schema, SchemaError, SchemaType


def proto(text: str, references: dict[str, str] | None = None) -> ProtobufSchema:
    texts = {name: Schema(value, SchemaType.PROTOBUF) for name, value in (references or {}).items()}
    schema = Schema(text, SchemaType.PROTOBUF, tuple(Reference(name, name, 1) for name in texts))
    parsed = parse(schema, lambda reference: texts[reference.name])
    assert isinstance(parsed, ProtobufSchema)
    return parsed


EVERYTHING = """
    syntax = "proto3"; // a comment
    package shop.v1;
    /* another */
    import "google/protobuf/timestamp.proto";
    import "confluent/meta.proto";
    option java_package = "shop" "\\u0041";
    enum Color { reserved 4 to max; reserved "PINK"; RED = 0; BLUE = 0x2 [deprecated = true]; }
    message Order {
      oneof payment { string card = 5; Coupon coupon = 6; }
      int64 id = 1 [(confluent.field_meta) = { doc: "it's", params: [{ key: "k" value: "v" }] }, deprecated = true];
      optional google.protobuf.Timestamp at = 2;
      map<string, Color> colors = 3;
      repeated .shop.v1.Order.Line lines = 4 [packed = false];
      enum Kind { UNKNOWN = 0; }
      message Line { reserved 1, 3 to 5; string sku = 2 [json_name = "SKU"]; }
    }
    message Coupon {}
    service Shop { rpc Buy (stream Order) returns (Coupon) { option deprecated = true; } }
"""
# A blank line within a nested message has its indentation.
CANONICAL = """\
syntax = "proto3";
package shop.v1;

import "google/protobuf/timestamp.proto";
import "confluent/meta.proto";

option java_package = "shopA";

message Order {
  int64 id = 1 [
    (confluent.field_meta) = {
      doc: "it\\'s",
      params: [
        {
          key: "k",
          value: "v"
        }
      ]
    },
    deprecated = true
  ];
  optional google.protobuf.Timestamp at = 2;
  map<string, Color> colors = 3;
  repeated .shop.v1.Order.Line lines = 4 [packed = false];

  oneof payment {
    string card = 5;
    Coupon coupon = 6;
  }

  message Line {
    reserved 1, 3 to 5;
{"  "}
    string sku = 2 [json_name = "SKU"];
  }
  enum Kind {
    UNKNOWN = 0;
  }
}
message Coupon {}
enum Color {
  reserved 4 to max;
  reserved "PINK";
  RED = 0;
  BLUE = 2 [deprecated = true];
}

service Shop {
  rpc Buy (stream Order) returns (Coupon) {
    option deprecated = true;
  };
}
""".replace('{"  "}', "  ")


def test_canonical_text_has_the_registrys_layout() -> None:
    parsed = proto(EVERYTHING)
    assert parsed.canonical == CANONICAL
    assert proto(CANONICAL).canonical == CANONICAL
    assert parsed.name == "shop.v1.Order"


def test_a_descriptor_in_base64_is_the_same_schema() -> None:
    parsed = proto(CANONICAL)
    encoded = proto(parsed.serialized)
    assert encoded.canonical != parsed.canonical  # a descriptor has full names, and map entries are messages
    assert encoded.normalized == parsed.normalized
    assert encoded.serialized == parsed.serialized
    assert proto(encoded.canonical).serialized == parsed.serialized


def test_options_are_interpreted_in_the_descriptor() -> None:
    file = FileDescriptorProto.FromString(base64.b64decode(proto(EVERYTHING).serialized))
    order = file.message_type[0]
    assert file.options.java_package == "shopA"
    assert not file.options.uninterpreted_option
    identifier = next(field for field in order.field if field.name == "id")
    assert identifier.options.deprecated
    assert b"it's" in identifier.options.SerializeToString()


def test_normalized_text_ignores_order_and_spelling() -> None:
    first = proto(
        'syntax = "proto3"; package p; import "google/protobuf/empty.proto"; message A { B b = 2; int32 a = 1;'
        " reserved 5, 3 to 3; oneof z { int32 y = 9; int32 x = 8; } } message B { option deprecated = true; }"
    )
    other = proto(
        'syntax = "proto3"; import "google/protobuf/empty.proto"; package p; message A { reserved 3; reserved 5;'
        " int32 a = 1; .p.B b = 2; oneof z { int32 x = 8; int32 y = 9; } } message B { option deprecated = true; }"
    )
    assert first.canonical != other.canonical
    assert first.normalized == other.normalized
    assert "  .p.B b = 2;\n" in first.normalized


def test_the_order_of_messages_has_a_meaning() -> None:
    first, other = proto("message A {} message B {}"), proto("message B {} message A {}")
    assert first.normalized != other.normalized


def test_messages_are_found_by_their_indexes_in_the_text() -> None:
    parsed = proto(EVERYTHING)
    assert parsed.message_name((0, 0)) == "shop.v1.Order.Line"
    assert parsed.message_name(()) == "shop.v1.Order"
    assert parsed.message_path("shop.v1.Coupon") == (1,)
    # In a descriptor the entry of the map is a message, too, and comes first.
    encoded = proto(parsed.serialized)
    assert encoded.message_path("shop.v1.Order.Line") == (0, 1)
    with pytest.raises(SchemaError, match="no message at the indexes"):
        parsed.message_name((2,))
    with pytest.raises(SchemaError, match='no message "shop'):
        parsed.message_path("shop.v1.None")


def test_values_are_read_by_the_class_of_a_message() -> None:
    message = proto(EVERYTHING).message_class((0,))(id=7, card="c", colors={"a": 2})
    again = proto(EVERYTHING).message_class((0,)).FromString(message.SerializeToString())
    assert (again.id, again.card, again.colors["a"]) == (7, "c", 2)


def test_imports_are_references_and_public_imports_pass_types_on() -> None:
    references = {
        "a.proto": 'syntax = "proto3"; package a; import public "b.proto";',
        "b.proto": 'syntax = "proto3"; package b; message B { string s = 1; }',
    }
    parsed = proto('syntax = "proto3"; import "a.proto"; message M { b.B b = 1; }', references)
    assert [file.name for file in parsed.files][-3:] == ["b.proto", "a.proto", "default"]


def test_a_file_that_only_imports_publicly_stands_for_the_imported_one() -> None:
    parsed = proto('syntax = "proto3"; import public "b.proto";', {"b.proto": "package b; message B {}"})
    assert parsed.message_name((0,)) == "b.B"


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("google/protobuf/wrappers.proto", "google.protobuf.StringValue"),
        ("google/type/money.proto", "google.type.Money"),
        ("confluent/type/decimal.proto", "confluent.type.Decimal"),
    ],
)
def test_well_known_files_need_no_reference(path: str, kind: str) -> None:
    assert proto(f'syntax = "proto3"; import "{path}"; message M {{ {kind} v = 1; }}').name == "M"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('import "os.proto";', 'the import "os.proto" is not among the references'),
        ('import "google/protobuf/../../os.proto";', "is not among the references"),
        ("message A { B b = 1; }", 'the type "B" is not defined'),
        ("message A { int32 a = 0; }", "a field number from 1"),
        ("message A { int32 a = 19500; }", "outside 19000 to 19999"),
        ("message A { int32 a = 1; int32 b = 1; }", "not valid"),
        ("message A {} message A {}", "not valid"),
        ('syntax = "proto4";', "proto2"),
        ('syntax = "proto3"; enum E { A = 1; }', "not valid"),
        ("message A {", "line 1 of .* 'the end of the file'"),
        ("message A { int32 a = 1 }\n", "expected ';'"),
        ("message A { option no_such = 1; }", "not valid"),
        ("message A { int32 a = 1 [deprecated = 7]; }", "not valid"),
        ("message A { reserved 5 to 3; }", "ends before it begins"),
        ("message A { repeated map<string, string> m = 1; }", "a map has none"),
        ("/* never closed", "line 1"),
        ("message M {" * 34 + "}" * 34, "at most 32 deep"),
        ("message M { optional int32 a = 1 [(x) = " + "{a:" * 200 + "}" * 200 + "]; }", "at most 100 deep"),
    ],
)  # fmt: skip
def test_what_is_not_protobuf_is_refused(text: str, message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        proto(text)


def test_texts_are_utf_8() -> None:
    with pytest.raises(SchemaError, match="not UTF-8"):
        proto('message A { optional string a = 1 [default = "\\xff"]; }')
    descriptor = FileDescriptorProto(name="a", dependency=["imported"]).SerializeToString()
    with pytest.raises(SchemaError, match="not UTF-8"):
        proto(base64.b64encode(descriptor.replace(b"imported", b"import\xff\xff")).decode())


def test_names_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MAX_NAMES", 100)
    proto("message A { " + "".join(f"int32 f{i} = {i + 1};" for i in range(99)) + "}")
    with pytest.raises(SchemaError, match="at most 100 names"):
        proto("message A { " + "".join(f"int32 f{i} = {i + 1};" for i in range(100)) + "}")


def test_files_that_import_each_other_are_refused() -> None:
    with pytest.raises(SchemaError, match="in a circle"):
        proto('import "a.proto";', {"a.proto": 'import "b.proto";', "b.proto": 'import "a.proto";'})


def test_a_relative_name_is_looked_up_where_its_first_part_is() -> None:
    text = """
        package a;
        message Outer { message b { message X {} } message Inner { b.X x = 1; } }
        message b { message Y {} }
        message Other { b.Y y = 1; }
    """
    assert proto(dedent(text)).normalized.count(".a.Outer.b.X x = 1;") == 1
    with pytest.raises(SchemaError, match="is not defined"):
        proto(text.replace("b.X x = 1", "b.Y x = 1"))
