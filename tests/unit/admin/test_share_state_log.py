"""States of records from the log of share coordinators: what is merged, and what is left of it."""

from __future__ import annotations

import itertools
import random
import time

import pytest

from oncelog.admin.share_state_log import MOST_CHANGES, RecordedState, StateChange, _add, _Written, overlaid
from oncelog.base.ids import TopicId, TopicName, TopicPartition
from oncelog.client.machine.consumed_records import ConsumedRecord
from oncelog.records.internal.share_state_records import (
    SnapshotKey,
    SnapshotValue,
    StateBatch,
    UpdateKey,
    UpdateValue,
    encode_key,
    encode_value,
)

TOPIC_ID = TopicId(bytes(range(16)))
PLACE = bytes(TOPIC_ID), 0
KEYS = {PLACE: TopicPartition(TopicName("jobs"), 0)}
AVAILABLE, ACKNOWLEDGED, ARCHIVED = 0, 2, 4


def snapshot(
    start: int, *batches: StateBatch, state_epoch: int = 0, at_ms: int = 0, group: str = "g"
) -> ConsumedRecord:
    value = SnapshotValue(1, state_epoch, 0, start, 0, 0, 0, batches)
    return record(encode_key(SnapshotKey(group, TOPIC_ID, 0)), encode_value(value), at_ms)


def update(start: int, *batches: StateBatch, at_ms: int = 0, done: int = 0, group: str = "g") -> ConsumedRecord:
    value = UpdateValue(1, 0, start, done, batches)
    return record(encode_key(UpdateKey(group, TOPIC_ID, 0)), encode_value(value), at_ms)


def record(key: bytes, value: bytes | None, at_ms: int) -> ConsumedRecord:
    return ConsumedRecord("__share_group_state", 3, 0, at_ms, "create", key, value, (), 0)


def read(*records: ConsumedRecord) -> RecordedState | None:
    written: dict[tuple[bytes, int], _Written] = {}
    _add(written, "g", KEYS, records)
    return written[PLACE].state() if PLACE in written else None


def test_updates_are_merged_into_their_snapshot() -> None:
    state = read(
        snapshot(5, StateBatch(5, 9, AVAILABLE, 1), at_ms=1),
        update(5, StateBatch(6, 7, ACKNOWLEDGED, 1), at_ms=2, done=2),
        update(6, StateBatch(5, 5, ARCHIVED, 1), at_ms=3, done=3),
        update(6, StateBatch(5, 5, AVAILABLE, 9), at_ms=4, group="another"),
    )
    assert state is not None
    assert (state.start_offset, state.delivery_complete_count, state.written_ms) == (6, 3, 3)
    assert state.batches == (StateBatch(6, 7, ACKNOWLEDGED, 1), StateBatch(8, 9, AVAILABLE, 1))
    assert state.changes == [
        StateChange(2, 5, (StateBatch(6, 7, ACKNOWLEDGED, 1),)),
        StateChange(3, 6, (StateBatch(5, 5, ARCHIVED, 1),)),
    ]
    assert state.moved_ms() == 3


def test_a_snapshot_ends_its_updates_and_keeps_the_changes() -> None:
    state = read(snapshot(0), update(1, StateBatch(0, 0, ACKNOWLEDGED, 1), at_ms=2), snapshot(1, at_ms=3))
    assert state is not None
    assert (state.start_offset, state.batches, len(state.changes)) == (1, (), 1)


def test_a_reset_forgets_the_past() -> None:
    """It begins a new state epoch, and its start offset may lie before."""
    state = read(snapshot(0), update(7, at_ms=2), snapshot(3, state_epoch=1, at_ms=3))
    assert state is not None
    assert (state.start_offset, state.changes, state.moved_ms()) == (3, [], None)


def test_an_update_without_its_snapshot_and_a_tombstone() -> None:
    tombstone = record(encode_key(SnapshotKey("g", TOPIC_ID, 0)), None, 5)
    assert read(update(7)) is None
    assert read(snapshot(0), tombstone) is None
    assert read(record(b"\0\x09", b"", 0), record(b"", b"", 0)) is None


def test_unreadable_values_change_nothing() -> None:
    bad = record(encode_key(UpdateKey("g", TOPIC_ID, 0)), b"\0\0\xff", 9)
    state = read(snapshot(4, at_ms=1), bad)
    assert state is not None
    assert (state.start_offset, state.written_ms) == (4, 1)


def test_the_newest_changes_are_kept() -> None:
    count = 2 * MOST_CHANGES + 10
    state = read(snapshot(0), *(update(0, StateBatch(0, 0, AVAILABLE, 1), at_ms=at) for at in range(count)))
    assert state is not None
    assert len(state.changes) <= MOST_CHANGES
    assert state.changes[-1].at_ms == count - 1


@pytest.mark.parametrize("seed", range(20))
def test_overlaid_batches_are_what_each_offset_got_last(seed: int) -> None:
    choice = random.Random(seed)
    states: dict[int, tuple[int, int]] = {}
    old: tuple[StateBatch, ...] = ()
    start = 0
    for _ in range(10):
        start += choice.randrange(3)
        new = []
        for _ in range(choice.randrange(1, 4)):
            first = choice.randrange(start, start + 15)
            batch = StateBatch(first, first + choice.randrange(6), choice.choice((0, 2, 4)), choice.randrange(1, 4))
            new.append(batch)
            states |= dict.fromkeys(range(batch.first_offset, batch.last_offset + 1), batch[2:])
        old = overlaid(old, new, start)
        assert {offset: batch[2:] for batch in old for offset in range(batch.first_offset, batch.last_offset + 1)} == {
            offset: state for offset, state in states.items() if offset >= start
        }, seed
        assert all(one.last_offset < other.first_offset for one, other in itertools.pairwise(old))


def test_many_updates_are_merged_at_once() -> None:
    """A pass over the whole for each of them would take half a minute."""
    new = [StateBatch(offset, offset, ACKNOWLEDGED, 1) for offset in range(0, 40_000, 2)]
    began_s = time.process_time()
    assert overlaid((), new, 39_900) == tuple(new[-50:])
    assert len(overlaid((), new, 0)) == len(new)
    assert time.process_time() - began_s < 2
