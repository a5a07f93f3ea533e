"""The recent history of a group: its commits and rebalances, as its coordinator has written them to __consumer_offsets.

OffsetFetch says what is committed, not when; DescribeGroups says that a group rebalances, not how often or why. The
coordinator's own log says both, in any Apache Kafka. It is read from the first record of the wanted time on, which
needs Read on the topic; where that is more than ``MAX_BYTES``, a shorter time has to do.

Compaction keeps the newest record of each key, so the last commit of a partition is always found if it lies within the
wanted time; earlier commits and generations may be missing, which makes the history shorter, never wrong.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

from oncelog.admin.transactions.fetches import fetch_request, fetched_in
from oncelog.base.errors import ErrorCode
from oncelog.base.hashing import coordinator_partition
from oncelog.base.ids import CONSUMER_OFFSETS, TopicName, TopicPartition
from oncelog.base.units import MIB
from oncelog.client.errors import BrokerRefused, ClientError
from oncelog.client.machine.consumed_records import ConsumedRecord, read_fetched
from oncelog.client.machine.positions import Fetched
from oncelog.client.machine.requests import LATEST, offset_query
from oncelog.client.programs import Cluster, Program
from oncelog.client.programs.log_offsets import list_offsets
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

MAX_BYTES: Final = 64 * MIB
_FETCH_BYTES: Final = 4 * MIB
_LEAST_WINDOW_MS: Final = 5_000
STILL_MS: Final = 30_000
"""An offset that has not moved for so long stands still, unless it never moved more often."""
_PATIENCE: Final = 3
"""Times the usual distance of two commits."""


@dataclass(frozen=True, slots=True)
class Commit:
    """A committed offset and the coordinator's time of it, in milliseconds."""

    offset: int
    at_ms: int


@dataclass(frozen=True, slots=True)
class Generation:
    """A generation of a classic group that was written down: at the end of a rebalance, or when it became empty."""

    number: int
    at_ms: int
    members: tuple[MemberMetadata, ...]


@dataclass(slots=True)
class GroupHistory:
    """Commits and generations of a group since ``since_ms``."""

    since_ms: int
    commits: dict[TopicPartition, list[Commit]] = field(default_factory=dict)
    generations: list[Generation] = field(default_factory=list)

    def last_move(self, where: TopicPartition) -> Commit | None:
        """The first commit of the offset that is committed now: since then it has not moved. None: not in this time."""
        found = self.commits.get(where) or []
        at = len(found) - 1
        while at > 0 and found[at - 1].offset == found[at].offset:
            at -= 1
        return found[at] if at >= 0 else None

    def advances(self, where: TopicPartition, now_ms: int) -> bool:
        """True if a partition's offset moved not long ago, measured by how often it moves, and by ``STILL_MS``."""
        last = self.last_move(where)
        if last is None:
            return False
        moves = [after.at_ms for before, after in pairwise(self.commits[where]) if before.offset != after.offset]
        usual_ms = (moves[-1] - moves[0]) / (len(moves) - 1) if len(moves) > 1 else 0.0
        return now_ms - last.at_ms < max(STILL_MS, _PATIENCE * usual_ms)

    def rate_a_second(self, where: TopicPartition, now_ms: int) -> float | None:
        """Offsets committed a second, from the first commit in this time on; None with fewer than two."""
        found = self.commits.get(where) or []
        if len(found) < 2 or now_ms <= found[0].at_ms:
            return None
        return max(0, found[-1].offset - found[0].offset) * 1000 / (now_ms - found[0].at_ms)


def read_history(cluster: Cluster, group: str, now_ms: int, window_ms: int) -> Program[GroupHistory]:
    """The history of a group over ``window_ms``, or over less where that is too much to read; see ``since_ms``.

    Raises ClientError; BrokerRefused when the topic may not be read.
    """
    topics = yield from cluster.metadata({CONSUMER_OFFSETS})
    topic = topics[CONSUMER_OFFSETS]
    if topic.error_code not in (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
        raise BrokerRefused(topic.error_code, CONSUMER_OFFSETS)
    count = len(topic.partitions)
    if not count:
        return GroupHistory(now_ms - window_ms)
    where = TopicPartition(CONSUMER_OFFSETS, coordinator_partition(group, count))
    ends = yield from list_offsets(cluster, {where: LATEST}, read_committed=True)
    end = ends[where].offset
    while True:
        history = GroupHistory(now_ms - window_ms)
        begins = yield from list_offsets(cluster, {where: offset_query(history.since_ms)})
        begin = begins[where].offset
        if not 0 <= begin < end:
            return history
        if (yield from _read(cluster, history, group, where, begin, end)):
            return history
        if window_ms <= _LEAST_WINDOW_MS:
            raise ClientError(f"{where} has more than {MAX_BYTES // MIB} MiB of the last seconds")
        window_ms = max(_LEAST_WINDOW_MS, window_ms // 4)


def take(history: GroupHistory, group: str, records: Iterable[ConsumedRecord]) -> None:
    """Add the records of ``group`` that are not older than the history."""
    for record in records:
        if record.timestamp < history.since_ms or record.key is None:
            continue
        key = decode_key(record.key)
        if isinstance(key, OffsetCommitKey) and key.group == group:
            where = TopicPartition(TopicName(key.topic), key.partition)
            value = None if record.value is None else decode_offset_commit_value(record.value)
            if isinstance(value, OffsetCommitValue):
                history.commits.setdefault(where, []).append(Commit(value.offset, record.timestamp))
            else:  # deleted or expired: what was committed before does not count any more
                history.commits.pop(where, None)
        elif isinstance(key, GroupMetadataKey) and key.group == group and record.value is not None:
            metadata = decode_group_metadata_value(record.value)
            if isinstance(metadata, GroupMetadataValue):
                history.generations.append(Generation(metadata.generation, record.timestamp, metadata.members))


def _read(
    cluster: Cluster, history: GroupHistory, group: str, where: TopicPartition, begin: int, end: int
) -> Program[bool]:
    """Add what the coordinator wrote of the group from ``begin`` to ``end``. Returns False if that is too much."""
    position, size = begin, 0

    def fetch() -> Program[Fetched]:
        leader = yield from cluster.leader(where)
        message = fetch_request(cluster.view, {where: position}, _FETCH_BYTES, _FETCH_BYTES, read_committed=True)
        answer = yield from cluster.request(message, broker=leader)
        fetched = next(iter(fetched_in(cluster.view, answer, {where: position})), None)
        code = answer.error_code if fetched is None else fetched.error_code
        if fetched is None or code:
            raise BrokerRefused(code, str(where))
        if not fetched.records and answer.throttle_time_ms:  # no end: the last commits would be missing
            raise BrokerRefused(ErrorCode.THROTTLING_QUOTA_EXCEEDED, str(where))
        return fetched

    while position < end and size <= MAX_BYTES:
        fetched = yield from cluster.retrying(fetch)
        if not fetched.records:
            break
        take(history, group, read_fetched(fetched, read_committed=True))
        position = fetched.next_offset
        size += len(fetched.records)
    return size <= MAX_BYTES
