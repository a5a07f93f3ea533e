"""Message sets of any messages come back as they were; damaged ones are corrupt, and never give a wrong message."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.legacy.message_set.conversion import wrap
from oncelog.legacy.message_set.entry import Limits, Message, TimestampType, shallow
from oncelog.legacy.message_set.reading import deep
from oncelog.records.compression import Codec
from oncelog.records.errors import CorruptBatch
from tests.message_sets import write

LIMITS = Limits(max_bytes=1 << 20, max_depth=3)
CODECS = st.sampled_from([Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4])
COMPRESSED = st.sampled_from([Codec.GZIP, Codec.SNAPPY, Codec.LZ4])

maybe_bytes = st.none() | st.binary(max_size=60)
gaps = st.integers(1, 5)


@st.composite
def message_lists(draw: st.DrawFn, magic: int) -> list[Message]:
    """Messages of a format whose offsets rise, with gaps as compaction leaves them."""
    offset = draw(st.integers(0, 2**40))
    kind = draw(st.sampled_from([TimestampType.CREATE_TIME, TimestampType.LOG_APPEND_TIME]))
    appended = draw(st.integers(0, 2**40))
    messages = []
    for gap, created, key, value in draw(
        st.lists(st.tuples(gaps, st.integers(-1, 2**40), maybe_bytes, maybe_bytes), min_size=1, max_size=10)
    ):
        offset += gap
        if magic == 0:
            messages.append(Message(offset, -1, TimestampType.NONE, key, value, 0))
        else:
            time = created if kind is TimestampType.CREATE_TIME else appended
            messages.append(Message(offset, time, kind, key, value, 1))
    return messages


sets = st.sampled_from([0, 1]).flatmap(lambda magic: st.tuples(st.just(magic), message_lists(magic)))


@pytest.mark.slow
@given(sets, CODECS)
def test_a_set_gives_back_its_messages(magic_and_messages: tuple[int, list[Message]], codec: Codec) -> None:
    magic, messages = magic_and_messages
    data = write(messages, magic, codec)
    assert list(deep(data, LIMITS)) == messages
    assert len(list(shallow(data))) == (len(messages) if codec is Codec.NONE else 1)


@pytest.mark.slow
@given(sets, COMPRESSED, COMPRESSED)
def test_a_set_in_a_set_gives_them_too(
    magic_and_messages: tuple[int, list[Message]], inner: Codec, outer: Codec
) -> None:
    magic, messages = magic_and_messages
    last = messages[-1].offset
    relative = 0 if magic == 1 else last
    packed = write(messages, magic, inner)
    (entry,) = shallow(packed)
    assert entry.value is not None
    again = wrap(_unoffset(packed, relative), last, magic, outer)
    assert [(m.offset, m.key, m.value, m.timestamp) for m in deep(again, LIMITS)] == [
        (m.offset, m.key, m.value, m.timestamp) for m in messages
    ]


def _unoffset(wrapper: bytes, offset: int) -> bytes:
    """The wrapper at another offset: it lies outside the checksum."""
    return offset.to_bytes(8, "big") + wrapper[8:]


@pytest.mark.slow
@given(sets, CODECS, st.data())
def test_a_flipped_byte_is_found(
    magic_and_messages: tuple[int, list[Message]], codec: Codec, data: st.DataObject
) -> None:
    magic, messages = magic_and_messages
    sound = write(messages, magic, codec)
    at = data.draw(st.integers(8, len(sound) - 1))
    damaged = bytearray(sound)
    damaged[at] ^= data.draw(st.integers(1, 255))
    given_out = []
    with contextlib.suppress(CorruptBatch):
        given_out.extend(deep(bytes(damaged), LIMITS))
    positions = [entry.position for entry in shallow(sound)]
    if all(at >= position + 12 or at < position for position in positions):
        assert given_out == messages[: len(given_out)]
        assert len(given_out) < len(messages)


@given(st.binary(max_size=200))
def test_garbage_is_corrupt_or_short(data: bytes) -> None:
    try:
        messages = list(deep(data, LIMITS))
    except CorruptBatch:
        return
    assert len(messages) * 26 <= len(data)
