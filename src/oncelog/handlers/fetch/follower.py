"""Fetches of a follower within its session: only the partitions with something to tell are read.

``core.sessions.pending_partitions`` has the rule. Everything else is as for other fetches: records up to the log end
offset, the high watermark, errors; the answer comes when there is something to tell, or after ``max_wait_ms``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from oncelog.base.ids import TopicPartition
from oncelog.core.sessions.fetch import FetchContext
from oncelog.core.sessions.fetch_cache import FetchPartition, FetchSession, PartitionKey
from oncelog.core.sessions.pending_partitions import PendingPartitions
from oncelog.handlers.support.context import Context
from oncelog.handlers.support.waits import NextSlice, Steps, UntilReadable
from oncelog.handlers.support.yielding import items_per_slice

if TYPE_CHECKING:
    from oncelog.handlers.fetch.reads import FetchReads
    from oncelog.wire.messages.fetch import FetchRequest, PartitionData

_MANY: Final = 1000
_LOOKS_IN_LAG: Final = 3
"""All partitions are looked at so many times within ``replica.lag.time.max.ms``."""

Answers = list[tuple[FetchPartition, "PartitionData"]]
Read = Callable[[Sequence[FetchPartition]], "tuple[FetchReads, Answers]"]
"""Prepares the reads of partitions; with them the answers for those that may not be read."""


class Pending(NamedTuple):
    """The answers, and the partitions of which the follower has all there is."""

    answers: Answers
    level: Sequence[FetchPartition]


def read_pending(request: FetchRequest, context: Context, session: FetchContext, begin: Read) -> Steps[Pending]:
    """Read what is pending in a follower's session, or wait for something."""
    assert session.session is not None
    assert session.session.pending is not None
    follower = _FollowerSession(context, session.session, session.session.pending)
    deadline_ms = context.now_ms + request.max_wait_ms
    reads, refused = yield from follower.read(begin)
    if not refused and not reads.has_news() and request.max_wait_ms > 0 and not follower.has_changed():
        # A follower that has other partitions to fetch says so by another request, and keeps its session.
        yield UntilReadable(None, lambda changed: follower.concerns(changed, reads), deadline_ms, gives_way=True)
        reads, refused = yield from follower.read(begin)
    return Pending(reads.answers + refused, reads.level)


class _FollowerSession:
    """The session of one request."""

    def __init__(
        self, context: Context, session: FetchSession, pending: PendingPartitions[PartitionKey, FetchPartition]
    ) -> None:
        self._context = context
        self._session = session
        self._pending = pending

    def read(self, begin: Read) -> Steps[tuple[FetchReads, Answers]]:
        """Read all that is pending."""
        context, pending = self._context, self._pending
        partitions = context.partitions
        pending.note(self._keys(partitions.changed_since(pending.position)))
        pending.position = partitions.change_position
        all_after_ms = int(context.cluster.config.get("replica.lag.time.max.ms")) // _LOOKS_IN_LAG
        asked = pending.of(self._session.partitions, context.now_ms, all_after_ms)
        reads, refused = begin(asked)
        start = 0
        while start < len(reads.partitions):
            if len(reads.partitions) > _MANY:
                yield NextSlice()
            size = items_per_slice(partitions)
            reads.read(reads.partitions[start : start + size])
            start += size
        return reads, refused

    def has_changed(self) -> bool:
        """True if partitions of the session changed while they were read in slices."""
        return any(True for _ in self._keys(self._context.partitions.changed_since(self._pending.position)))

    def concerns(self, changed: Sequence[TopicPartition], reads: FetchReads) -> bool:
        """True if one of the changed partitions has something to tell."""
        held = self._session.partitions
        for name in changed:
            key = self._key(name)
            asked = None if key is None else held.get(key)
            if asked is not None and reads.could_give(name, asked) != 0:
                return True
        return False

    def _keys(self, names: Sequence[TopicPartition]) -> Iterator[PartitionKey]:
        held = self._session.partitions
        for name in names:
            key = self._key(name)
            if key is not None and key in held:
                yield key

    def _key(self, name: TopicPartition) -> PartitionKey | None:
        topic = self._context.cluster.image.topics.get(name.topic)
        return None if topic is None else (topic.topic_id, name.partition)
