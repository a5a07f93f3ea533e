"""Message sets that Apache Kafka built are read, and ours are what it builds."""

from __future__ import annotations

import pytest

from oncelog.legacy.message_set.entry import Message, TimestampType, crc_matches, shallow
from oncelog.legacy.message_set.lz4 import header_checksum
from oncelog.legacy.message_set.reading import deep
from oncelog.records.compression import Codec
from tests.message_sets import write
from tests.unit.legacy.message_set.java_sets import SETS

CREATED = 1_700_000_000_000
APPENDED = 1_700_000_009_999
CASES = pytest.mark.parametrize(("magic", "codec", "append_time"), list(SETS))


def _messages(magic: int, *, append_time: bool) -> list[Message]:
    def message(offset: int, delta: int, key: bytes | None, value: bytes | None) -> Message:
        if magic == 0:
            return Message(offset, -1, TimestampType.NONE, key, value, magic)
        if append_time:
            return Message(offset, APPENDED, TimestampType.LOG_APPEND_TIME, key, value, magic)
        return Message(offset, CREATED + delta, TimestampType.CREATE_TIME, key, value, magic)

    return [
        message(40, 5, b"k0", b"value value value value value value"),
        message(41, 1, None, b""),
        message(43, 2, b"k3", None),
    ]


@CASES
def test_javas_sets_are_read(magic: int, codec: Codec, append_time: bool) -> None:
    assert list(deep(bytes.fromhex(SETS[magic, codec, append_time]))) == _messages(magic, append_time=append_time)


@CASES
def test_ours_differ_from_javas_in_what_the_compressor_makes_of_them_alone(
    magic: int, codec: Codec, append_time: bool
) -> None:
    java = bytes.fromhex(SETS[magic, codec, append_time])
    ours = write(_messages(magic, append_time=append_time), magic, codec)
    if codec is Codec.NONE:
        assert ours == java
        return
    (theirs,), (written,) = shallow(java), shallow(ours)
    same = ("position", "offset", "magic", "attributes", "timestamp", "key")
    assert [getattr(written, name) for name in same] == [getattr(theirs, name) for name in same]
    assert crc_matches(ours, written)
    assert list(deep(ours)) == list(deep(java))
    if codec is Codec.LZ4:
        assert written.value is not None
        assert theirs.value is not None
        for frame in (bytes(written.value), bytes(theirs.value)):
            assert header_checksum(frame[0 if magic == 0 else 4 : 6]) == frame[6]
