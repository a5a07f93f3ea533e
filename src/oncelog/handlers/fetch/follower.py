"""Fetches of a follower within its session: only the partitions with something to tell are read.

``core.sessions.pending_partitions`` has the rule. Everything else is as for other fetches: records up to the log end
offset, the high watermark, errors; the answer comes when there is something to tell, or after ``max_wait_ms``.
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

_LOOKS_IN_LAG: Final = 3
"""All partitions are looked at so many times within ``replica.lag.time.max.ms``."""

Pending = PendingPartitions[PartitionKey, FetchPartition]


def read_pending(request: FetchRequest, context: Context, session: FetchSession, pending: Pending) -> Steps[FetchReads]:
    """Read what is pending in a follower's session, or wait for something."""
    follower = _FollowerSession(request, context, session, pending)
    deadline_ms = context.now_ms + request.max_wait_ms
    reads = yield from follower.read()
    if reads.refused or reads.has_news() or request.max_wait_ms <= 0:
        return reads
    session.settle(reads.caught_up)  # they had nothing to tell: what the wait is for is read alone after it
    if not follower.has_changed():
        # A follower that has other partitions to fetch says so by another request, and keeps its session.
        yield UntilReadable(None, lambda changed: follower.concerns(changed, reads), deadline_ms, gives_way=True)
    return (yield from follower.read())


class _FollowerSession:
    """The session of one request."""

    def __init__(self, request: FetchRequest, context: Context, session: FetchSession, pending: Pending) -> None:
        self._request = request
        self._context = context
        self._session = session
        self._pending = pending
        replica = replica_of(request)
        self._broker_id = NO_BROKER if replica is None else replica.broker_id

    def read(self) -> Steps[FetchReads]:
        """Read all that is pending."""
        context, pending = self._context, self._pending
        partitions = context.partitions
        pending.note(self._keys(partitions.changed_since(pending.position)))
        pending.position = partitions.change_position
        all_after_ms = int(context.cluster.config.get("replica.lag.time.max.ms")) // _LOOKS_IN_LAG
        replica = replica_of(self._request)
        wanted = SortedPartitions(context, replica)
        wanted.sort_out(pending.of(self._session.partitions, context.now_ms, all_after_ms))
        reads = FetchReads(context, wanted, params_of(self._request, context, replica))
        yield from reads.read_all()
        return reads

    def has_changed(self) -> bool:
        """True if partitions of the session changed while they were read in slices."""
        return any(True for _ in self._keys(self._context.partitions.changed_since(self._pending.position)))

    def concerns(self, changed: Sequence[TopicPartition], reads: FetchReads) -> bool:
        """True if one of the changed partitions has something to tell."""
        held = self._session.partitions
        for name in changed:
            key = self._key(name)
            asked = None if key is None else held.get(key)
            if asked is not None and reads.available_bytes(name, asked) != 0:
                return True
        return False

    def _keys(self, names: Sequence[TopicPartition]) -> Iterator[PartitionKey]:
        """The keys of those that have changed and are not quiet: the follower's own fetch may have moved the high
        watermark that its answer has told."""
        held = self._session.partitions
        for name in names:
            key = self._key(name)
            asked = None if key is None else held.get(key)
            if key is not None and asked is not None and not self._is_quiet(name, asked):
                yield key

    def _is_quiet(self, name: TopicPartition, asked: FetchPartition) -> bool:
        """True if the follower is in sync, has all there is, and was told both offsets."""
        source = self._context.partitions.leader_log(name, asked.leader_epoch)
        if isinstance(source, ErrorCode):
            return False
        log = source.log
        return (
            asked.told_high_watermark == log.high_watermark
            and asked.told_log_start_offset == log.log_start_offset
            and asked.fetch_offset == log.log_end_offset
            and self._broker_id in source.replicas.in_sync
        )

    def _key(self, name: TopicPartition) -> PartitionKey | None:
        topic = self._context.cluster.image.topics.get(name.topic)
        return None if topic is None else (topic.topic_id, name.partition)
