"""Frames: whatever a source's log looks like, they hold its visible records, and brokers take them."""

from __future__ import annotations

from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.base.ids import TopicName, TopicPartition
from oncelog.client.machine.consumed_records import UnreadableRecords, read_fetched
from oncelog.client.machine.positions import Fetched, whole_batches
from oncelog.legacy.message_set.entry import Message, TimestampType
from oncelog.mirror.framing import JOINED_BYTES, SMALL_BYTES, Frame, FrameLimits, frames, visible_records
from oncelog.records.batch import crc_matches, read_header
from oncelog.records.builder import build_batch, end_transaction_marker
from oncelog.records.compression import Codec
from oncelog.records.record import Record, read_records
from tests.message_sets import write

AT = TopicPartition(TopicName("t"), 0)
LIMITS = FrameLimits()
PRODUCER = 7


class Log(NamedTuple):
    """A stretch of a source's log, with its aborted transactions."""

    data: bytes
    aborted: list[tuple[int, int]]
    end: int


def fetched(log: Log, position: int = 0) -> Fetched:
    return Fetched(AT, memoryview(log.data), log.end, log.end, 0, log.aborted, 0, position, log.end)


def records_of(frame: Frame) -> list[Record]:
    """The frame's records with the offsets they had; what a broker checks of a batch is checked."""
    header = read_header(frame.batch)
    assert header.size_bytes == len(frame.batch)
    assert header.base_offset == 0
    assert header.record_count == header.last_offset_delta + 1 == frame.records
    assert not header.is_control
    assert not header.is_log_append_time
    assert header.delete_horizon_ms is None
    offsets = [run.first + index for run in frame.runs for index in range(run.records)]
    records = list(read_records(frame.batch, 0, header, 1 << 30))
    assert [record.offset for record in records] == list(range(len(records)))
    assert header.max_timestamp == max(record.timestamp for record in records)
    return [record._replace(offset=offset) for record, offset in zip(records, offsets, strict=True)]


def visible(log: Log, position: int) -> list[Record]:
    result = read_fetched(fetched(log, position), read_committed=True)
    return [Record(record.offset, record.timestamp, record.key, record.value, record.headers) for record in result]


@st.composite
def logs(draw: st.DrawFn) -> Log:
    data, aborted, offset = b"", [], 0
    kinds = st.sampled_from(["plain", "holes", "append time", "committed", "aborted", "horizon", "empty"])
    for kind in draw(st.lists(kinds, max_size=8)):
        count = draw(st.integers(1, 5))
        step = st.integers(1, 3) if kind == "holes" else st.just(1)
        records, at = [], offset
        for _ in range(count):
            value = draw(st.sampled_from([b"", b"v", b"x" * 300, b"y" * (SMALL_BYTES + 1), None]))
            headers = draw(st.sampled_from([(), (("h", b"1"), ("n", None))]))
            records.append(
                Record(at, draw(st.integers(0, 10**12)), draw(st.sampled_from([None, b"k"])), value, headers)
            )
            at += draw(step)
        is_transactional = kind in ("committed", "aborted")
        batch = build_batch(
            [] if kind == "empty" else records,
            base_offset=offset,
            last_offset=at - 1,
            leader_epoch=3,
            codec=draw(st.sampled_from(Codec)) if kind != "empty" else Codec.NONE,
            transactional=is_transactional,
            producer_id=PRODUCER if is_transactional else -1,
            producer_epoch=0 if is_transactional else -1,
            base_sequence=0 if is_transactional else -1,
            log_append_time_ms=5_000 if kind == "append time" else None,
            delete_horizon_ms=77 if kind == "horizon" else None,
            max_timestamp=0 if kind == "empty" else None,
        )
        data += batch
        if is_transactional:
            committed = kind == "committed"
            data += end_transaction_marker(
                producer_id=PRODUCER,
                producer_epoch=0,
                committed=committed,
                coordinator_epoch=0,
                timestamp=1,
                base_offset=at,
            )
            aborted += [] if committed else [(PRODUCER, offset)]
            at += 1
        offset = at
    return Log(data, aborted, offset)


@given(logs(), st.integers(0, 20))
def test_frames_hold_the_visible_records_in_order(log: Log, position: int) -> None:
    result = [record for frame in frames(fetched(log, position), LIMITS) for record in records_of(frame)]
    assert result == visible(log, position)


@given(logs())
def test_frames_stay_within_what_the_target_takes(log: Log) -> None:
    limits = FrameLimits(max_batch_bytes=4_000, zstd=False)
    made = list(frames(fetched(log), limits))
    assert [record for frame in made for record in records_of(frame)] == visible(log, 0)
    for frame in made:
        assert len(frame.batch) <= 4_000 or frame.records == 1
        assert read_header(frame.batch).codec is not Codec.ZSTD


@given(logs(), st.integers(0, 30))
def test_frames_end_before_an_offset(log: Log, end_offset: int) -> None:
    made = list(frames(fetched(log), FrameLimits(end_offset=end_offset)))
    result = [record for frame in made for record in records_of(frame)]
    assert result == [record for record in visible(log, 0) if record[0] < end_offset]


def test_a_large_batch_goes_over_as_it_is() -> None:
    records = [Record(5 + index, 1_000 + index, b"k", b"v" * 1000) for index in range(20)]
    batch = build_batch(records, base_offset=5, codec=Codec.LZ4, leader_epoch=9)
    (frame,) = frames(fetched(Log(bytes(batch), [], 25), 5), LIMITS)
    assert frame.runs == ((5, 20),)
    assert bytes(frame.batch[61:]) == bytes(batch[61:])


def test_small_batches_become_one() -> None:
    data = b"".join(bytes(build_batch([Record(n, n, None, b"v")], base_offset=n)) for n in range(1000))
    (frame,) = frames(fetched(Log(data, [], 1000)), LIMITS)
    assert frame.runs == ((0, 1000),)
    assert len(frame.batch) < JOINED_BYTES


def test_a_damaged_batch_is_refused_with_its_place() -> None:
    batch = build_batch([Record(3, 1, None, b"value")], base_offset=3)
    batch[-2] ^= 1
    with pytest.raises(UnreadableRecords, match="offset 3 of t-0 is damaged: its checksum is wrong"):
        list(frames(fetched(Log(bytes(batch), [], 4), 3), LIMITS))


def test_a_reframed_batch_becomes_the_producers() -> None:
    from oncelog.records.batch import set_producer

    batch = build_batch([Record(0, 1, None, b"v")])
    set_producer(batch, 0, 11, 2, 30, transactional=True)
    header = read_header(batch)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (11, 2, 30)
    assert header.is_transactional
    assert crc_matches(batch, 0, header)


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4])
@pytest.mark.parametrize("magic", [0, 1])
def test_old_messages_become_records_between_batches(magic: int, codec: Codec) -> None:
    kind = TimestampType.CREATE_TIME if magic else TimestampType.NONE
    messages = [Message(n, 100 + n if magic else -1, kind, b"k", b"v" if n % 2 else None, magic) for n in range(5)]
    old = write(messages, magic, codec)
    new = bytes(build_batch([Record(5, 7, None, b"new")], base_offset=5))
    assert whole_batches(memoryview(old + new), 0, old_formats=True) == (len(old + new), 6)
    log = Log(old + new, [], 6)
    made = list(frames(fetched(log, 1), LIMITS))
    result = [record for frame in made for record in records_of(frame)]
    assert [(record.offset, record.value) for record in result] == [
        (1, b"v"),
        (2, None),
        (3, b"v"),
        (4, None),
        (5, b"new"),
    ]
    assert [item.timestamp for item in result] == ([101, 102, 103, 104, 7] if magic else [-1, -1, -1, -1, 7])
    assert read_header(made[0].batch).codec is codec
    assert [record.offset for record in visible_records(fetched(log, 1))] == [1, 2, 3, 4, 5]
