"""Merged batches against a state per offset, and states read from any remaining part of the log."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from oncelog.base.ids import GroupId, LeaderEpoch, Offset, TopicId
from oncelog.core.share_state.combining import combined
from oncelog.core.share_state.model import DeleteState, InitializeState, ReadState, ShareKey, StateRequest, WriteState
from oncelog.core.share_state.settings import ShareStateSettings
from oncelog.core.share_state.shard import ShareStateShard
from oncelog.records.internal.share_state_records import StateBatch

TOPIC = TopicId(b"t" * 16)
KEYS = [ShareKey(GroupId(group), TOPIC, index) for group in ("a", "b") for index in range(2)]


def batch(first: int, size: int, state: int, count: int) -> StateBatch:
    return StateBatch(first, first + size - 1, state, count)


BATCHES = st.lists(
    st.builds(batch, st.integers(0, 40), st.integers(1, 12), st.sampled_from([0, 2, 3, 4]), st.integers(1, 3)),
    max_size=6,
)
STARTS = st.integers(-1, 45)


def by_offset(batches: tuple[StateBatch, ...] | list[StateBatch], start: int) -> dict[int, tuple[int, int]]:
    strongest: dict[int, tuple[int, int]] = {}
    for each in batches:
        for offset in range(each.first_offset, each.last_offset + 1):
            if offset >= start:
                state = each.delivery_count, each.delivery_state
                strongest[offset] = max(strongest.get(offset, state), state)
    return strongest


@given(st.lists(st.tuples(BATCHES, STARTS), max_size=6))
def test_merged_batches_have_the_strongest_state_of_every_offset(writes: list[tuple[list[StateBatch], int]]) -> None:
    present: tuple[StateBatch, ...] = ()
    model: dict[int, tuple[int, int]] = {}
    for changed, start in writes:
        present = combined(present, changed, start)
        below = {offset: state for offset, state in model.items() if offset >= start}
        for offset, state in by_offset(changed, start).items():
            below[offset] = max(below.get(offset, state), state)
        model = below
        assert by_offset(present, -1) == model
        for left, right in pairwise(present):
            assert left.last_offset < right.first_offset
            assert left.last_offset + 1 < right.first_offset or left[2:] != right[2:]


def _write(key: ShareKey, epoch: int, leader: int, start: int, batches: list[StateBatch]) -> WriteState:
    return WriteState(key, epoch, LeaderEpoch(leader), Offset(start), len(batches), batches)


REQUESTS: st.SearchStrategy[StateRequest] = st.one_of(
    st.builds(InitializeState, st.sampled_from(KEYS), st.integers(0, 3), STARTS.map(Offset)),
    st.builds(ReadState, st.sampled_from(KEYS), st.integers(0, 3).map(LeaderEpoch)),
    st.builds(_write, st.sampled_from(KEYS), st.integers(0, 3), st.integers(0, 3), STARTS, BATCHES),
    st.builds(_write, st.sampled_from(KEYS), st.just(3), st.just(3), STARTS, BATCHES),
    st.builds(DeleteState, st.sampled_from(KEYS)),
)
STEPS = st.lists(st.one_of(REQUESTS, st.integers(0, 600_000)), max_size=40)
SETTINGS = st.builds(ShareStateSettings, updates_per_snapshot=st.integers(0, 4))


def _replayed(settings: ShareStateSettings, log: list[tuple[Offset, bytes, bytes | None]]) -> ShareStateShard:
    shard = ShareStateShard(0, settings, lambda _topic: 2)
    for offset, key, value in log:
        shard.apply(key, value, offset)
    shard.check()
    return shard


def _fences(shard: ShareStateShard) -> list[tuple[ShareKey, int, int]]:
    return sorted((key, entry.leader_epoch, entry.state_epoch) for key, entry in shard._entries.items())


@given(SETTINGS, STEPS, st.data())
def test_the_states_follow_from_any_part_of_the_log_that_pruning_leaves(
    settings: ShareStateSettings, steps: list[StateRequest | int], data: st.DataObject
) -> None:
    shard = ShareStateShard(0, settings, lambda _topic: 2)
    shard.loaded(0)
    log: list[tuple[Offset, bytes, bytes | None]] = []
    now_ms = 0
    for step in steps:
        if isinstance(step, int):
            now_ms += step
            due_ms = shard.deadline_ms()
            if due_ms is None or due_ms > now_ms:
                continue
            decision = shard.tick(now_ms)
        else:
            decision = shard.decide(step, now_ms)
        for key, value in decision.records:
            log.append((Offset(len(log)), key, value))
            shard.apply(key, value, log[-1][0])
        shard.check()
    for begin in {
        0,
        max(0, shard.first_needed_offset()),
        data.draw(st.integers(0, max(0, shard.first_needed_offset()))),
    }:
        replayed = _replayed(settings, log[begin:])
        assert replayed.states() == shard.states()
        for (_, leader_epoch, state_epoch), (key, *fences) in zip(_fences(replayed), _fences(shard), strict=True):
            assert state_epoch == fences[1]
            # An initialization resets the leader epoch, and the records of the fence before it may be gone.
            is_reset = shard.states()[key].leader_epoch < fences[0]
            assert leader_epoch == fences[0] or (begin > 0 and is_reset and leader_epoch < fences[0])
    # The same where the topic was compacted: of each key the last record only, for snapshots and tombstones.
    last = {key: offset for offset, key, _ in log if key[:2] == b"\0\0"}
    compacted = [record for record in log if record[1][:2] != b"\0\0" or last[record[1]] == record[0]]
    _replayed(settings, compacted)
