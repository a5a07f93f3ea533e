"""Values with a part that Python cannot express, and values that begin as a frame does: the rest is shown."""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import msgpack
import pytest
from google.protobuf import any_pb2, descriptor_pb2, struct_pb2, timestamp_pb2

from oncelog.console.formats.decoder_process import DecodingProcess
from oncelog.console.formats.schema_files import read_schemas
from oncelog.console.records.decoding import Decoder, Shown
from tests.unit.console.formats.samples import avro, avro_file, shop_file

pytestmark = pytest.mark.slow


def record(**types: Any) -> dict[str, Any]:
    """An Avro record with these fields."""
    return {"type": "record", "name": "R", "fields": [{"name": name, "type": kind} for name, kind in types.items()]}


def logical(kind: str, name: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "logicalType": name, **more}


TIMES = record(id="string", at=logical("long", "timestamp-millis"))
PLAIN_TIMES = record(id="string", at="long")
PRICES = record(price=logical("bytes", "decimal", precision=4, scale=2))
PLAIN_PRICES = record(price="bytes")
FLOATS = record(x="double", y="double", z="double", w="float")
DELTAS = record(delta="long", name="string")
TEXTS = record(id="long", text="string")
PLAIN_TEXTS = record(id="long", text="bytes")
SCHEMAS = {"times": TIMES, "prices": PRICES, "floats": FLOATS, "deltas": DELTAS, "texts": TEXTS}


def events_file(directory: Path) -> Path:
    """The descriptor set of ``shop.Event``, beside those of Any, Struct and Timestamp."""
    files = descriptor_pb2.FileDescriptorSet()
    for module in (any_pb2, struct_pb2, timestamp_pb2):
        module.DESCRIPTOR.CopyToProto(files.file.add())
    names = [entry.name for entry in files.file]
    file = files.file.add(name="event.proto", package="shop", syntax="proto3", dependency=names)
    event = file.message_type.add(name="Event")
    event.field.add(name="id", number=1, type=9, label=1)
    for number, (name, kind) in enumerate([("detail", "Any"), ("at", "Timestamp"), ("free", "Struct")], 2):
        event.field.add(name=name, number=number, type=11, label=1, type_name=f".google.protobuf.{kind}")
    event.field.add(name="parts", number=5, type=11, label=3, type_name=".shop.Event")
    path = directory / "event.desc"
    path.write_bytes(files.SerializeToString())
    return path


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DecodingProcess]:
    directory = tmp_path_factory.mktemp("schemas")
    options = [f"{name}={avro_file(directory, name + '.avsc', schema)}" for name, schema in SCHEMAS.items()]
    options += [f"events={events_file(directory)}:shop.Event", f"payments={shop_file(directory)}:shop.Payment"]
    made = DecodingProcess(read_schemas(options))
    made.ready()
    yield made
    made.close()


def shown(process: DecodingProcess, topic: str, data: bytes, form: str = "auto") -> Shown:
    value = Decoder(process).value(topic, data, (), form, 100_000)
    assert value.error is None
    return value


def fields(result: Shown) -> Any:
    return json.loads(str(result.text))


@pytest.mark.parametrize("at", [253_402_300_800_000, -62_135_596_800_001, 2**63 - 1, -(2**63)])
def test_a_time_that_python_does_not_have_is_raw(process: DecodingProcess, at: int) -> None:
    result = shown(process, "times", avro(PLAIN_TIMES, {"id": "a", "at": at}))
    assert fields(result) == {"id": "a", "at": at}
    assert result.note == "1 of type timestamp-millis cannot be expressed, shown raw"
    assert shown(process, "times", avro(PLAIN_TIMES, {"id": "a", "at": 0})).note == ""


@pytest.mark.parametrize(
    ("unscaled", "text", "is_beyond"),
    [
        (123456789, "1234567.89", True),
        (1234, "12.34", False),
        (-5, "-0.05", False),
        (0, "0.00", False),
        (-(10**60), "-1" + "0" * 58 + ".00", True),
    ],
)
def test_decimals_have_all_their_digits(process: DecodingProcess, unscaled: int, text: str, is_beyond: bool) -> None:
    data = unscaled.to_bytes(unscaled.bit_length() // 8 + 1, "big", signed=True)
    result = shown(process, "prices", avro(PLAIN_PRICES, {"price": data}))
    assert fields(result) == {"price": text}
    assert bool(result.note) is is_beyond
    if not is_beyond:
        assert result.text == shown(process, "prices", avro(PRICES, {"price": Decimal(text)})).text


def test_numbers_that_json_does_not_have_are_text(process: DecodingProcess) -> None:
    result = shown(process, "floats", avro(FLOATS, {"x": math.nan, "y": math.inf, "z": -math.inf, "w": -0.0}))
    assert result.text == '{\n  "x": "NaN",\n  "y": "Infinity",\n  "z": "-Infinity",\n  "w": -0.0\n}'


def test_text_that_is_not_utf_8_is_shown_with_its_bytes(process: DecodingProcess) -> None:
    result = shown(process, "texts", avro(PLAIN_TEXTS, {"id": 7, "text": b"a\xff"}))
    assert fields(result) == {"id": 7, "text": "a\\xff"}
    assert "not UTF-8" in result.note
    result = shown(process, "events", b"\x0a\x02a\xff\x1a\x02\x08\x05\x2a\x03\x0a\x01b")
    assert fields(result) == {"id": "a\\xff", "at": {"seconds": "5"}, "parts": [{"id": "b"}]}
    assert "not UTF-8" in result.note


def test_payloads_that_begin_as_single_objects_do(process: DecodingProcess) -> None:
    value = {"delta": -98, "name": "a good record"}
    data = avro(DELTAS, value)
    assert data[:2] == b"\xc3\x01"
    framed = struct.pack(">bI", 0, 7) + data
    for given in (data, framed, avro(DELTAS, value | {"name": ""})):
        assert fields(shown(process, "deltas", given))["delta"] == -98
    form = fastavro.schema.to_parsing_canonical_form(fastavro.parse_schema(DELTAS))
    own = bytes.fromhex(fastavro.schema.fingerprint(form, "CRC-64-AVRO"))
    single = shown(process, "deltas", b"\xc3\x01" + own + data)
    assert fields(single) == value
    assert single.note == f"single object of the schema with fingerprint {own[::-1].hex()}"


def test_one_odd_field_of_a_message_is_raw(process: DecodingProcess) -> None:
    unknown = any_pb2.Any(type_url="type.googleapis.com/elsewhere.Thing", value=b"\x08\x01")
    late = timestamp_pb2.Timestamp(seconds=253_402_300_800)
    free = struct_pb2.Struct(fields={"n": struct_pb2.Value(number_value=math.nan)})
    inner = b"\x0a\x01b" + b"\x12" + bytes([unknown.ByteSize()]) + unknown.SerializeToString()
    data = b"\x0a\x01a"
    for tag, part in ((0x12, unknown), (0x1A, late), (0x22, free)):
        data += bytes([tag, part.ByteSize()]) + part.SerializeToString()
    data += bytes([0x2A, len(inner)]) + inner
    result = shown(process, "events", data)
    raw = {"type_url": "type.googleapis.com/elsewhere.Thing", "value": "CAE="}
    assert fields(result) == {
        "id": "a",
        "detail": raw,
        "at": {"seconds": "253402300800"},
        "free": {"fields": {"n": {"number_value": "NaN"}}},
        "parts": [{"id": "b", "detail": raw}],
    }
    assert result.note.startswith("shop.Event, shown raw: google.protobuf.Any: ")
    assert "and 1 more" in result.note


def test_a_message_behind_an_id_without_a_path(process: DecodingProcess) -> None:
    result = shown(process, "payments", struct.pack(">bI", 0, 3) + b"\x0a\x03ann")
    assert (fields(result), result.schema_id) == ({"who": "ann"}, "3")


def test_equal_names_of_a_map_are_all_shown(process: DecodingProcess) -> None:
    data = b"\x83" + b"".join(map(msgpack.packb, ("a", 1, "a", 2, 5, 2**64 - 1)))
    assert shown(process, "any", data, "messagepack").text == '{\n  "a": 1,\n  "a": 2,\n  "5": 18446744073709551615\n}'
