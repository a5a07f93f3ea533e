"""Message sets become batches and batches message sets: key, value, offset and time are kept, nothing is told twice."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.legacy.message_set.conversion import Converted, down_converted, up_converted
from oncelog.legacy.message_set.entry import Limits, Message, TimestampType, shallow
from oncelog.legacy.message_set.reading import deep
from oncelog.records.batch import crc_matches, read_header
from oncelog.records.builder import build_batch
from oncelog.records.compression import Codec
from oncelog.records.record import Record, read_records
from tests.message_sets import write
from tests.programs import result_of

MAX_BYTES = 1 << 20
CODECS = st.sampled_from([Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4])

maybe_bytes = st.none() | st.binary(max_size=80)
times = st.integers(-1, 2**62)
headers = st.just(()) | st.just((("h", b"v"),))


@pytest.mark.slow
@given(
    st.lists(st.tuples(times, maybe_bytes, maybe_bytes), min_size=1, max_size=12),
    st.sampled_from([0, 1]),
    CODECS,
    st.booleans(),
    st.booleans(),
    st.integers(0, 2**40),
)
def test_a_set_becomes_a_batch_of_the_same_records(
    given_out: list[tuple[int, bytes | None, bytes | None]],
    magic: int,
    codec: Codec,
    by_broker: bool,
    by_topic: bool,
    first: int,
) -> None:
    kind = TimestampType.LOG_APPEND_TIME if by_broker else TimestampType.CREATE_TIME
    time = given_out[0][0]
    messages = [
        Message(first + index, time if by_broker else each, kind, key, value, magic)
        for index, (each, key, value) in enumerate(given_out)
    ]
    data = write(messages, magic, codec)
    batch = result_of(up_converted(data, shallow(data), MAX_BYTES, log_append_time=by_broker))
    assert batch is not None
    header = read_header(batch)
    assert crc_matches(batch, 0, header)
    assert header.size_bytes == len(batch)
    assert (header.base_offset, header.codec, header.producer_id) == (0, codec, -1)
    assert header.is_log_append_time == (by_broker and magic == 1)
    assert list(read_records(batch, 0, header, MAX_BYTES)) == [
        Record(index, message.timestamp if magic else -1, message.key, message.value)
        for index, message in enumerate(messages)
    ]


@st.composite
def batches(draw: st.DrawFn) -> tuple[list[Record], Codec, int | None]:
    """Records with the gaps that compaction leaves, a codec, and the time that the broker has set, if it has."""
    offset = draw(st.integers(0, 2**40))
    records = []
    for gap, time, key, value, more in draw(
        st.lists(st.tuples(st.integers(1, 4), times, maybe_bytes, maybe_bytes, headers), min_size=1, max_size=15)
    ):
        offset += gap
        records.append(Record(offset, time, key, value, more))
    return records, draw(CODECS), draw(st.none() | st.integers(0, 2**40))


@pytest.mark.slow
@given(batches(), st.sampled_from([0, 1]), st.integers(1, 700), st.integers(0, 20))
def test_a_batch_becomes_sets_that_go_on_where_the_one_before_ended(
    records_codec_time: tuple[list[Record], Codec, int | None], magic: int, room: int, skipped: int
) -> None:
    records, codec, append_time = records_codec_time
    batch = build_batch(records, base_offset=records[0].offset, codec=codec, log_append_time_ms=append_time)
    position = records[0].offset + skipped
    expected = [record for record in records if record.offset >= position]
    results: list[Message] = []
    while True:
        converted: Converted = result_of(
            down_converted(
                batch, 0, read_header(batch), magic=magic, first_offset=position, room=room, max_bytes=MAX_BYTES
            )
        )
        messages = list(deep(converted.data, Limits(MAX_BYTES)))
        assert len(converted.data) <= room or len(messages) <= 1
        results += messages
        if converted.complete:
            break
        position = messages[-1].offset + 1
    assert [(result.offset, result.key, result.value) for result in results] == [
        (r.offset, r.key, r.value) for r in expected
    ]
    if magic == 0:
        assert {result.timestamp for result in results} <= {-1}
    elif append_time is None:
        assert [result.timestamp for result in results] == [record.timestamp for record in expected]
    else:
        assert {result.timestamp for result in results} <= {append_time}
        assert {result.timestamp_type for result in results} <= {TimestampType.LOG_APPEND_TIME}
