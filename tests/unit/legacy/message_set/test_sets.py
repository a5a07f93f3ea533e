"""Message sets: wrappers in wrappers, offsets, times, bounds, damage."""

from __future__ import annotations

import pytest

from oncelog.legacy.message_set.conversion import wrap
from oncelog.legacy.message_set.entry import Limits, Message, TimestampType, append_entry, shallow
from oncelog.legacy.message_set.lz4 import compress_v0, decompress_v0
from oncelog.legacy.message_set.reading import deep
from oncelog.records.builder import build_batch
from oncelog.records.compression import Codec
from oncelog.records.errors import CorruptBatch, TooMuchOutput, TruncatedBatch, UnsupportedMagic
from oncelog.records.record import Record
from tests.memory import peak_bytes
from tests.message_sets import write

CODECS = (Codec.GZIP, Codec.SNAPPY, Codec.LZ4)
APPENDED = 99
LOG_APPEND_TIME_BIT = 0x08


def _message(offset: int, value: bytes | None = b"v", magic: int = 1) -> Message:
    kind = TimestampType.CREATE_TIME if magic else TimestampType.NONE
    return Message(offset, 1000 + offset if magic else -1, kind, b"k", value, magic)


def _offsets(data: bytes, limits: Limits | None = None) -> list[int]:
    return [message.offset for message in deep(data, limits or Limits())]


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", CODECS)
def test_wrappers_in_wrappers_are_read_as_deep_as_allowed(magic: int, codec: Codec) -> None:
    base = 0 if magic == 0 else 7
    inner = [_message(offset - base, magic=magic) for offset in (7, 8, 9)]
    data = write(inner, magic, Codec.GZIP)
    for _ in range(2):
        data = wrap(data, 9 if magic == 0 else 2, magic, codec)
    outermost = wrap(data, 9, magic, codec)
    assert _offsets(outermost, Limits(max_depth=4)) == [7, 8, 9]
    with pytest.raises(CorruptBatch, match="compressed where that is not allowed"):
        _offsets(outermost, Limits(max_depth=3))


def test_a_wrapper_that_was_in_no_log_yet_leaves_its_inner_offsets_alone() -> None:
    inner = write([_message(0), _message(1), _message(2)], 1)
    assert _offsets(wrap(inner, 0, 1, Codec.GZIP)) == [0, 1, 2]
    assert _offsets(wrap(inner, 2, 1, Codec.GZIP)) == [0, 1, 2]
    assert _offsets(wrap(inner, 12, 1, Codec.GZIP)) == [10, 11, 12]
    with pytest.raises(CorruptBatch, match="relative"):
        _offsets(wrap(inner, 1, 1, Codec.GZIP))


def test_the_brokers_time_holds_for_all_messages_of_format_1_in_a_wrapper() -> None:
    inner = write([_message(0)], 1) + write([_message(1, magic=0)], 0)
    data = wrap(inner, 1, 1, Codec.SNAPPY, APPENDED, LOG_APPEND_TIME_BIT)
    first, second = deep(data)
    assert (first.timestamp, first.timestamp_type) == (APPENDED, TimestampType.LOG_APPEND_TIME)
    assert (second.timestamp, second.timestamp_type) == (-1, TimestampType.NONE)


def test_a_set_that_ends_inside_an_entry_gives_those_before() -> None:
    data = write([_message(0), _message(1)], 1)
    for cut in range(1, len(data) // 2):
        messages = deep(data[:-cut])
        assert next(messages).offset == 0
        with pytest.raises(TruncatedBatch):
            next(messages)


@pytest.mark.parametrize("codec", CODECS)
def test_a_wrapper_that_ends_inside_a_message_is_corrupt_not_cut(codec: Codec) -> None:
    with pytest.raises(CorruptBatch, match="ends inside a message of its own") as raised:
        _offsets(wrap(write([_message(0), _message(1)], 1)[:-3], 1, 1, codec))
    assert not isinstance(raised.value, TruncatedBatch)


def test_record_batches_are_told_from_message_sets_in_the_same_log() -> None:
    batch = bytes(build_batch([Record(1, 5, b"k", b"v")], base_offset=1))
    messages = deep(write([_message(0)], 1) + batch)
    assert next(messages).offset == 0
    with pytest.raises(UnsupportedMagic) as raised:
        next(messages)
    assert raised.value.magic == 2


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", CODECS)
def test_a_bomb_is_refused_without_the_memory_it_asks_for(magic: int, codec: Codec) -> None:
    bomb = wrap(write([_message(0, bytes(4 << 20), magic)], magic), 0, magic, codec)

    def read() -> None:
        with pytest.raises(TooMuchOutput):
            _offsets(bomb, Limits(max_bytes=1 << 18))

    assert peak_bytes(read, 2 << 20) < 2 << 20


def test_what_wrappers_in_wrappers_give_is_bounded_together() -> None:
    inner = wrap(write([_message(0, bytes(600))], 1), 0, 1, Codec.GZIP)
    both = bytearray()
    for _ in range(4):
        both += inner
    data = wrap(both, 0, 1, Codec.GZIP)
    assert len(_offsets(data, Limits(max_bytes=1 << 13, max_depth=2))) == 4
    with pytest.raises(TooMuchOutput):
        _offsets(data, Limits(max_bytes=1 << 11, max_depth=2))


@pytest.mark.parametrize("value", [None, b"", b"\x00" * 20])
def test_wrappers_of_nothing_are_corrupt(value: bytes | None) -> None:
    for codec in CODECS:
        for magic in (0, 1):
            data = bytearray()
            append_entry(data, 0, magic, codec, -1, None, value)
            with pytest.raises(CorruptBatch):
                _offsets(bytes(data))


def test_unknown_codecs_and_zstd_are_corrupt() -> None:
    for codec in (4, 5, 7):
        data = bytearray()
        append_entry(data, 0, 1, codec, -1, None, b"x")
        with pytest.raises(CorruptBatch, match="codec"):
            _offsets(bytes(data))
    with pytest.raises(ValueError, match="zstd"):
        write([_message(0)], 1, Codec.ZSTD)


def test_lengths_that_do_not_add_up_are_corrupt() -> None:
    sound = write([_message(5)], 0)
    for position, value in ((18, -2), (18, 2), (23, 0), (23, -1), (8, 13), (18, 1 << 30)):
        damaged = bytearray(sound)
        damaged[position : position + 4] = value.to_bytes(4, "big", signed=True)
        with pytest.raises(CorruptBatch):
            list(shallow(bytes(damaged)))


def test_views_are_read_without_copies_and_give_the_same() -> None:
    data = write([_message(3), _message(4, None)], 1, Codec.LZ4) + write([_message(5)], 1)
    assert list(deep(memoryview(data))) == list(deep(data))
    assert [type(entry.value) for entry in shallow(memoryview(data))] == [memoryview, memoryview]


def test_a_frame_of_format_0_is_read_whatever_its_header_checksum() -> None:
    frame = bytearray(compress_v0(b"data" * 100))
    for checksum in range(0, 256, 51):
        frame[6] = checksum
        assert decompress_v0(bytes(frame), 400) == b"data" * 100
    for cut in (0, 4, 6):
        with pytest.raises(CorruptBatch):
            decompress_v0(bytes(frame[:cut]), 400)


def test_what_cannot_be_written_is_refused() -> None:
    with pytest.raises(ValueError, match="format 0 or 1"):
        write([_message(0)], 2)
    with pytest.raises(ValueError, match="offset 1 after 1"):
        write([_message(1), _message(1)], 1, Codec.GZIP)
    appended = Message(2, 5, TimestampType.LOG_APPEND_TIME, None, None, 1)
    with pytest.raises(ValueError, match="one type"):
        write([_message(1), appended], 1, Codec.GZIP)
    assert write([], 1, Codec.GZIP) == b""
