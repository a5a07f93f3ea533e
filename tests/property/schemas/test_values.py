"""Values by one schema, read by another, equal those of fastavro, and of protobuf with protoc's descriptors."""

from __future__ import annotations

import io
import json
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import fastavro
from google.protobuf import descriptor_pool, json_format, message_factory
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from grpc_tools import protoc
from hypothesis import given, settings
from hypothesis import strategies as st

from oncelog.schemas.formats.avro.schema import AvroSchema, parse_avro
from oncelog.schemas.formats.protobuf.schema import ProtobufSchema, parse_protobuf
from oncelog.schemas.schema import Schema, SchemaType
from oncelog.schemas.values.avro import AvroCodec
from oncelog.schemas.values.avro_input import fitted
from oncelog.schemas.values.decoding import Decoded
from oncelog.schemas.values.json_output import as_json
from oncelog.schemas.values.protobuf import ProtobufCodec

TIMES = {"type": "long", "logicalType": "timestamp-micros"}
DAYS = {"type": "int", "logicalType": "date"}
MONEY = {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 3}
SCALARS: list[tuple[Any, Any, st.SearchStrategy[Any], Any]] = [
    ("int", "long", st.integers(-(2**31), 2**31 - 1), 0),
    ("int", "double", st.integers(-(2**31), 2**31 - 1), 0.5),
    ("long", "long", st.integers(-(2**63), 2**63 - 1), -1),
    ("double", "double", st.floats(allow_nan=False), 1.5),
    ("boolean", "boolean", st.booleans(), False),
    ("string", "string", st.text(), "?"),
    ("bytes", "bytes", st.binary(), "ÿ"),
    (TIMES, TIMES, st.datetimes().map(lambda moment: moment.isoformat() + "+00:00"), 0),
    (DAYS, DAYS, st.dates().map(str), 0),
    (MONEY, MONEY, st.decimals(-(10**8), 10**8, places=3).map(str), "\0"),
]
"""Types as written and as read, values as JSON has them or as Python does, and a default of the reader's type."""

Field = tuple[Any, Any, st.SearchStrategy[Any], Any]


def _list_of(inner: Field) -> Field:
    written, read, values, _ = inner
    return {"type": "array", "items": written}, {"type": "array", "items": read}, st.lists(values, max_size=4), []


def _map_of(inner: Field) -> Field:
    written, read, values, _ = inner
    entries = st.dictionaries(st.text(max_size=3), values, max_size=3)
    return {"type": "map", "values": written}, {"type": "map", "values": read}, entries, {}


def _optional(inner: Field) -> Field:
    written, read, values, _ = inner
    return ["null", written], ["null", read], st.none() | values, None


def _is_no_union(field: Field) -> bool:
    return not isinstance(field[0], list)


FIELDS: st.SearchStrategy[Field] = st.recursive(
    st.sampled_from(SCALARS),
    lambda inner: inner.map(_list_of) | inner.map(_map_of) | inner.filter(_is_no_union).map(_optional),
    max_leaves=4,
)


@st.composite
def cases(draw: st.DrawFn) -> tuple[Any, Any, Any]:
    """The writer's schema, the reader's (fewer, more, promoted and reordered fields), and a value of the writer's."""
    fields = draw(st.lists(FIELDS, min_size=1, max_size=5))
    written = [{"name": f"f{number}", "type": field[0]} for number, field in enumerate(fields)]
    kept = draw(st.lists(st.sampled_from(range(len(fields))), unique=True))
    read = [{"name": f"f{number}", "type": fields[number][1]} for number in kept]
    for number, field in enumerate(draw(st.lists(FIELDS, max_size=2))):
        read.append({"name": f"new{number}", "type": field[1], "default": field[3]})
    value = {f"f{number}": draw(field[2]) for number, field in enumerate(fields)}
    return _record(written), _record(read), value


def _record(fields: list[dict[str, Any]]) -> dict[str, Any]:
    return {"type": "record", "name": "R", "fields": fields}


def _parsed(document: Any) -> AvroSchema:
    return parse_avro(Schema(json.dumps(document)), {})


@settings(max_examples=60, deadline=None)
@given(cases())
def test_avro_equals_fastavro(case: tuple[Any, Any, Any]) -> None:
    written, read, value = case
    writer, reader = _parsed(written), _parsed(read)
    data = AvroCodec(writer).write(value)
    target = io.BytesIO()
    fastavro.schemaless_writer(target, fastavro.parse_schema(written), fitted(writer.root, value))
    assert data == target.getvalue()
    meant = fastavro.schemaless_reader(io.BytesIO(data), fastavro.parse_schema(written), fastavro.parse_schema(read))
    for field in read["fields"]:
        if field["name"].startswith("new"):  # fastavro has the JSON of a default
            only = _parsed(_record([{"name": field["name"], "type": field["type"]}]))
            codec = AvroCodec(only)
            meant |= codec.read(codec.write({field["name"]: field["default"]}))
    assert AvroCodec(writer, reader).read(data) == meant
    plain = AvroCodec(writer).read(data)
    text = as_json(Decoded(plain, "1", Schema("{}"), "", data))
    assert AvroCodec(writer).write(json.loads(text)) == data, "what consume prints is what produce takes"


OLD = """syntax = "proto3";
message M {
  message In { sint32 a = 1; repeated bool flags = 2; }
  enum E { ZERO = 0; ONE = 1; }
  oneof pick { string s = 1; In in = 2; fixed64 f = 3; }
  repeated In many = 4;
  map<int32, string> names = 5;
  E e = 6;
  bytes raw = 7;
  double d = 8;
  optional uint64 u = 9;
  repeated sfixed32 packed = 10;
}
"""
NEW = (
    OLD.replace("double d = 8;", "string added = 20;")
    .replace("string s = 1;", "string renamed = 1;")
    .replace("ONE = 1;", "FIRST = 1; TWO = 2;")
)
INNER = st.fixed_dictionaries({}, optional={"a": st.integers(-(2**31), 2**31 - 1), "flags": st.lists(st.booleans())})
PICK = st.one_of(
    st.fixed_dictionaries({"s": st.text()}),
    st.fixed_dictionaries({"in": INNER}),
    st.fixed_dictionaries({"f": st.integers(0, 2**64 - 1)}),
    st.just({}),
)
REST = st.fixed_dictionaries(
    {},
    optional={
        "many": st.lists(INNER, max_size=3),
        "names": st.dictionaries(st.integers(-(2**31), 2**31 - 1).map(str), st.text(), max_size=3),
        "e": st.sampled_from(["ZERO", "ONE"]),
        "d": st.floats(allow_nan=False, allow_infinity=False),
        "u": st.integers(0, 2**64 - 1),
        "packed": st.lists(st.integers(-(2**31), 2**31 - 1), max_size=4),
    },
)


@cache
def _ours(text: str) -> ProtobufSchema:
    return parse_protobuf(Schema(text, SchemaType.PROTOBUF), {})


@cache
def _protocs(text: str) -> Any:
    """The class of ``M`` by protoc's descriptors."""
    with tempfile.TemporaryDirectory() as directory:
        source, target = Path(directory) / "m.proto", Path(directory) / "m.desc"
        source.write_text(text)
        assert protoc.main(["protoc", f"-I{directory}", f"--descriptor_set_out={target}", str(source)]) == 0
        files = FileDescriptorSet.FromString(target.read_bytes()).file
    pool = descriptor_pool.DescriptorPool()
    pool.Add(files[0])
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("M"))


@settings(max_examples=60, deadline=None)
@given(PICK, REST)
def test_protobuf_equals_protobuf(pick: dict[str, Any], rest: dict[str, Any]) -> None:
    value = pick | rest
    path, data = ProtobufCodec(_ours(OLD)).write(value)
    message = json_format.ParseDict(value, _protocs(OLD)())
    assert data == message.SerializeToString(deterministic=True)
    for text in (OLD, NEW):
        meant = json_format.MessageToDict(_protocs(text).FromString(data), preserving_proto_field_name=True)
        read = ProtobufCodec(_ours(OLD), _ours(text)).read(path + data, b"", False)[0]
        assert read == meant
