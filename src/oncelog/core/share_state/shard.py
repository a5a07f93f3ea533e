"""ShareStateShard: a deterministic state machine for the share partitions whose state one partition of
``__share_group_state`` keeps.

The node calls ``decide`` with a request, appends the decision's records as one batch, and calls ``apply`` for each with
its offset; the reply leaves once all records up to there are durable. Loading: ``apply`` for every record of the log in
order, then ``loaded``. At ``deadline_ms()`` the node calls ``tick``, and prunes the log as the decision says.

A state is a snapshot, and the updates after it: every ``updates_per_snapshot`` updates there is a new snapshot, after
which the older records of that share partition are redundant. Invariants, which :meth:`ShareStateShard.check` checks:

- **H1** Only ``apply`` changes states. Replaying any part of the log that begins at or before
  ``first_needed_offset`` gives the same states (for the leader epochs they are fenced by see H3).
- **H2** Batches of a state are in order, do not overlap, and neighbours in one state are one batch.
- **H3** The state epoch that requests are fenced by never falls while the state lives, and neither does the leader
  epoch while the shard does. As in Apache Kafka, whose records these are, an initialization writes leader epoch 0: a
  load of a log that was pruned behind it fences former leaders by the state epoch alone, until a leader has read.
- **H4** A decision refuses, or has exactly the records that make its reply true.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Collection
from dataclasses import dataclass
from itertools import pairwise

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import NO_OFFSET, GroupId, Offset, TopicId
from oncelog.base.invariant import invariant
from oncelog.core.share_state.checks import refusal
from oncelog.core.share_state.combining import combined
from oncelog.core.share_state.model import (
    DeleteState,
    InitializeState,
    ReadState,
    ShareKey,
    ShareStateDecision,
    StateReply,
    StateRequest,
    SummarizeState,
    WriteState,
)
from oncelog.core.share_state.settings import ShareStateSettings
from oncelog.records.internal.share_state_records import (
    NO_COUNT,
    SnapshotKey,
    SnapshotValue,
    Unknown,
    UpdateKey,
    UpdateValue,
    decode_key,
    decode_value,
    encode_key,
    encode_value,
)

RECORDS_PER_TICK = 500
"""Records written by one tick: cold snapshots, and tombstones of deleted topics."""
BYTES_PER_TICK = 256 * 1024
"""Bytes of records after which a tick ends; a batch of the log has a limit of a megabyte by default."""
PAUSE_MS = 10
"""Pause between such ticks, so that they do not block the loop."""
RETRY_MS = 1000
"""Pause before tombstones that the log has refused are tried again."""
AT_ONCE_MS = 0
_NOTHING = ShareStateDecision()
_NO_STATE = SnapshotValue(0, 0, 0, NO_OFFSET)
"""The summary of a share partition without state."""


@dataclass(slots=True)
class Entry:
    """A share partition: its state, and what only requests are checked against."""

    state: SnapshotValue
    leader_epoch: int
    """The highest epoch of any record: a later initialization resets that of the state, but not this one."""
    state_epoch: int
    offset: Offset
    """Offset of the last snapshot; without one, of the first update."""
    updates: int = 0
    """Updates since the last snapshot that was due."""


PartitionCount = Callable[[TopicId], int]
"""The number of partitions of a topic; 0 if there is no such topic."""


class ShareStateShard:
    def __init__(self, partition: int, settings: ShareStateSettings, partition_count: PartitionCount) -> None:
        self.partition = partition
        self.is_loaded = False
        self.skipped: Counter[str] = Counter()
        self._settings = settings
        self._partition_count = partition_count
        self._entries: dict[ShareKey, Entry] = {}
        self._first_unread: Offset | None = None
        """The first record that this version cannot read: no later one may supersede it."""
        self._last_tombstone = NO_OFFSET
        self._pruned_before = Offset(0)
        self._prune_ms: int | None = None
        self._cold_ms: int | None = None
        # Share partitions of deleted topics, and those whose snapshot is old; written in parts.
        self._to_delete: deque[ShareKey] = deque()
        self._to_snapshot: deque[ShareKey] = deque()
        self._deletion: tuple[ShareStateDecision, list[ShareKey]] | None = None
        """The last part of the deletions, and its share partitions."""
        self._next_part_ms = AT_ONCE_MS

    def decide(self, request: StateRequest, now_ms: int) -> ShareStateDecision:
        entry = self._entries.get(request.key)
        refused = refusal(request, entry, self._partition_count)
        if refused is not None:
            return ShareStateDecision(reply=refused)
        match request:
            case InitializeState():
                return self._initialize(request, entry, now_ms)
            case DeleteState():
                records = () if entry is None else (_tombstone(request.key),)
                return ShareStateDecision(records, StateReply())
            case SummarizeState():
                return ShareStateDecision(reply=StateReply(state=_NO_STATE if entry is None else entry.state))
            case ReadState():
                assert entry is not None  # otherwise refused
                return self._read(request, entry, now_ms)
            case WriteState():
                assert entry is not None
                return ShareStateDecision((self._change(request, entry, now_ms),), StateReply())

    def _initialize(self, request: InitializeState, entry: Entry | None, now_ms: int) -> ShareStateDecision:
        value = SnapshotValue(
            0 if entry is None else entry.state.snapshot_epoch + 1,
            request.state_epoch,
            0,
            request.start_offset,
            NO_COUNT if request.start_offset == NO_OFFSET else 0,
            now_ms,
            now_ms,
        )
        return ShareStateDecision((_snapshot(request.key, value),), StateReply())

    def _read(self, request: ReadState, entry: Entry, now_ms: int) -> ShareStateDecision:
        state = entry.state
        reply = StateReply(state=state)
        if entry.leader_epoch == request.leader_epoch:
            return ShareStateDecision(reply=reply)
        # The new leader's epoch is durable before it has the state: the old one cannot write any more.
        unchanged = WriteState(
            request.key,
            state.state_epoch,
            request.leader_epoch,
            Offset(state.start_offset),
            state.delivery_complete_count,
        )
        return ShareStateDecision((self._change(unchanged, entry, now_ms, request.leader_epoch),), reply)

    def _change(
        self, request: WriteState, entry: Entry, now_ms: int, leader_epoch: int | None = None
    ) -> tuple[bytes, bytes]:
        """The record of a write: an update, or a snapshot that is due."""
        state = entry.state
        if leader_epoch is None:
            leader_epoch = state.leader_epoch
        start_offset = max(request.start_offset, state.start_offset)
        # A count belongs to its start offset: a write that is late must not take back what a later one counted.
        count = request.delivery_complete_count
        if request.start_offset == state.start_offset:
            count = max(count, state.delivery_complete_count)
        elif request.start_offset < state.start_offset:
            count = state.delivery_complete_count
        if entry.updates >= self._settings.updates_per_snapshot:
            value = SnapshotValue(
                state.snapshot_epoch + 1,
                state.state_epoch,
                leader_epoch,
                start_offset,
                count,
                now_ms,
                now_ms,
                combined(state.batches, request.batches, start_offset),
            )
            return _snapshot(request.key, value)
        batches = combined((), request.batches, start_offset)
        update = UpdateValue(state.snapshot_epoch, leader_epoch, start_offset, count, batches)
        return encode_key(UpdateKey(*request.key)), encode_value(update)

    def apply(self, key: bytes, value: bytes | None, offset: Offset = NO_OFFSET) -> None:
        """``offset``: the record's in the log. Without it nothing is pruned."""
        name = decode_key(key)
        if isinstance(name, Unknown):
            self._skip(name, offset)
            return
        share_key = ShareKey(GroupId(name.group), name.topic_id, name.partition)
        if value is None:
            # Apache Kafka writes tombstones of snapshots alone; a compaction may leave one for an update.
            if isinstance(name, SnapshotKey):
                self._entries.pop(share_key, None)
                self._last_tombstone = offset
            return
        content = decode_value(name, value)
        if isinstance(content, Unknown):
            self._skip(content, offset)
        elif isinstance(content, SnapshotValue):
            self._apply_snapshot(share_key, content, offset)
        else:
            self._apply_update(share_key, content, offset)

    def _skip(self, unread: Unknown, offset: Offset) -> None:
        self.skipped[unread.reason] += 1
        if self._first_unread is None:
            self._first_unread = offset

    def _apply_snapshot(self, key: ShareKey, value: SnapshotValue, offset: Offset) -> None:
        state = value._replace(batches=combined((), value.batches, value.start_offset))
        entry = self._entries.get(key)
        if entry is None:
            self._entries[key] = Entry(state, value.leader_epoch, value.state_epoch, offset)
            return
        entry.state, entry.offset = state, offset
        entry.leader_epoch = max(entry.leader_epoch, value.leader_epoch)
        entry.state_epoch = max(entry.state_epoch, value.state_epoch)
        # As in Apache Kafka, a snapshot for another reason leaves the count.
        if entry.updates >= self._settings.updates_per_snapshot:
            entry.updates = 0

    def _apply_update(self, key: ShareKey, value: UpdateValue, offset: Offset) -> None:
        entry = self._entries.get(key)
        if entry is None:
            # Its snapshot is damaged or gone: what is known is better than nothing.
            batches = combined((), value.batches, value.start_offset)
            state = SnapshotValue(
                value.snapshot_epoch,
                0,
                value.leader_epoch,
                value.start_offset,
                value.delivery_complete_count,
                batches=batches,
            )
            self._entries[key] = Entry(state, value.leader_epoch, 0, offset, updates=1)
            return
        state = entry.state
        start_offset = state.start_offset if value.start_offset == NO_OFFSET else value.start_offset
        entry.state = state._replace(
            start_offset=start_offset,
            delivery_complete_count=value.delivery_complete_count,
            leader_epoch=state.leader_epoch if value.leader_epoch == -1 else value.leader_epoch,
            batches=combined(state.batches, value.batches, start_offset),
        )
        entry.leader_epoch = max(entry.leader_epoch, value.leader_epoch)
        entry.updates += 1

    # Lifecycle

    def loaded(self, now_ms: int) -> ShareStateDecision:
        self.is_loaded = True
        self._prune_ms = now_ms + self._settings.prune_interval_ms
        self._cold_ms = now_ms + self._settings.cold_snapshot_interval_ms
        # Topics that were deleted while no coordinator had the partition.
        topics = {key.topic_id for key in self._entries}
        return self.topics_deleted({topic for topic in topics if not self._partition_count(topic)})

    def unloaded(self, _now_ms: int) -> ShareStateDecision:
        self.is_loaded = False
        return _NOTHING

    def append_failed(self, decision: ShareStateDecision, _error: ErrorCode, now_ms: int) -> ShareStateDecision:
        # Nothing has changed; the next interval tries the snapshots that a tick could not write.
        self._to_snapshot.clear()
        if self._deletion is not None and self._deletion[0] is decision:
            # Nobody else would delete them: their topic is gone.
            self._to_delete.extendleft(reversed(self._deletion[1]))
            self._next_part_ms = now_ms + RETRY_MS
        return _NOTHING

    def partitions_deleted(self, _partitions: object, _now_ms: int) -> ShareStateDecision:
        return _NOTHING  # by topic ids instead

    def topics_deleted(self, topics: Collection[TopicId]) -> ShareStateDecision:
        """Tombstones for the states of deleted topics are written by the next ticks."""
        if topics:
            self._to_delete += [key for key in self._entries if key.topic_id in topics]
        return _NOTHING

    def deadline_ms(self) -> int | None:
        """None while there is nothing to prune or to snapshot: an empty shard wakes nobody."""
        if not self.is_loaded:
            return None
        if self._to_delete or self._to_snapshot:
            return self._next_part_ms
        if not self._entries and self._last_tombstone <= self._pruned_before:
            return None
        assert self._prune_ms is not None
        assert self._cold_ms is not None
        return min(self._prune_ms, self._cold_ms)

    def tick(self, now_ms: int) -> ShareStateDecision:
        self._deletion = None
        if self._to_delete or self._to_snapshot:
            decision = self._delete_some() if self._to_delete else self._snapshot_some(now_ms)
            self._next_part_ms = now_ms + PAUSE_MS if self._to_delete or self._to_snapshot else AT_ONCE_MS
            return decision
        if self._cold_ms is not None and self._cold_ms <= now_ms:
            self._cold_ms = now_ms + self._settings.cold_snapshot_interval_ms
            self._to_snapshot += self._cold(now_ms)
            return _NOTHING
        if self._prune_ms is not None and self._prune_ms <= now_ms:
            self._prune_ms = now_ms + self._settings.prune_interval_ms
            before = self.first_needed_offset()
            if before > self._pruned_before:
                self._pruned_before = before
                return ShareStateDecision(prune_before=before)
        return _NOTHING

    def _delete_some(self) -> ShareStateDecision:
        keys: list[ShareKey] = []
        records: list[tuple[bytes, bytes | None]] = []
        size = 0
        while self._to_delete and len(records) < RECORDS_PER_TICK and size < BYTES_PER_TICK:
            key = self._to_delete.popleft()
            if key in self._entries:
                keys.append(key)
                records.append(_tombstone(key))
                size += len(records[-1][0])
        decision = ShareStateDecision(records)
        self._deletion = decision, keys
        return decision

    def _cold(self, now_ms: int) -> list[ShareKey]:
        """Share partitions that have not been written for an interval: their snapshots keep old records from being
        pruned."""
        states = [(key, entry.state) for key, entry in self._entries.items()]
        # A snapshot of the usual kind has equal times. As in Apache Kafka, once all are cold nothing is written again.
        if all(state.create_timestamp != state.write_timestamp for _, state in states):
            return []
        oldest_ms = now_ms - self._settings.cold_snapshot_interval_ms
        return [key for key, state in states if state.write_timestamp <= oldest_ms]

    def _snapshot_some(self, now_ms: int) -> ShareStateDecision:
        records: list[tuple[bytes, bytes | None]] = []
        size = 0
        while self._to_snapshot and len(records) < RECORDS_PER_TICK and size < BYTES_PER_TICK:
            key = self._to_snapshot.popleft()
            entry = self._entries.get(key)
            if entry is not None:
                state = entry.state
                cold = state._replace(snapshot_epoch=state.snapshot_epoch + 1, write_timestamp=now_ms)
                records.append(_snapshot(key, cold))
                size += sum(map(len, _snapshot(key, cold)))
        return ShareStateDecision(records)

    # Reading

    def first_needed_offset(self) -> Offset:
        """The first record of the log that a load needs; −1 if there is none to prune before."""
        offsets = [entry.offset for entry in self._entries.values()]
        if self._first_unread is not None:
            offsets.append(self._first_unread)
        return min(offsets, default=self._last_tombstone)

    def states(self) -> dict[ShareKey, SnapshotValue]:
        return {key: entry.state for key, entry in self._entries.items()}

    def check(self) -> None:
        """Raises InvariantViolation."""
        for key, entry in self._entries.items():
            batches = entry.state.batches
            invariant(all(batch.first_offset <= batch.last_offset for batch in batches), "H2", key=key)
            invariant(
                all(
                    left.last_offset < right.first_offset
                    and (left.last_offset + 1 < right.first_offset or left[2:] != right[2:])
                    for left, right in pairwise(batches)
                ),
                "H2",
                key=key,
            )
            invariant(entry.leader_epoch >= entry.state.leader_epoch, "H3", key=key)
            invariant(entry.state_epoch >= entry.state.state_epoch, "H3", key=key)


def _snapshot(key: ShareKey, value: SnapshotValue) -> tuple[bytes, bytes]:
    return encode_key(SnapshotKey(*key)), encode_value(value)


def _tombstone(key: ShareKey) -> tuple[bytes, None]:
    return encode_key(SnapshotKey(*key)), None
