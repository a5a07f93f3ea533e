"""W16: a committed offset read back is the one acknowledged last, or one that may have been committed since.

A commit whose answer nobody sent, or whose error leaves open whether it happened, stays possible until the broker
starts again and another is acknowledged. Offsets in transactions count from the commit of theirs (Transactions V2), and
bind only readers that ask for stable offsets; until its end is known, a transaction's offset is merely possible.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from oncelog.base.errors import ErrorCode
from oncelog.sim.checkers.wire.exchange import ALONE, Exchange, PartitionKey, Report, Topics
from oncelog.wire.messages.offset_commit import OffsetCommitResponse

COMMITTED: Final = "W16 committed offset is another"
_REFUSED: Final = frozenset(
    {
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.INVALID_GROUP_ID,
        ErrorCode.OFFSET_METADATA_TOO_LARGE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    }
)
"""Errors that say it did not happen."""
_RESIGNED: Final = frozenset({ErrorCode.NOT_COORDINATOR})
"""Errors after which it may have happened: one of several brokers may have written it before it resigned."""
Key = tuple[str, PartitionKey]


@dataclass(slots=True)
class _Commit:
    offset: int
    asked: int
    broker_id: int = ALONE
    over: int | None = None
    """When it was answered, or can no longer happen."""
    acknowledged: bool = False
    stable_only: bool = False


class Commits:
    """The offsets of every group and partition that may be committed."""

    def __init__(self, topics: Topics, report: Report, *, is_cluster: bool = False) -> None:
        self._topics = topics
        self._refused = _REFUSED - _RESIGNED if is_cluster else _REFUSED
        self._report = report
        self._known: dict[Key, list[_Commit]] = defaultdict(list)
        self._pending: dict[tuple[int, int], list[tuple[Key, _Commit]]] = {}
        """(producer id, epoch) → offsets of its open transaction."""
        self._asked: dict[int, list[tuple[str, bytes, int, Key, _Commit]]] = {}
        """Index of a request → what it asks for."""
        self._ignored: set[str] = set()

    def restarted(self, index: int, broker_id: int = ALONE) -> None:
        """Close the commits that were on their way to the broker: they have happened or never will."""
        for asked, commits in list(self._asked.items()):
            if not commits or commits[0][-1].broker_id == broker_id:
                del self._asked[asked]
        for known in self._known.values():
            for commit in known:
                if commit.over is None and not commit.stable_only and commit.broker_id == broker_id:
                    commit.over = index

    def forget(self, group: str) -> None:
        """Somebody asks for offsets of the group to be deleted: nothing is known of it any more."""
        self._ignored.add(group)

    def asking(self, asked: Exchange, *, transactional: bool) -> None:
        """An OffsetCommit or TxnOffsetCommit request came."""
        request, found = asked.request, []
        for topic in request.topics:
            topic_id: bytes = getattr(topic, "topic_id", bytes(16))
            for partition in topic.partitions:
                place = self._topics.key(topic.name, topic_id, partition.partition_index)
                if place is None or request.group_id in self._ignored:
                    continue
                key = request.group_id, place
                commit = _Commit(
                    partition.committed_offset, asked.came, stable_only=transactional, broker_id=asked.broker_id
                )
                self._known[key].append(commit)
                found.append((topic.name, topic_id, partition.partition_index, key, commit))
        if transactional:
            pending = self._pending.setdefault((request.producer_id, request.producer_epoch), [])
            pending += [(key, commit) for *_, key, commit in found]
        else:
            self._asked[asked.came] = found

    def committed(self, asked: Exchange, response: OffsetCommitResponse, index: int) -> None:
        errors = {(t.name, t.topic_id, p.partition_index): p.error_code for t in response.topics for p in t.partitions}
        for name, topic_id, partition, key, commit in self._asked.pop(asked.came, ()):
            error = errors.get((name, topic_id, partition))
            if error == 0:
                commit.over, commit.acknowledged = index, True
            elif error in self._refused:
                self._known[key] = [other for other in self._known[key] if other is not commit]

    def ended(self, asked: Exchange, error_code: int, index: int, *, bumps: bool) -> None:
        """An EndTxn response. Without a bump the epoch goes on, and the answer may be that of another transaction."""
        request = asked.request
        if error_code or not bumps:
            return
        for key, commit in self._pending.pop((request.producer_id, request.producer_epoch), ()):
            if request.committed:
                commit.over, commit.acknowledged = index, True
            else:
                self._known[key] = [other for other in self._known[key] if other is not commit]

    def fetched(self, asked: Exchange, response: Any) -> None:
        for group, topic, partition in _offsets_of(asked, response):
            place = self._topics.key(topic.name, getattr(topic, "topic_id", bytes(16)), partition.partition_index)
            if place is None or partition.error_code or group in self._ignored:
                continue
            self._read((group, place), partition.committed_offset, asked)

    def _read(self, key: Key, offset: int, asked: Exchange) -> None:
        stable = asked.request.require_stable
        commits = self._known.get(key, [])
        binding = [
            commit.asked
            for commit in commits
            if commit.acknowledged and (stable or not commit.stable_only) and (commit.over or 0) < asked.came
        ]
        since = max(binding, default=-1)
        possible = {
            commit.offset
            for commit in commits
            if commit.over is None or commit.over > since or (commit.stable_only and not stable)
        }
        if offset not in possible and not (offset == -1 and not binding):
            where = self._topics.show(key[1])
            self._report(COMMITTED, f"{key[0]} of {where}: {offset} read, committed is one of {sorted(possible)}")


def _offsets_of(asked: Exchange, response: Any) -> Iterator[tuple[str, Any, Any]]:
    for topic in response.topics if not response.error_code else ():
        for partition in topic.partitions:
            yield asked.request.group_id, topic, partition
    for group in response.groups:
        for topic in group.topics if not group.error_code else ():
            for partition in topic.partitions:
                yield group.group_id, topic, partition
