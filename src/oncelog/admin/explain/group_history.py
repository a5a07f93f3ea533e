"""Reads a group's recent commits and rebalances from the coordinator's log, __consumer_offsets.

OffsetFetch returns what is committed, not when; a description says that a group rebalances, not how often or why. The
log has both, in any Apache Kafka: generations of a classic group, epochs of one of the consumer protocol
(``consumer_group_history``); a converted group has both. It is read from the beginning of the time window, or later if
that is more than ``MAX_BYTES``, with Read on the topic.

Compaction keeps the newest record of each key, so a partition's last commit within the window is always present;
earlier ones and generations may be missing.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import Final

from oncelog.admin.explain.consumer_group_history import EpochHistory
from oncelog.admin.transactions.fetches import read_range
from oncelog.base.errors import ErrorCode
from oncelog.base.hashing import coordinator_partition
from oncelog.base.ids import CONSUMER_OFFSETS, TopicName, TopicPartition
from oncelog.base.units import MIB, MINUTE_MS
from oncelog.client.errors import BrokerRefused, ClientError
from oncelog.client.machine.consumed_records import ConsumedRecord
from oncelog.client.machine.requests import LATEST, offset_query
from oncelog.client.programs import Cluster, Program
from oncelog.client.programs.log_offsets import list_offsets
from oncelog.records.errors import CorruptBatch
from oncelog.records.internal import consumer_group_records
from oncelog.records.internal.group_records import (
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
    OffsetCommitKey,
    OffsetCommitValue,
    decode_group_metadata_value,
    decode_key,
    decode_offset_commit_value,
)

WINDOW_MS: Final = 15 * MINUTE_MS
"""How much of a group's history is read."""
MAX_BYTES: Final = 64 * MIB
_MIN_WINDOW_MS: Final = 5_000
STILL_MS: Final = 30_000
"""An offset that has not moved for this long stands still, unless it usually moves less often."""
_PATIENCE: Final = 3
"""Multiple of the usual interval between two moves."""


@dataclass(frozen=True, slots=True)
class Commit:
    offset: int
    at_ms: int


@dataclass(frozen=True, slots=True)
class Generation:
    """A generation of a classic group, as written at the end of a rebalance or when the group became empty."""

    number: int
    at_ms: int
    members: tuple[MemberMetadata, ...]


@dataclass(slots=True)
class GroupHistory:
    since_ms: int
    commits: dict[TopicPartition, list[Commit]] = field(default_factory=dict)
    generations: list[Generation] = field(default_factory=list)
    epochs: EpochHistory = field(default_factory=EpochHistory)

    def last_move(self, partition: TopicPartition) -> Commit | None:
        """The first commit of the present offset, which has not moved since; None if it moved before the window."""
        commits = self.commits.get(partition) or []
        index = len(commits) - 1
        while index > 0 and commits[index - 1].offset == commits[index].offset:
            index -= 1
        return commits[index] if index >= 0 else None

    def advances(self, partition: TopicPartition, now_ms: int) -> bool:
        """True if the offset moved recently, by ``STILL_MS`` and by how often it usually moves."""
        last = self.last_move(partition)
        if last is None:
            return False
        moves = [after.at_ms for before, after in pairwise(self.commits[partition]) if before.offset != after.offset]
        usual_ms = (moves[-1] - moves[0]) / (len(moves) - 1) if len(moves) > 1 else 0.0
        return now_ms - last.at_ms < max(STILL_MS, _PATIENCE * usual_ms)

    def rate_a_second(self, partition: TopicPartition, now_ms: int) -> float | None:
        """Offsets per second since the first commit in the window; None with fewer than two commits."""
        commits = self.commits.get(partition) or []
        if len(commits) < 2 or now_ms <= commits[0].at_ms:
            return None
        return max(0, commits[-1].offset - commits[0].offset) * 1000 / (now_ms - commits[0].at_ms)


def read_history(cluster: Cluster, group: str, now_ms: int, window_ms: int) -> Program[GroupHistory]:
    """The history of a group over ``window_ms``, or less if that is too much to read; see ``since_ms``.

    Raises ClientError; BrokerRefused if the topic may not be read.
    """
    count = yield from offsets_partition_count(cluster)
    if not count:
        return GroupHistory(now_ms - window_ms)
    partition = TopicPartition(CONSUMER_OFFSETS, coordinator_partition(group, count))
    return (yield from read_histories(cluster, partition, [group], now_ms, window_ms))[group]


def offsets_partition_count(cluster: Cluster) -> Program[int]:
    """The number of partitions that store offsets; 0 before the first group. Raises BrokerRefused."""
    topics = yield from cluster.metadata({CONSUMER_OFFSETS})
    topic = topics[CONSUMER_OFFSETS]
    if topic.error_code not in (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
        raise BrokerRefused(topic.error_code, CONSUMER_OFFSETS)
    return len(topic.partitions)


def read_histories(
    cluster: Cluster,
    partition: TopicPartition,
    groups: Collection[str],
    now_ms: int,
    window_ms: int,
    max_bytes: int = MAX_BYTES,
) -> Program[dict[str, GroupHistory]]:
    """The histories of groups whose offsets are in the same partition, which is read once. Raises ClientError."""
    ends = yield from list_offsets(cluster, {partition: LATEST}, read_committed=True)
    end = ends[partition].offset
    while True:
        histories = {group: GroupHistory(now_ms - window_ms) for group in groups}
        begins = yield from list_offsets(cluster, {partition: offset_query(now_ms - window_ms)})
        begin = begins[partition].offset
        # ListOffsets answers −1 if no record is that late.
        if not 0 <= begin < end:
            return histories
        if (yield from read_range(cluster, partition, begin, end, max_bytes, partial(add_records, histories))):
            return histories
        if window_ms <= _MIN_WINDOW_MS:
            raise ClientError(f"{partition} has more than {max_bytes // MIB} MiB of the last seconds")
        # Too much to read: try a quarter of the window.
        window_ms = max(_MIN_WINDOW_MS, window_ms // 4)


def add_records(histories: Mapping[str, GroupHistory], records: Iterable[ConsumedRecord]) -> None:
    """Add the records of the groups that are within the window."""
    for record in records:
        if record.key is None:
            continue
        key = decode_key(record.key)
        if not isinstance(key, OffsetCommitKey | GroupMetadataKey | consumer_group_records.Key):
            continue
        history = histories.get(key.group)
        if history is None or record.timestamp < history.since_ms:
            continue
        if isinstance(key, OffsetCommitKey):
            partition = TopicPartition(TopicName(key.topic), key.partition)
            value = None if record.value is None else decode_offset_commit_value(record.value)
            if isinstance(value, OffsetCommitValue):
                history.commits.setdefault(partition, []).append(Commit(value.offset, record.timestamp))
            else:  # deleted or expired: earlier commits no longer count
                history.commits.pop(partition, None)
        elif isinstance(key, GroupMetadataKey):
            metadata = None if record.value is None else decode_group_metadata_value(record.value)
            if isinstance(metadata, GroupMetadataValue):
                history.generations.append(Generation(metadata.generation, record.timestamp, metadata.members))
        else:
            # A record that cannot be read, of a newer release, tells nothing.
            with contextlib.suppress(CorruptBatch):
                epoch_value = None if record.value is None else consumer_group_records.decode_value(key, record.value)
                history.epochs.add(key, epoch_value, record.timestamp)
