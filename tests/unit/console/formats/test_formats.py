"""MessagePack, Avro and Protobuf: as their writers meant them, by the schema that counts; hostile bytes as errors."""

from __future__ import annotations

import json
import os
import random
import struct
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import msgpack
import pytest

from oncelog.client.errors import ConfigError
from oncelog.console.formats.decoder_process import DecodingProcess
from oncelog.console.formats.schema_files import read_schemas, schema_for
from oncelog.console.records.decoding import Decoder, Shown
from oncelog.records.record import Headers
from oncelog.schemas.wire_format import VALUE, framed, message_path
from tests.unit.console.formats.samples import CHAIN, NOTHINGS, ORDER, avro, avro_file, message, shop_file

pytestmark = pytest.mark.slow
GUID = UUID("12345678-1234-5678-1234-567812345678")
A_ORDER = {"id": 7, "note": "né", "raw": b"\x00\xff", "price": Decimal("12.50")}


def confluent(schema_id: int, payload: bytes) -> bytes:
    return struct.pack(">bI", 0, schema_id) + payload


@pytest.fixture
def schemas(tmp_path: Path) -> tuple[str, ...]:
    order, desc = avro_file(tmp_path, "order.avsc", ORDER), shop_file(tmp_path)
    chain, nothings = avro_file(tmp_path, "chain.avsc", CHAIN), avro_file(tmp_path, "nothings.avsc", NOTHINGS)
    return (
        f"orders={order}",
        f"key:orders@9={chain}",
        f"chains={chain}",
        f"nothings={nothings}",
        f"payments={desc}:shop.Payment",
        f"mixed={desc}",
        f"*@{GUID}={order}",
    )


@pytest.fixture
def process(schemas: tuple[str, ...]) -> Iterator[DecodingProcess]:
    made = DecodingProcess(read_schemas(schemas))
    made.ready()
    yield made
    made.close()


def value(process: DecodingProcess, topic: str, data: bytes, form: str = "auto", headers: Headers = ()) -> Shown:
    return Decoder(process).value(topic, data, headers, form, 100_000)


def test_avro_is_read_by_its_file_with_and_without_an_id(process: DecodingProcess) -> None:
    data = avro(ORDER, A_ORDER)
    meant = {"id": 7, "note": "né", "raw": "0x00ff", "price": "12.50"}
    for given, schema_id in ((data, None), (confluent(7, data), "7")):
        for form in ("auto", "avro"):
            result = value(process, "orders", given, form)
            assert (result.format, result.error, result.schema_id) == ("avro", None, schema_id)
            assert json.loads(result.text or "") == meant
    by_guid = value(process, "elsewhere", data, "auto", (("__value_schema_id", b"\x01" + GUID.bytes),))
    assert (json.loads(by_guid.text or ""), by_guid.schema_id) == (meant, str(GUID))
    single = value(process, "orders", b"\xc3\x01" + bytes(8) + data)
    assert (json.loads(single.text or ""), "fingerprint" in single.note) == (meant, True)
    bare = avro(CHAIN, {"next": None})
    assert value(process, "chains", bare).text == '{\n  "next": null\n}', "a payload may begin as an id does"
    deep = avro(CHAIN, {"next": {"next": {"next": None}}})
    assert Decoder(process).key("orders", confluent(9, deep), (), "auto").format == "avro"
    assert Decoder(process).key("orders", confluent(8, deep), (), "avro").error is not None, "another id"
    assert value(process, "unknown", data, "avro").error == (
        "no avro schema for this topic's values; start the console with --schema or --registry"
    )


def test_protobuf_is_read_by_its_descriptor_set(process: DecodingProcess) -> None:
    payment = message("shop.Payment")
    payment.who = "ann"
    payment.sum.cents = 5
    data = payment.SerializeToString()
    meant = {"who": "ann", "sum": {"cents": "5"}}
    for given in (data, confluent(3, b"\x00" + data), confluent(3, b"\x02\x00" + data)):
        result = value(process, "payments", given)
        assert (result.format, json.loads(result.text or ""), result.note) == ("protobuf", meant, "shop.Payment")
    refund = message("shop.Refund")
    refund.why = "late"
    framed_refund = value(process, "mixed", confluent(4, b"\x02\x02" + refund.SerializeToString()))
    assert (framed_refund.note, framed_refund.text) == ("shop.Refund", '{\n  "why": "late"\n}')
    line = message("shop.Payment.Line")
    line.text = "tea"
    result = value(process, "mixed", confluent(4, b"\x04\x00\x00" + line.SerializeToString()), "protobuf")
    assert (result.note, result.text) == ("shop.Payment.Line", '{\n  "text": "tea"\n}')
    header = (("__value_schema_id", b"\x01" + GUID.bytes + b"\x02\x02"),)
    assert value(process, "mixed", refund.SerializeToString(), "auto", header).format == "hex", "its id is of another"
    assert "not in its schema" in value(process, "payments", b"\x80\x01\x05").note
    assert (
        value(process, "mixed", confluent(4, b"\x00\x0a\xff")).error
        == "not protobuf: it does not parse as shop.Payment"
    )
    assert "no message 9" in (value(process, "mixed", confluent(4, b"\x02\x12")).error or "")


def test_messagepack(process: DecodingProcess) -> None:
    given = {"a": [1, None, b"\x00"], 5: msgpack.Timestamp(1, 0), "e": msgpack.ExtType(9, b"x")}
    result = value(process, "any", msgpack.packb(given), "messagepack")
    assert result.error is None
    decoded: dict[str, Any] = json.loads(result.text or "")
    assert (decoded["a"], decoded["e"]) == ([1, None, "0x00"], {"code": 9, "data": "0x78"})
    assert decoded["5"]
    listed = value(process, "any", msgpack.packb({(1, 2): 3}), "messagepack")
    assert json.loads(listed.text or "") == {"[1, 2]": 3}
    for bad in (b"", b"\xc1", b"\x01\x02", b"\xdf\xff\xff\xff\xff", b"\x91" * 5000 + b"\x01"):
        assert value(process, "any", bad, "messagepack").error, bad


def test_hostile_bytes_are_an_error_in_their_place(process: DecodingProcess) -> None:
    deep = value(process, "chains", b"\x02" * 3_000_000 + b"\x00")
    assert (deep.format, deep.error is not None) == ("hex", True)
    assert value(process, "chains", avro(CHAIN, _chain(150))).error == "not avro: it is nested deeper than 100 levels"
    many = value(process, "nothings", b"\xfe\xff\xff\xff\xff\xff\xff\xff\x7f\x00")
    assert many.error is not None
    assert value(process, "orders", avro(ORDER, A_ORDER) + b"x").error == "not avro: bytes left over: 1"
    assert value(process, "orders", b"\x02").error == "not avro: it ends too early"
    assert "not decoded" in (value(process, "orders", bytes(5 * 2**20)).error or "")
    assert value(process, "orders", avro(ORDER, A_ORDER)).error is None, "it goes on"


def test_random_bytes_are_shown_whatever_they_are(process: DecodingProcess) -> None:
    chance = random.Random(7)
    for size in (0, 1, 5, 6, 20, 300):
        for topic, form in (("orders", "avro"), ("mixed", "protobuf"), ("payments", "auto"), ("x", "messagepack")):
            for prefix in (b"", b"\x00\x00\x00\x00\x07"):
                result = value(process, topic, prefix + chance.randbytes(size), form)
                assert result.text is not None
                result.text.encode()


def _chain(depth: int) -> dict[str, Any] | None:
    return None if depth == 0 else {"next": _chain(depth - 1)}


def test_a_page_spends_only_so_much_time(schemas: tuple[str, ...]) -> None:
    process = DecodingProcess(read_schemas(schemas))
    times = iter(range(0, 1000, 3))
    decoder = Decoder(process, lambda: float(next(times)), budget_s=4)
    data = avro(ORDER, A_ORDER)
    values = [decoder.value("orders", data, (), "auto") for _ in range(3)]
    assert [item.format for item in values] == ["avro", "avro", "hex"]
    assert "open the record by itself" in (values[2].error or "")
    process.close()


def test_a_process_that_ended_is_started_anew(process: DecodingProcess) -> None:
    assert process._process is not None
    process._process.kill()
    process._process.wait()
    assert "the decoder crashed" in (value(process, "orders", avro(ORDER, A_ORDER)).error or "")
    assert value(process, "orders", avro(ORDER, A_ORDER)).error is None


def test_schema_files_that_cannot_be_are_refused_at_the_start(tmp_path: Path) -> None:
    order, desc = avro_file(tmp_path, "order.avsc", ORDER), shop_file(tmp_path)
    (tmp_path / "broken.avsc").write_text("{")
    (tmp_path / "other.avsc").write_text('{"type": "nothing"}')
    (tmp_path / "broken.desc").write_bytes(b"\xff")
    for option, reason in (
        ("orders", r"is not \[key:\]TOPIC"),
        ("=x.avsc", "is not"),
        (f"@5={order}", "has no topic"),
        (f"orders@x={order}", "is not a schema id"),
        (f"orders={tmp_path}/none.avsc", "No such file"),
        (f"orders={tmp_path}", "must end with one of"),
        ("orders=order.proto", "protoc"),
        (f"orders={order}:Order", "only in a Protobuf"),
    ):
        with pytest.raises(ConfigError, match=reason):
            read_schemas([option])
    with pytest.raises(ConfigError, match="two files"):
        read_schemas([f"orders={order}", f"value:orders={order}"])
    for option, reason in (
        (f"orders={tmp_path}/broken.avsc", "broken.avsc: not an Avro schema"),
        (f"orders={tmp_path}/other.avsc", "other.avsc: not an Avro schema"),
        (f"orders={tmp_path}/broken.desc", "not a descriptor set"),
        (f"orders={desc}:shop.Nothing", "not in the descriptor set"),
    ):
        with pytest.raises(ConfigError, match=reason):
            DecodingProcess(read_schemas([option])).ready()


def test_the_first_start_counts_in_no_pages_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A start for a value that ended the process does: a page of those would take one for each."""
    process, now = DecodingProcess(), [0.0]
    launch = process._launch

    def slowly() -> object:
        now[0] += 30.0
        return launch()

    monkeypatch.setattr(process, "_launch", slowly)
    try:
        decoder = Decoder(process, lambda: now[0], budget_s=40)
        assert decoder.value("t", msgpack.packb({"a": 1}), (), "messagepack").text == '{\n  "a": 1\n}'
        for error in (None, None, "more than 40 s"):
            process.close()
            result = decoder.value("t", msgpack.packb(7), (), "messagepack")
            assert result.error is None if error is None else error in str(result.error)
    finally:
        process.close()


def test_the_most_exact_schema_counts(tmp_path: Path) -> None:
    order = avro_file(tmp_path, "order.avsc", ORDER)
    result = read_schemas(f"{text}={order}" for text in ("*", "orders", "*@5", "orders@5", "key:*"))
    assert [
        schema_for(result, *asked)
        for asked in (("x", VALUE, None), ("orders", VALUE, "6"), ("x", VALUE, "5"), ("orders", VALUE, "5"))
    ] == [0, 1, 2, 3]
    assert (schema_for(result, "x", "key", "5"), schema_for(result[:4], "x", "key", None)) == (4, None)


def test_wire_formats() -> None:
    assert framed(b"\x00\x00\x00\x00\x07x", VALUE, ()) == (b"x", "7", b"", False)
    assert framed(b"\x00\x00\x00", VALUE, ()) == (b"\x00\x00\x00", None, b"", False)
    headers = (("__key_schema_id", b"\x00\x00\x00\x00\x08"), ("__value_schema_id", None), ("__value_schema_id", b"?"))
    assert framed(b"x", VALUE, headers).schema_id is None
    assert framed(b"\x00x", "key", headers) == (b"\x00x", "8", b"", True)
    assert [message_path(item) for item in (b"", b"\x00", b"\x04\x02\x04x", b"\x04\x02", b"\xff" * 9)] == [
        None,
        ((0,), 1),
        ((1, 2), 3),
        None,
        None,
    ]


def test_json_behind_an_id_is_json(process: DecodingProcess) -> None:
    result = value(process, "docs", confluent(11, b'{"a": 1}'))
    assert (result.format, result.schema_id, result.size_bytes) == ("json", "11", 13)
    assert value(process, "docs", confluent(11, os.urandom(3) + b"\xff")).format == "hex"
