"""The records of ``__transaction_state`` against bytes of Apache Kafka 4.3.1's own encoder."""

from __future__ import annotations

import pytest

from oncelog.records.internal.transaction_records import (
    TransactionValue,
    Unknown,
    decode_key,
    decode_value,
    encode_key,
    encode_value,
)

EMPTY = TransactionValue(4000, 0, 60000, 0, None, 1700000000123, previous_producer_id=4000)
ONGOING = TransactionValue(4000, 7, 60000, 1, (("orders", (3,)),), 1700000000300, 1700000000200, 4000, -1, 2)
ROTATING = TransactionValue(4000, 32767, 2**31 - 1, 2, (("orders", (3,)),), 1700000000400, 1700000000200, 4000, 5001, 2)
COMPLETE = TransactionValue(5001, 0, 60000, 4, (), 1700000000500, 1700000000200, 4000, -1, 2)
KEPT = TransactionValue(42, 32766, 2**31 - 1, 1, (("a", (0, 1)), ("b", (2,))), 9, 8, 73, 85, 2, 1)
VERSION_1 = [
    (EMPTY, "00010000000000000fa000000000ea6000000000018bcfe5687bffffffffffffffff0100080000000000000fa0"),
    (
        ONGOING,
        "00010000000000000fa000070000ea600102076f72646572730200000003000000018bcfe5692c0000018bcfe568c8"
        "0200080000000000000fa002020002",
    ),
    (
        ROTATING,
        "00010000000000000fa07fff7fffffff0202076f72646572730200000003000000018bcfe569900000018bcfe568c8"
        "0300080000000000000fa00108000000000000138902020002",
    ),
    (COMPLETE, "0001000000000000138900000000ea6004010000018bcfe569f40000018bcfe568c80200080000000000000fa002020002"),
    (
        KEPT,
        "0001000000000000002a7ffe7fffffff0103026103000000000000000100026202000000020000000000000000090000000000000008"
        "0400080000000000000049010800000000000000550202000203020001",
    ),
]
VERSION_0_EMPTY = "00000000000000000fa000000000ea6000ffffffff0000018bcfe5687bffffffffffffffff"


@pytest.mark.parametrize(("value", "hexadecimal"), VERSION_1)
def test_version_1_is_apache_kafkas_byte_for_byte(value: TransactionValue, hexadecimal: str) -> None:
    """Tagged fields are left out at their defaults."""
    assert encode_value(value, 1).hex() == hexadecimal
    assert decode_value(bytes.fromhex(hexadecimal)) == value


def test_version_0_is_apache_kafkas_byte_for_byte() -> None:
    """Without the previous producer id, which it cannot hold."""
    assert encode_value(EMPTY, 0).hex() == VERSION_0_EMPTY
    assert decode_value(bytes.fromhex(VERSION_0_EMPTY)) == TransactionValue(4000, 0, 60000, 0, None, 1700000000123)
    assert decode_value(encode_value(ONGOING, 0)) == TransactionValue(
        4000, 7, 60000, 1, (("orders", (3,)),), 1700000000300, 1700000000200
    )


def test_the_key_is_apache_kafkas() -> None:
    """UTF-8 with a 16-bit length."""
    assert encode_key("copier-é").hex() == "00000009636f706965722dc3a9"
    assert decode_key(encode_key("copier-é")) == "copier-é"


@pytest.mark.parametrize("data", [b"", b"\x00", b"\x00\x01\x00\x00", b"\x00\x00\x00\x09a", None])
def test_keys_that_cannot_be_read_are_unknown(data: bytes | None) -> None:
    """Never raised."""
    assert isinstance(decode_key(data), Unknown)


def test_values_that_cannot_be_read_are_unknown() -> None:
    """Newer versions, cut off anywhere, unknown states, absurd counts."""
    for value, _ in VERSION_1:
        data = encode_value(value, 1)
        assert all(isinstance(decode_value(data[:size]), Unknown) for size in range(len(data)))
    assert decode_value(b"\x00\x02" + bytes(40)) == Unknown(2, "value of version 2")
    wrong_state = bytearray.fromhex(VERSION_0_EMPTY)
    wrong_state[16] = 8
    assert isinstance(decode_value(bytes(wrong_state)), Unknown)
    absurd_count = bytearray.fromhex(VERSION_0_EMPTY)
    absurd_count[17:21] = b"\x7f\xff\xff\xff"
    assert isinstance(decode_value(bytes(absurd_count)), Unknown)
