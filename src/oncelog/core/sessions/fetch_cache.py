"""The cache of incremental fetch sessions: slots, ids, and the rules of eviction (KIP-227, KAFKA-9401).

The rule: a new session may take the slot of another when
  1. the other has not been used for two minutes, or
  2. the new one is a follower's and the other is not, or
  3. the new one has at least as many partitions and the other is older than two minutes.
Otherwise the new one gets no slot, and its client goes on with full requests, which is always allowed.

Beside the slots the partitions are bounded, one session's and all sessions' together, because a slot may hold as many
as fit a request. Sessions are kept in the order of their last use.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from oncelog.base.ids import TopicId, TopicName
from oncelog.base.units import INT32_MAX, MINUTE_MS
from oncelog.core.sessions.pending_partitions import PendingPartitions

NO_SESSION: Final = 0
EVICTION_MS: Final = 2 * MINUTE_MS
MAX_SESSION_PARTITIONS: Final = 32_768
MAX_CACHED_PARTITIONS: Final = 8 * MAX_SESSION_PARTITIONS

PartitionKey = tuple[TopicId | TopicName, int]
"""Topic id where the session uses ids, else name; and the partition's index."""


class FetchPartition:
    """The fetch parameters of one partition, and the offsets in the last answer (−1: none yet)."""

    __slots__ = (
        "fetch_offset",
        "last_fetched_epoch",
        "leader_epoch",
        "log_start_offset",
        "max_bytes",
        "partition",
        "told_high_watermark",
        "told_log_start_offset",
        "topic",
        "topic_id",
    )

    def __init__(
        self,
        topic_id: TopicId,
        topic: TopicName | None,
        partition: int,
        fetch_offset: int,
        max_bytes: int,
        leader_epoch: int,
        last_fetched_epoch: int,
    ) -> None:
        self.topic_id = topic_id
        self.topic = topic
        """None while no topic of that id is known."""
        self.partition = partition
        self.fetch_offset = fetch_offset
        self.max_bytes = max_bytes
        self.leader_epoch = leader_epoch
        self.last_fetched_epoch = last_fetched_epoch
        self.log_start_offset = -1
        """A follower's own; −1: it does not say."""
        self.told_high_watermark = -1
        self.told_log_start_offset = -1

    def ask_again(self, other: FetchPartition) -> None:
        """Take over the parameters of ``other``; the offsets of the last answer stay."""
        self.fetch_offset = other.fetch_offset
        self.max_bytes = other.max_bytes
        self.leader_epoch = other.leader_epoch
        self.last_fetched_epoch = other.last_fetched_epoch
        self.log_start_offset = other.log_start_offset


class FetchSession:
    """A client's partitions, in the order in which they are read; ``epoch`` is the one the next request must have."""

    __slots__ = (
        "counted",
        "created_ms",
        "epoch",
        "partitions",
        "pending",
        "privileged",
        "session_id",
        "used_ms",
        "uses_topic_ids",
    )

    def __init__(
        self,
        session_id: int,
        partitions: dict[PartitionKey, FetchPartition],
        *,
        privileged: bool,
        uses_topic_ids: bool,
        now_ms: int,
    ) -> None:
        self.session_id = session_id
        self.partitions = partitions
        self.privileged = privileged
        """A follower's."""
        self.uses_topic_ids = uses_topic_ids
        self.created_ms = now_ms
        self.used_ms = now_ms
        self.epoch = 1
        self.counted = 0
        """Partitions of it in the cache's total."""
        self.pending: PendingPartitions[PartitionKey, FetchPartition] | None = None
        """The partitions that have to be read for the next request of a follower that fetches by topic ids."""

    def settle(self, caught_up: Iterable[FetchPartition]) -> None:
        """Leave out, until they change, the partitions of which the follower has all there is and is told the rest."""
        if self.pending is not None:
            self.pending.settle((asked.topic_id, asked.partition) for asked in caught_up)


class FetchSessionCache:
    """Fetch sessions, ``slots`` at most. Ids are random, so that after a restart no client uses another's session."""

    def __init__(self, slots: int, random_bytes: Callable[[int], bytes]) -> None:
        self._slots = slots
        self._random_bytes = random_bytes
        self._sessions: dict[int, FetchSession] = {}
        self._partition_count = 0
        self.evictions = 0

    def __len__(self) -> int:
        return len(self._sessions)

    @property
    def partition_count(self) -> int:
        """Partitions in all sessions."""
        return self._partition_count

    def get(self, session_id: int) -> FetchSession | None:
        """The session, None if it was removed."""
        return self._sessions.get(session_id)

    def remove(self, session_id: int) -> None:
        """End a session; nothing happens when it is gone."""
        session = self._sessions.pop(session_id, None)
        if session is not None:
            self._partition_count -= session.counted

    def touch(self, session: FetchSession, now_ms: int) -> None:
        """Note that a session was used, and how many partitions it has now."""
        session.used_ms = now_ms
        del self._sessions[session.session_id]
        self._sessions[session.session_id] = session
        self._partition_count += len(session.partitions) - session.counted
        session.counted = len(session.partitions)

    def has_room(self, session: FetchSession | None, added: int) -> bool:
        """True if ``added`` more partitions in a session (None: a new one) stay within the bounds."""
        size = added if session is None else len(session.partitions) + added
        return size <= MAX_SESSION_PARTITIONS and self._partition_count + added <= MAX_CACHED_PARTITIONS

    def create(
        self, partitions: dict[PartitionKey, FetchPartition], *, privileged: bool, uses_topic_ids: bool, now_ms: int
    ) -> int:
        """The id of a new session with ``partitions``, or NO_SESSION when no slot is free for it."""
        if not self.has_room(None, len(partitions)):
            return NO_SESSION
        if len(self._sessions) >= self._slots and not self._evict(len(partitions), privileged, now_ms):
            return NO_SESSION
        session = FetchSession(
            self._new_id(), partitions, privileged=privileged, uses_topic_ids=uses_topic_ids, now_ms=now_ms
        )
        session.counted = len(partitions)
        self._partition_count += len(partitions)
        self._sessions[session.session_id] = session
        return session.session_id

    def _evict(self, size: int, privileged: bool, now_ms: int) -> bool:
        oldest = next(iter(self._sessions.values()), None)
        if oldest is None:
            return False
        if now_ms - oldest.used_ms <= EVICTION_MS:
            candidates = [
                (session.privileged, session.counted, session.session_id)
                for session in self._sessions.values()
                if session.used_ms - session.created_ms > EVICTION_MS or (privileged and not session.privileged)
            ]
            weakest = min(candidates, default=None)
            if weakest is None or (privileged, size, 0) < (weakest[0], weakest[1], 0):
                return False
            oldest = self._sessions[weakest[2]]
        self.remove(oldest.session_id)
        self.evictions += 1
        return True

    def _new_id(self) -> int:
        while True:
            session_id = int.from_bytes(self._random_bytes(4), "big") & INT32_MAX
            if session_id != NO_SESSION and session_id not in self._sessions:
                return session_id
