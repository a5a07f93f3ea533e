"""Fetches of a follower within its session, which read only partitions that may have news (rule:
``core.sessions.pending_partitions``). The rest is as in other fetches: the response is sent when a partition has news,
or after ``max_wait_ms``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import NO_BROKER, TopicPartition
from oncelog.core.sessions.fetch_cache import FetchPartition, FetchSession, PartitionKey
from oncelog.core.sessions.pending_partitions import PendingPartitions
from oncelog.handlers.broker.waits import Steps, UntilReadable
from oncelog.handlers.fetch.reads import FetchReads
from oncelog.handlers.fetch.request import SortedPartitions, params_of, replica_of

if TYPE_CHECKING:
    from oncelog.handlers.broker.context import Context
    from oncelog.wire.messages.fetch import FetchRequest

_READS_PER_LAG: Final = 3
"""All partitions are read this often within ``replica.lag.time.max.ms``."""

Pending = PendingPartitions[PartitionKey, FetchPartition]


def read_pending(request: FetchRequest, context: Context, session: FetchSession, pending: Pending) -> Steps[FetchReads]:
    follower = _FollowerSession(request, context, session, pending)
    deadline_ms = context.now_ms + request.max_wait_ms
    reads = yield from follower.read()
    if reads.refused or reads.has_news() or request.max_wait_ms <= 0:
        return reads
    session.settle(reads.caught_up)  # no news: after the wait only changed partitions are read
    if not follower.has_changed():
        # A follower that has other partitions to fetch says so by another request, and keeps its session.
        yield UntilReadable(None, lambda changed: follower.concerns(changed, reads), deadline_ms, gives_way=True)
    return (yield from follower.read())


class _FollowerSession:
    def __init__(self, request: FetchRequest, context: Context, session: FetchSession, pending: Pending) -> None:
        self._request = request
        self._context = context
        self._session = session
        self._pending = pending
        replica = replica_of(request)
        self._broker_id = NO_BROKER if replica is None else replica.broker_id

    def read(self) -> Steps[FetchReads]:
        context, pending = self._context, self._pending
        partitions = context.partitions
        pending.note(self._keys(partitions.changed_since(pending.position)))
        pending.position = partitions.change_position
        all_after_ms = int(context.cluster.config.get("replica.lag.time.max.ms")) // _READS_PER_LAG
        replica = replica_of(self._request)
        partitions_to_read = SortedPartitions(context, replica)
        partitions_to_read.sort_out(pending.of(self._session.partitions, context.now_ms, all_after_ms))
        reads = FetchReads(context, partitions_to_read, params_of(self._request, context, replica))
        yield from reads.read_all()
        return reads

    def has_changed(self) -> bool:
        return any(True for _ in self._keys(self._context.partitions.changed_since(self._pending.position)))

    def concerns(self, changed: Sequence[TopicPartition], reads: FetchReads) -> bool:
        fetches = self._session.partitions
        for partition in changed:
            key = self._key(partition)
            fetch = None if key is None else fetches.get(key)
            if fetch is not None and reads.available_bytes(partition, fetch) != 0:
                return True
        return False

    def _keys(self, names: Sequence[TopicPartition]) -> Iterator[PartitionKey]:
        fetches = self._session.partitions
        for partition in names:
            key = self._key(partition)
            fetch = None if key is None else fetches.get(key)
            # The follower's own fetch may have moved the high watermark, which its response has returned.
            if key is not None and fetch is not None and not self._is_quiet(partition, fetch):
                yield key

    def _is_quiet(self, partition: TopicPartition, fetch: FetchPartition) -> bool:
        """True if the follower is in sync, has all records, and received both offsets."""
        source = self._context.partitions.leader_log(partition, fetch.leader_epoch)
        if isinstance(source, ErrorCode):
            return False
        log = source.log
        return (
            fetch.sent_high_watermark == log.high_watermark
            and fetch.sent_log_start_offset == log.log_start_offset
            and fetch.fetch_offset == log.log_end_offset
            and self._broker_id in source.replicas.in_sync
        )

    def _key(self, partition: TopicPartition) -> PartitionKey | None:
        topic = self._context.cluster.image.topics.get(partition.topic)
        return None if topic is None else (topic.topic_id, partition.partition)
