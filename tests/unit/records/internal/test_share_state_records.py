"""The records of ``__share_group_state`` against bytes of Apache Kafka 4.4.0's own encoder."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.base.ids import TopicId
from oncelog.records.internal.share_state_records import (
    SnapshotKey,
    SnapshotValue,
    StateBatch,
    Unknown,
    UpdateKey,
    UpdateValue,
    decode_key,
    decode_value,
    encode_key,
    encode_value,
)

TOPIC = TopicId(bytes(range(1, 17)))
SNAPSHOT = SnapshotKey("share", TOPIC, 5)
UPDATE = UpdateKey("share", TOPIC, 5)
BATCHES = (StateBatch(100, 109, 0, 1), StateBatch(110, 110, 2, 2), StateBatch(111, 10**12, 4, 5))
_BATCHES_HEX = (
    "040000000000000064000000000000006d00000100000000000000006e000000000000006e02000200000000000000006f000000e8d4a510"
    "0004000500"
)
KAFKAS = [
    (
        SNAPSHOT,
        SnapshotValue(3, 2, 7, 100, 12, 1700000000123, 1700000000456, BATCHES),
        "0000000573686172650102030405060708090a0b0c0d0e0f1000000005",
        "000000000003000000020000000700000000000000640000018bcfe5687b0000018bcfe569c8"
        + _BATCHES_HEX
        + "0100040000000c",
    ),
    (
        SNAPSHOT,
        SnapshotValue(0, 0, 0, -1, -1, 1700000000123, 1700000000123),
        "0000000573686172650102030405060708090a0b0c0d0e0f1000000005",
        "0000000000000000000000000000ffffffffffffffff0000018bcfe5687b0000018bcfe5687b0100",
    ),
    (
        UPDATE,
        UpdateValue(3, 7, 100, 12, BATCHES),
        "0001000573686172650102030405060708090a0b0c0d0e0f1000000005",
        "000000000003000000070000000000000064" + _BATCHES_HEX + "0100040000000c",
    ),
    (
        UPDATE,
        UpdateValue(0, 0),
        "0001000573686172650102030405060708090a0b0c0d0e0f1000000005",
        "00000000000000000000ffffffffffffffff0100",
    ),
]


@pytest.mark.parametrize(("key", "value", "key_hex", "value_hex"), KAFKAS)
def test_records_are_apache_kafkas_byte_for_byte(
    key: SnapshotKey | UpdateKey, value: SnapshotValue | UpdateValue, key_hex: str, value_hex: str
) -> None:
    assert encode_key(key).hex() == key_hex
    assert encode_value(value).hex() == value_hex
    assert decode_key(bytes.fromhex(key_hex)) == key
    assert decode_value(key, bytes.fromhex(value_hex)) == value


def test_tagged_fields_of_a_newer_release_are_passed_over() -> None:
    later = bytes.fromhex("000000000001000000020000000000000003")
    batch = bytes.fromhex("00000000000000030000000000000004020001010502abcd")
    tags = bytes.fromhex("020004000000090903aabbcc")
    value = decode_value(UPDATE, later + b"\x02" + batch + tags)
    assert value == UpdateValue(1, 2, 3, 9, (StateBatch(3, 4, 2, 1),))


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (None, "no key"),
        (b"\x00", "no key"),
        (b"\x00\x02", "key of version 2"),
        (b"\xff\xff", "key of version -1"),
        (b"\x00\x00\x00\x05abc", "a field claims 5 bytes, 3 are left"),
        (b"\x00\x00\x00\x01\xff" + bytes(20), "a string is not valid UTF-8"),
    ],
)
def test_keys_that_cannot_be_read_are_unknown(data: bytes | None, reason: str) -> None:
    key = decode_key(data)
    assert isinstance(key, Unknown)
    assert key.reason == reason


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "no version"),
        (b"\x00\x01" + bytes(40), "value of version 1"),
        (encode_value(UpdateValue(0, 0))[:-3], "a field claims 16 bytes, 15 are left"),
        (b"\x00\x00" + bytes(16) + b"\xff\xff\x03" + bytes(20), "an array claims 65534 elements, 20 bytes are left"),
        (b"\x00\x00" + bytes(16) + b"\x01" + b"\x01\x00\x01\x07", "delivery complete count of 1 bytes"),
    ],
)
def test_values_that_cannot_be_read_are_unknown(data: bytes, reason: str) -> None:
    value = decode_value(UPDATE, data)
    assert isinstance(value, Unknown)
    assert value.reason == reason


@given(st.binary(max_size=80), st.sampled_from([b"\x00\x00", b"\x00\x01", b""]))
def test_no_bytes_raise(data: bytes, version: bytes) -> None:
    decode_key(version + data)
    decode_value(SNAPSHOT, version + data)
    decode_value(UPDATE, version + data)


def test_a_group_id_too_long_for_the_key_is_refused() -> None:
    with pytest.raises(ValueError, match="32768 bytes"):
        encode_key(SnapshotKey("g" * 32_768, TOPIC, 0))
