"""Reads the delivery states of a share group's records from the share coordinators' log, ``__share_group_state``.

No request of Apache Kafka tells the state of a record in flight. The log has every state that was made durable: after
an acknowledgement, a release and an expired lock, with delivery counts and times. A lock itself is never written, so a
record that a member holds is shown in the state before, or not at all. Reading it needs Read on the topic.

Coordinators delete records that a later snapshot of each share partition covers. The last snapshot of each is always
there, with the updates after it, and often more.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import Final, NamedTuple

from oncelog.admin.log_bounds import log_bounds
from oncelog.admin.transactions.fetches import read_range
from oncelog.base.errors import ErrorCode
from oncelog.base.hashing import coordinator_partition
from oncelog.base.ids import SHARE_GROUP_STATE, Offset, TopicPartition, uuid_text
from oncelog.base.units import MIB
from oncelog.client.errors import BrokerRefused, ClientError
from oncelog.client.machine.consumed_records import ConsumedRecord
from oncelog.client.programs import Cluster, Program
from oncelog.records.internal.share_state_records import (
    SnapshotValue,
    StateBatch,
    Unknown,
    UpdateValue,
    decode_key,
    decode_value,
)

MAX_BYTES: Final = 64 * MIB
"""How much of one partition of the log is read at most, from its end."""
MOST_CHANGES: Final = 5_000
"""The most changes that are kept of one share partition: the newest."""
Key = tuple[bytes, int]


class StateChange(NamedTuple):
    """States that became durable at a time, in an update; a snapshot repeats old ones and is no change."""

    at_ms: int
    start_offset: int
    batches: tuple[StateBatch, ...]


@dataclass(slots=True)
class RecordedState:
    """The state of a share partition as it was last written. ``batches`` are in the order of their offsets; offsets
    between them have never been acknowledged or released."""

    start_offset: int
    delivery_complete_count: int
    batches: tuple[StateBatch, ...] = ()
    written_ms: int = 0
    changes: list[StateChange] = field(default_factory=list)

    def moved_ms(self) -> int | None:
        """When the start offset came to where it is; None if the log no longer has it."""
        moved = None
        for change in reversed(self.changes):
            if change.start_offset not in (-1, self.start_offset):
                break
            if change.start_offset == self.start_offset:
                moved = change.at_ms
        return moved


def read_states(
    cluster: Cluster, group: str, partitions: Iterable[TopicPartition]
) -> Program[dict[TopicPartition, RecordedState]]:
    """The recorded states of a group's partitions, without those that were never written. Raises ClientError;
    BrokerRefused if the log may not be read."""
    names = {partition.topic for partition in partitions}
    topics = yield from cluster.metadata({SHARE_GROUP_STATE, *names})
    log = topics[SHARE_GROUP_STATE]
    if log.error_code not in (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
        raise BrokerRefused(log.error_code, SHARE_GROUP_STATE)
    if not log.partitions:
        return {}
    by_log: dict[int, dict[Key, TopicPartition]] = {}
    for place in partitions:
        topic = topics.get(place.topic)
        if topic is not None and topic.exists:
            name = f"{group}:{uuid_text(topic.topic_id)}:{place.partition}"
            keys = by_log.setdefault(coordinator_partition(name, len(log.partitions)), {})
            keys[bytes(topic.topic_id), place.partition] = place
    states: dict[TopicPartition, RecordedState] = {}
    for number, keys in sorted(by_log.items()):
        read = yield from _read_log(cluster, TopicPartition(SHARE_GROUP_STATE, number), group, keys)
        states.update({keys[key]: state for key, state in read.items()})
    return states


def _read_log(
    cluster: Cluster, log: TopicPartition, group: str, keys: Mapping[Key, TopicPartition]
) -> Program[dict[Key, RecordedState]]:
    starts, ends = yield from log_bounds(cluster, [log])
    if log not in ends:
        raise ClientError(f"{log} has no leader")
    written: dict[Key, _Written] = {}
    add = partial(_add, written, group, keys)
    if not (yield from read_range(cluster, log, starts[log], ends[log], MAX_BYTES, add)):
        raise ClientError(f"{log} has more than {MAX_BYTES // MIB} MiB, and is not read")
    return {key: kept.state() for key, kept in written.items()}


@dataclass(slots=True)
class _Written:
    """A snapshot with the updates after it. Only these are merged: a log has many older ones."""

    snapshot: SnapshotValue
    at_ms: int
    updates: list[UpdateValue] = field(default_factory=list)
    changes: list[StateChange] = field(default_factory=list)

    def update(self, value: UpdateValue, at_ms: int) -> None:
        self.updates.append(value)
        self.at_ms = at_ms
        self.add_change(StateChange(at_ms, value.start_offset, value.batches))

    def add_change(self, change: StateChange) -> None:
        self.changes.append(change)
        if len(self.changes) > 2 * MOST_CHANGES:
            del self.changes[:-MOST_CHANGES]

    def state(self) -> RecordedState:
        last = self.updates[-1] if self.updates else self.snapshot
        start = max(self.snapshot.start_offset, *(update.start_offset for update in self.updates), -1)
        batches = [batch for update in self.updates for batch in update.batches]
        return RecordedState(
            start,
            last.delivery_complete_count,
            overlaid(self.snapshot.batches, batches, start),
            self.at_ms,
            self.changes[-MOST_CHANGES:],
        )


def _add(
    written: dict[Key, _Written],
    group: str,
    keys: Mapping[Key, TopicPartition],
    records: Iterable[ConsumedRecord],
) -> None:
    for record in records:
        key = decode_key(record.key)
        if isinstance(key, Unknown) or key.group != group:
            continue
        place = bytes(key.topic_id), key.partition
        if place not in keys:
            continue
        if record.value is None:
            written.pop(place, None)
            continue
        value, before = decode_value(key, record.value), written.get(place)
        if isinstance(value, SnapshotValue):
            written[place] = after = _Written(value, record.timestamp)
            if before is not None and before.snapshot.state_epoch == value.state_epoch:
                after.changes = before.changes
        # An update without its snapshot is covered by the next snapshot.
        elif isinstance(value, UpdateValue) and before is not None:
            before.update(value, record.timestamp)


def overlaid(old: Sequence[StateBatch], new: Sequence[StateBatch], start_offset: int) -> tuple[StateBatch, ...]:
    """The batches of ``old`` with ``new`` in their place, from ``start_offset`` on; alike neighbours become one."""
    batches = [
        batch._replace(first_offset=Offset(max(batch.first_offset, start_offset)))
        for batch in (*old, *new)
        if batch.last_offset >= max(batch.first_offset, start_offset)
    ]
    order = sorted(range(len(batches)), key=lambda index: batches[index].first_offset)
    bounds = sorted({bound for batch in batches for bound in (batch.first_offset, batch.last_offset + 1)})
    # Those that cover the present offset, the newest first; those that have ended leave when they come up.
    active: list[int] = []
    at = 0
    joined: list[StateBatch] = []
    for first, end in pairwise(bounds):
        while at < len(order) and batches[order[at]].first_offset == first:
            heapq.heappush(active, -order[at])
            at += 1
        while active and batches[-active[0]].last_offset < first:
            heapq.heappop(active)
        if not active:
            continue
        newest = batches[-active[0]]
        if joined and joined[-1].last_offset == first - 1 and joined[-1][2:] == newest[2:]:
            joined[-1] = joined[-1]._replace(last_offset=Offset(end - 1))
        else:
            joined.append(newest._replace(first_offset=Offset(first), last_offset=Offset(end - 1)))
    return tuple(joined)
