"""0.7's entries over bytes: magic 0 and 1, both codecs, sets in sets, what cannot be read, and what 0.7 cannot know."""

from __future__ import annotations

import gzip
import struct
import zlib

import pytest

from oncelog.legacy.logs.entries import (
    BadEntry,
    Limits,
    UnfinishedEntry,
    crc_matches,
    messages_of,
    read_entry,
    read_messages,
)
from tests.old_logs import GZIP, SNAPPY, message, message_set


def test_the_layout_of_both_magics() -> None:
    assert message(b"ab", magic=0) == b"\x00\x00\x00\x07\x00" + struct.pack(">I", zlib.crc32(b"ab")) + b"ab"
    old, new = read_entry(message(b"ab", magic=0), 0), read_entry(message(b"ab"), 0)
    assert (old.size_bytes, old.magic, old.payload_bytes) == (11, 0, 2)
    assert (new.size_bytes, new.magic, new.payload_bytes) == (12, 1, 2)


@pytest.mark.parametrize("codec", [GZIP, SNAPPY])
def test_messages_of_sets_in_sets_come_in_order(codec: int) -> None:
    inner = message_set([message(b"b", magic=0), message(b""), message(b"c" * 100_000)], codec)
    data = (
        message(b"a", magic=0) + message_set([message(b"1"), inner, message(b"2")], 3 - codec) + message(b"", magic=0)
    )
    scanned = read_messages(data, 0)
    assert scanned.messages == [b"a", b"1", b"b", b"", b"c" * 100_000, b"2", b""]
    assert (scanned.entries, scanned.position, scanned.problem) == (3, len(data), None)


def test_an_empty_payload_is_a_message_in_both_magics_also_as_the_last_bytes() -> None:
    for magic in (0, 1):
        data = message(b"", magic=magic)
        assert read_messages(data * 2, 0).messages == [b"", b""]


def test_an_empty_set_has_no_messages() -> None:
    assert read_messages(message_set([], GZIP) + message_set([], SNAPPY) + message(b"x"), 0).messages == [b"x"]


def test_reading_stops_before_an_unfinished_entry_at_every_length() -> None:
    first, second = message(b"first", magic=0), message(b"second")
    for cut in range(len(second)):
        scanned = read_messages(first + second[:cut], 0)
        assert (scanned.messages, scanned.position) == ([b"first"], len(first))
        assert isinstance(scanned.problem, UnfinishedEntry) if cut else scanned.problem is None
    assert isinstance(scanned.problem, UnfinishedEntry)
    assert scanned.problem.needed == len(second)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (bytes(9), "length 0"),
        (struct.pack(">iB", -5, 0), "length -5"),
        (struct.pack(">iB", 4, 0) + bytes(9), "length 4"),
        (struct.pack(">iB", 5, 1) + bytes(9), "6 bytes for magic 1"),
        (struct.pack(">iB", 9, 2) + bytes(9), "magic 2"),
        (struct.pack(">iB", 1 << 30, 0), "exceeds the limit"),
        (message(b"abc")[:-1] + b"x", "checksum"),
        (message(b"abc", attributes=3), "codec 3"),
        (message(b"abc", attributes=GZIP), "gzip set"),
        (message(b"\x82SNAPPY\x00\x00\x00", attributes=SNAPPY), "snappy set"),
        (message_set([message(b"abc")[:-2]], GZIP), "first message of a compressed set is incomplete"),
        (message_set([message(b"abc")[:-1] + b"x"], SNAPPY), "checksum"),
        (message_set([bytes(12)], GZIP), "length 0"),
    ],
)
def test_what_cannot_be_read_says_why(data: bytes, reason: str) -> None:
    scanned = read_messages(message(b"before") + data, 0)
    assert scanned.messages == [b"before"]
    assert reason in str(scanned.problem)


def test_a_set_that_ends_in_an_unfinished_message_has_those_before_it() -> None:
    """0.7's iterator ends there without a word."""
    assert read_messages(message_set([message(b"a"), message(b"b")[:-1]], GZIP), 0).messages == [b"a"]
    assert read_messages(message_set([message(b"a"), b"\x00\x00"], GZIP), 0).messages == [b"a"]


@pytest.mark.parametrize("codec", [GZIP, SNAPPY])
def test_a_set_whose_attributes_lost_their_codec_is_no_message(codec: int) -> None:
    """The CRC does not cover attributes, so 0.7 would hand out the compressed bytes."""
    damaged = bytearray(message_set([message(b"a")], codec))
    damaged[5] = 0
    assert "no codec" in str(read_messages(bytes(damaged), 0).problem)


def test_an_application_may_compress_its_own_payloads() -> None:
    for own in (gzip.compress(b"not a set of messages"), b"\x1f", b"\x82SNAPPY\x00own"):
        assert read_messages(message(own), 0).messages == [own]


def test_the_unused_bits_of_attributes_are_ignored() -> None:
    assert read_messages(message(b"a", attributes=0xFC), 0).messages == [b"a"]


def test_sets_are_bounded_together_and_in_depth() -> None:
    bomb = message_set([message(bytes(1 << 20))], GZIP)
    limits = Limits(set_bytes=3 << 20)
    assert len(messages_of(bomb, read_entry(bomb, 0), limits)) == 1
    many = message_set([bomb] * 3, GZIP)
    with pytest.raises(BadEntry, match="more than 3145728"):
        messages_of(many, read_entry(many, 0), limits)
    deep = message(b"x")
    for _ in range(17):
        deep = message_set([deep], GZIP)
    with pytest.raises(BadEntry, match="deeper than 16"):
        messages_of(deep, read_entry(deep, 0))


def test_reading_ends_when_sets_gave_enough() -> None:
    data = message_set([message(bytes(1000))], GZIP) * 10
    scanned = read_messages(data, 0, most_bytes=2500)
    assert (scanned.entries, scanned.position) == (3, len(data) // 10 * 3)


def test_crc_matches() -> None:
    data = message(b"abc")
    assert crc_matches(data, read_entry(data, 0))
    assert not crc_matches(data[:-1] + b"x", read_entry(data, 0))
