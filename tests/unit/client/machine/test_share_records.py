"""Records of acquired batches, and the acquired offsets that have none."""

from __future__ import annotations

import random

import pytest

from oncelog.base.ids import NO_TOPIC_ID, TopicName, TopicPartition
from oncelog.client.machine.share.records import read_acquired
from oncelog.client.machine.share.values import Acknowledge, AcquiredBatches, AcquiredRange
from oncelog.legacy.message_set.entry import Message, TimestampType
from oncelog.records.builder import build_batch, end_transaction_marker
from oncelog.records.compression import Codec
from oncelog.records.record import Record
from tests import message_sets


def acquired(records: bytes, *ranges: tuple[int, int], is_cut: bool = False) -> AcquiredBatches:
    at = TopicPartition(TopicName("t"), 0)
    rows = tuple(AcquiredRange(first, last, 1) for first, last in ranges)
    return AcquiredBatches(at, memoryview(records), rows, 0, NO_TOPIC_ID, 1, is_cut)


def batch(*offsets: int, last: int | None = None) -> bytes:
    records = [Record(offset, 0, None, b"%d" % offset) for offset in offsets]
    return bytes(build_batch(records, base_offset=offsets[0], last_offset=last))


def others(batches: AcquiredBatches, kind: Acknowledge) -> list[tuple[int, int]]:
    return [(first, last) for first, last, other in read_acquired(batches).others if other is kind]


def test_compacted_offsets_and_control_records_are_gaps() -> None:
    marker = bytes(
        end_transaction_marker(
            producer_id=1, producer_epoch=0, committed=True, coordinator_epoch=0, timestamp=0, base_offset=6
        )
    )
    stored = batch(0, 2, last=4) + marker + batch(8)
    batches = acquired(stored, (0, 9))
    assert [record.offset for record in read_acquired(batches).records] == [0, 2, 8]
    assert others(batches, Acknowledge.GAP) == [(1, 1), (3, 5), (6, 7), (9, 9)]


def test_records_outside_the_acquired_ranges_are_left_out() -> None:
    batches = acquired(batch(*range(10)), (2, 3), (7, 7))
    read = read_acquired(batches)
    assert [record.offset for record in read.records] == [2, 3, 7]
    assert (read.others, read.errors) == ([], [])


def test_offsets_behind_a_cut_are_released() -> None:
    batches = acquired(batch(0, 1), (0, 5), is_cut=True)
    assert others(batches, Acknowledge.RELEASE) == [(2, 5)]
    assert others(batches, Acknowledge.GAP) == []


def test_a_damaged_batch_is_rejected_as_a_whole_and_the_next_is_read() -> None:
    damaged = bytearray(batch(0, 1, 2))
    damaged[-2] ^= 1  # within a value
    batches = acquired(bytes(damaged) + batch(3), (1, 3))
    read = read_acquired(batches)
    assert [record.offset for record in read.records] == [3]
    assert read.others == [(1, 2, Acknowledge.REJECT)]
    assert "records 1 to 2 of t-0 are rejected" in str(read.errors[0])
    assert [record.offset for record in read_acquired(batches, check_crc=False).records] == [1, 2, 3]


def test_a_damaged_batch_without_an_acquired_record_is_nothing() -> None:
    damaged = bytearray(batch(0))
    damaged[-1] ^= 1
    assert read_acquired(acquired(bytes(damaged) + batch(1), (1, 1))).errors == []


def test_messages_of_old_formats_are_records() -> None:
    messages = [Message(offset, 5, TimestampType.CREATE_TIME, None, b"%d" % offset, 1) for offset in range(3)]
    stored = message_sets.write(messages, 1, Codec.GZIP) + batch(3)
    read = read_acquired(acquired(stored, (1, 3)))
    assert [(record.offset, record.value) for record in read.records] == [(1, b"1"), (2, b"2"), (3, b"3")]
    assert read.others == []


@pytest.mark.parametrize("seed", range(20))
def test_every_acquired_offset_is_a_record_or_something_else_once(seed: int) -> None:
    entropy = random.Random(seed)
    stored, offset, kept = b"", 0, set[int]()
    for _ in range(5):
        size = entropy.randint(1, 6)
        offsets = sorted(entropy.sample(range(offset, offset + size), entropy.randint(1, size)))
        records, last = [Record(at, 0, None, b"v") for at in offsets], offset + size - 1
        part = bytearray(build_batch(records, base_offset=offset, last_offset=last))
        if entropy.random() < 0.3:
            part[-1] ^= 1
        else:
            kept |= set(offsets)
        stored += part
        offset += size + entropy.randint(0, 2)
    ranges, at = [], 0
    while at < offset:
        end = at + entropy.randint(0, 4)
        ranges.append((at, end))
        at = end + entropy.randint(1, 4)
    read = read_acquired(acquired(stored, *ranges))
    locked = {o for first, last in ranges for o in range(first, last + 1)}
    rest = [o for first, last, _ in read.others for o in range(first, last + 1)]
    assert [record.offset for record in read.records] == sorted(kept & locked)
    assert sorted([*rest, *(record.offset for record in read.records)]) == sorted(locked)
