"""W16 and W19: committed offsets are those of accepted commits, and do not go back from member to member.

W16: a fetched committed offset is the last acknowledged one, or one that may have been committed since.
"""

# A commit without a response, or with an error that leaves its outcome open, stays possible until the broker restarts
# and a later commit is acknowledged. Offsets in a transaction count from its commit (Transactions V2), and bind only
# reads with ``require_stable``. While the transaction's outcome is unknown, they are merely possible.

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from oncelog.base.errors import ErrorCode
from oncelog.sim.checkers.wire.exchange import ALONE, Exchange, PartitionKey, Report, Topics
from oncelog.wire.messages.offset_commit import OffsetCommitResponse

COMMITTED: Final = "W16 committed offset is another"
WENT_BACK: Final = "W19 committed offset went back"
# Errors after which the commit has certainly not happened.
_REFUSED: Final = frozenset(
    {
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.STALE_MEMBER_EPOCH,
        ErrorCode.GROUP_ID_NOT_FOUND,
        ErrorCode.UNSUPPORTED_VERSION,
        ErrorCode.INVALID_GROUP_ID,
        ErrorCode.OFFSET_METADATA_TOO_LARGE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    }
)
# Errors after which a commit may have happened in a cluster: a broker may have written it before it resigned.
_RESIGNED: Final = frozenset({ErrorCode.NOT_COORDINATOR})
Key = tuple[str, PartitionKey]


@dataclass(slots=True)
class _Commit:
    offset: int
    requested: int
    broker_id: int = ALONE
    # The wire index from which it can no longer happen: that of its response, or of a restart.
    closed_at: int | None = None
    acknowledged: bool = False
    stable_only: bool = False
    # The member that commits outside a transaction; empty without one.
    member_id: str = ""


class Commits:
    def __init__(self, topics: Topics, report: Report, *, is_cluster: bool = False) -> None:
        self._topics = topics
        self._refused = _REFUSED - _RESIGNED if is_cluster else _REFUSED
        self._report = report
        self._by_key: dict[Key, list[_Commit]] = defaultdict(list)
        # (producer id, epoch) → offsets of its open transaction.
        self._pending: dict[tuple[int, int], list[tuple[Key, _Commit]]] = {}
        # Index of a request → the commits it requests.
        self._in_flight: dict[int, list[tuple[str, bytes, int, Key, _Commit]]] = {}
        self._ignored: set[str] = set()

    def restarted(self, index: int, broker_id: int = ALONE) -> None:
        # Close the commits in flight to the broker: they have happened, or never will.
        for request_index, commits in list(self._in_flight.items()):
            if not commits or commits[0][-1].broker_id == broker_id:
                del self._in_flight[request_index]
        for commits_of_key in self._by_key.values():
            for commit in commits_of_key:
                if commit.closed_at is None and not commit.stable_only and commit.broker_id == broker_id:
                    commit.closed_at = index

    def forget(self, group: str) -> None:
        self._ignored.add(group)

    def commit_requested(self, exchange: Exchange, *, transactional: bool) -> None:
        request, requested = exchange.request, []
        for topic in request.topics:
            topic_id: bytes = getattr(topic, "topic_id", bytes(16))
            for partition in topic.partitions:
                key_of_partition = self._topics.key(topic.name, topic_id, partition.partition_index)
                if key_of_partition is None or request.group_id in self._ignored:
                    continue
                key = request.group_id, key_of_partition
                commit = _Commit(
                    partition.committed_offset,
                    exchange.received_index,
                    stable_only=transactional,
                    broker_id=exchange.broker_id,
                    member_id="" if transactional else request.member_id,
                )
                self._by_key[key].append(commit)
                requested.append((topic.name, topic_id, partition.partition_index, key, commit))
        if transactional:
            pending = self._pending.setdefault((request.producer_id, request.producer_epoch), [])
            pending += [(key, commit) for *_, key, commit in requested]
        else:
            self._in_flight[exchange.received_index] = requested

    def committed(self, exchange: Exchange, response: OffsetCommitResponse, index: int) -> None:
        errors = {(t.name, t.topic_id, p.partition_index): p.error_code for t in response.topics for p in t.partitions}
        for name, topic_id, partition, key, commit in self._in_flight.pop(exchange.received_index, ()):
            error = errors.get((name, topic_id, partition))
            if error == 0:
                commit.closed_at, commit.acknowledged = index, True
                self._check_rising(key, commit)
            elif error in self._refused:
                self._by_key[key] = [other for other in self._by_key[key] if other is not commit]

    def _check_rising(self, key: Key, commit: _Commit) -> None:
        # A member starts at the committed offset, so it commits nothing less than other members before it. A commit of
        # its own may arrive late, over an old connection.
        for other in self._by_key[key] if commit.member_id else ():
            is_earlier = other.acknowledged and (other.closed_at or 0) < commit.requested
            if is_earlier and other.offset > commit.offset and other.member_id not in ("", commit.member_id):
                location = f"{key[0]} of {self._topics.describe(key[1])}"
                members = f"{other.offset} by {other.member_id}, then {commit.offset} by {commit.member_id}"
                self._report(WENT_BACK, f"{location}: {members}")
                return

    def ended(self, exchange: Exchange, error_code: int, index: int, *, bumps: bool) -> None:
        request = exchange.request
        # Without a bump the epoch stays, and the response may be that of another transaction.
        if error_code or not bumps:
            return
        for key, commit in self._pending.pop((request.producer_id, request.producer_epoch), ()):
            if request.committed:
                commit.closed_at, commit.acknowledged = index, True
            else:
                self._by_key[key] = [other for other in self._by_key[key] if other is not commit]

    def fetched(self, exchange: Exchange, response: Any) -> None:
        for group, topic, partition in _offsets_of(exchange, response):
            key_of_partition = self._topics.key(
                topic.name, getattr(topic, "topic_id", bytes(16)), partition.partition_index
            )
            if key_of_partition is None or partition.error_code or group in self._ignored:
                continue
            self._read((group, key_of_partition), partition.committed_offset, exchange)

    def _read(self, key: Key, offset: int, exchange: Exchange) -> None:
        require_stable = exchange.request.require_stable
        commits = self._by_key.get(key, [])
        binding = [
            commit.requested
            for commit in commits
            if commit.acknowledged
            and (require_stable or not commit.stable_only)
            and (commit.closed_at or 0) < exchange.received_index
        ]
        last_binding = max(binding, default=-1)
        possible = {
            commit.offset
            for commit in commits
            if commit.closed_at is None
            or commit.closed_at > last_binding
            or (commit.stable_only and not require_stable)
        }
        if offset not in possible and not (offset == -1 and not binding):
            partition = self._topics.describe(key[1])
            self._report(COMMITTED, f"{key[0]} of {partition}: {offset} read, committed is one of {sorted(possible)}")


def _offsets_of(exchange: Exchange, response: Any) -> Iterator[tuple[str, Any, Any]]:
    for topic in response.topics if not response.error_code else ():
        for partition in topic.partitions:
            yield exchange.request.group_id, topic, partition
    for group in response.groups:
        for topic in group.topics if not group.error_code else ():
            for partition in topic.partitions:
                yield group.group_id, topic, partition
