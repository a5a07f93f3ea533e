"""The records of ``__transaction_state`` against bytes of Apache Kafka 4.3.1's own encoder."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.records.internal.transaction_records import (
    TransactionValue,
    Unknown,
    decode_any_key,
    decode_any_value,
    decode_key,
    decode_value,
    encode_any_value,
    encode_key,
    encode_value,
    is_usual_at_rest,
    state_of,
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


NAMES = st.text(max_size=3) | st.integers(120, 130).map(lambda size: "n" * size)
INDEXES = st.lists(st.integers(0, 2**31 - 1), max_size=3) | st.integers(120, 130).map(lambda size: [7] * size)


@given(
    st.lists(st.tuples(NAMES, INDEXES.map(tuple)), max_size=3) | st.just([("t", (0,))] * 127) | st.none(),
    st.sampled_from([EMPTY, ONGOING, ROTATING, COMPLETE, KEPT]),
)
def test_the_short_way_writes_what_the_general_way_writes(
    partitions: list[tuple[str, tuple[int, ...]]] | None, value: TransactionValue
) -> None:
    value = value._replace(partitions=None if partitions is None else tuple(partitions))
    assert encode_value(value, 1) == encode_any_value(value, 1)


def test_a_key_that_cannot_be_written_is_refused() -> None:
    with pytest.raises(ValueError, match="32768 bytes"):
        encode_key("x" * 32768)


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


@given(
    value=st.builds(
        TransactionValue,
        st.integers(-1, 2**63 - 1),
        st.integers(-1, 2**15 - 1),
        st.integers(0, 2**31 - 1),
        st.integers(0, 7),
        st.none()
        | st.lists(
            st.tuples(st.text(max_size=130), st.lists(st.integers(0, 2**31 - 1), max_size=130).map(tuple)), max_size=3
        ).map(tuple),
        st.integers(-1, 2**63 - 1),
        st.integers(-1, 2**63 - 1),
        st.just(-1) | st.integers(0, 2**63 - 1),
        st.just(-1) | st.integers(0, 2**63 - 1),
        st.integers(0, 3),
        st.just(-1) | st.integers(0, 2**15 - 1),
    ),
    version=st.integers(0, 1),
    damage=st.lists(st.tuples(st.integers(0, 120), st.integers(0, 255)), max_size=3),
    cut=st.none() | st.integers(0, 60),
)
def test_the_short_way_reads_what_the_general_way_reads(
    value: TransactionValue, version: int, damage: list[tuple[int, int]], cut: int | None
) -> None:
    """Whatever the bytes, damaged or not; and what passes for at rest reads as that."""
    data = bytearray(encode_value(value, version))
    for at, byte in damage:
        if at < len(data):
            data[at] = byte
    stored = bytes(data[:cut])
    decoded = decode_value(stored)
    assert decoded == decode_any_value(stored)
    if is_usual_at_rest(stored):
        assert isinstance(decoded, TransactionValue)
        assert not decoded.partitions
        assert state_of(stored) == (decoded.status, decoded.producer_id, decoded.start_timestamp)
        assert decoded.status in (0, 4, 5)


@given(st.binary(max_size=20) | st.text(max_size=10).map(encode_key))
def test_keys_read_alike_both_ways(data: bytes) -> None:
    """Also what is no key."""
    assert decode_key(data) == decode_any_key(data)


def test_what_nearly_all_ids_are_is_seen_to_be_at_rest() -> None:
    """With and without each of the two tags; an open transaction is not, nor one with a next producer id."""
    at_rest = [EMPTY, COMPLETE, COMPLETE._replace(previous_producer_id=-1), EMPTY._replace(previous_producer_id=-1)]
    assert all(is_usual_at_rest(encode_value(value, 1)) for value in at_rest)
    assert not any(is_usual_at_rest(encode_value(value, 1)) for value in (ONGOING, ROTATING, KEPT))
