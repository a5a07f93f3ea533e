"""The cache of incremental fetch sessions: slots, ids, and eviction (KIP-227, KAFKA-9401).

The rule: a new session may take the slot of another if
1. the other has not been used for two minutes, or
2. the new one is a follower's and the other is not, or
3. the new one has at least as many partitions and the other is older than two minutes.

Otherwise its client continues with full requests, which are always allowed. Memory is bounded too, because a slot may
hold as much as fits a request.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from oncelog.base.ids import BrokerId, TopicId, TopicName
from oncelog.base.units import INT32_MAX, MIB, MINUTE_MS
from oncelog.core.sessions.pending_partitions import PendingPartitions

NO_SESSION: Final = 0
EVICTION_MS: Final = 2 * MINUTE_MS
# For all sessions of consumers together.
MAX_BYTES: Final = 24 * MIB
MAX_FOLLOWER_PARTITIONS: Final = 32_768
PARTITION_BYTES: Final = 520
"""Memory of a partition in a session without its name, measured: 330 to 520 bytes."""
MAX_EVICTIONS: Final = 8
"""Maximum evictions for one session: choosing each may mean a search through all."""

PartitionKey = tuple[TopicId | TopicName, int]
"""Topic id if the session uses ids, else name; and partition index."""


class Requester(NamedTuple):
    connection_id: int
    follower: BrokerId | None = None
    """The replicating broker; None: a consumer."""


def size_of(keys: Iterable[PartitionKey]) -> int:
    return sum([PARTITION_BYTES + len(name) for name, _ in keys])


class FetchPartition:
    """The fetch parameters of a partition, and the offsets in the last response (−1: none yet)."""

    __slots__ = (
        "fetch_offset",
        "last_fetched_epoch",
        "leader_epoch",
        "log_start_offset",
        "max_bytes",
        "partition",
        "sent_high_watermark",
        "sent_log_start_offset",
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
        """None while the topic id is unknown."""
        self.partition = partition
        self.fetch_offset = fetch_offset
        self.max_bytes = max_bytes
        self.leader_epoch = leader_epoch
        self.last_fetched_epoch = last_fetched_epoch
        self.log_start_offset = -1
        """A follower's own; −1 if unknown."""
        self.sent_high_watermark = -1
        self.sent_log_start_offset = -1

    def update_from(self, other: FetchPartition) -> None:
        """The offsets of the last response stay."""
        self.fetch_offset = other.fetch_offset
        self.max_bytes = other.max_bytes
        self.leader_epoch = other.leader_epoch
        self.last_fetched_epoch = other.last_fetched_epoch
        self.log_start_offset = other.log_start_offset


class FetchSession:
    """A client's partitions in read order; ``epoch`` is the next request's."""

    __slots__ = (
        "created_ms",
        "epoch",
        "partitions",
        "pending",
        "requester",
        "session_id",
        "size_bytes",
        "used_ms",
        "uses_topic_ids",
    )

    def __init__(
        self,
        session_id: int,
        partitions: dict[PartitionKey, FetchPartition],
        *,
        requester: Requester,
        uses_topic_ids: bool,
        now_ms: int,
    ) -> None:
        self.session_id = session_id
        self.partitions = partitions
        self.requester = requester
        self.uses_topic_ids = uses_topic_ids
        self.created_ms = now_ms
        self.used_ms = now_ms
        self.epoch = 1
        self.size_bytes = size_of(partitions)
        self.pending: PendingPartitions[PartitionKey, FetchPartition] | None = None
        """The partitions to read for the next request of a follower that fetches by topic ids."""

    @property
    def privileged(self) -> bool:
        """True for a follower's session."""
        return self.requester.follower is not None

    def add(self, requested: dict[PartitionKey, FetchPartition]) -> None:
        for key, partition in requested.items():
            existing = self.partitions.get(key)
            if existing is not None:
                existing.update_from(partition)
            else:
                self.partitions[key] = partition
                self.size_bytes += PARTITION_BYTES + len(key[0])

    def forget(self, keys: Iterable[PartitionKey]) -> None:
        for key in keys:
            if self.partitions.pop(key, None) is not None:
                self.size_bytes -= PARTITION_BYTES + len(key[0])

    def settle(self, caught_up: Iterable[FetchPartition]) -> None:
        if self.pending is not None:
            self.pending.settle((requested.topic_id, requested.partition) for requested in caught_up)


class FetchSessionCache:
    """At most ``slots`` fetch sessions. Ids are random, so that after a restart no client uses another's session."""

    def __init__(self, slots: int, random_bytes: Callable[[int], bytes]) -> None:
        self._slots = slots
        self._random_bytes = random_bytes
        # In order of last use.
        self._sessions: dict[int, FetchSession] = {}
        self._of_connections: dict[int, dict[int, None]] = {}
        """Session ids by connection, in order of last use."""
        self._of_followers: dict[BrokerId, int] = {}
        self.size_bytes = 0
        """The estimated memory of consumers' sessions."""
        self.evictions = 0

    def __len__(self) -> int:
        return len(self._sessions)

    def get(self, session_id: int) -> FetchSession | None:
        return self._sessions.get(session_id)

    def remove(self, session_id: int) -> None:
        session = self._sessions.pop(session_id, None)
        if session is not None:
            self._uncount(session)

    def close(self, connection_id: int) -> None:
        # A session ends with the connection that used it last.
        for session_id in list(self._of_connections.get(connection_id, ())):
            self.remove(session_id)

    def use(
        self,
        session: FetchSession,
        requested: dict[PartitionKey, FetchPartition],
        forgotten: Iterable[PartitionKey],
        connection_id: int,
        now_ms: int,
    ) -> None:
        """Record the use of a session by a connection, with added and forgotten partitions. An empty session ends."""
        # Removed and counted again: size, connection and order of use change.
        self.remove(session.session_id)
        session.used_ms = now_ms
        session.requester = session.requester._replace(connection_id=connection_id)
        session.add(requested)
        session.forget(forgotten)
        if session.partitions:
            self._count(session)

    def has_room(self, session: FetchSession, added: int, added_bytes: int) -> bool:
        if session.privileged:
            return len(session.partitions) + added <= MAX_FOLLOWER_PARTITIONS
        return self.size_bytes + added_bytes <= MAX_BYTES

    def create(
        self,
        partitions: dict[PartitionKey, FetchPartition],
        *,
        requester: Requester,
        uses_topic_ids: bool,
        now_ms: int,
    ) -> int:
        """Returns the session's id, or NO_SESSION without room."""
        session = FetchSession(
            self._new_id(), partitions, requester=requester, uses_topic_ids=uses_topic_ids, now_ms=now_ms
        )
        if requester.follower is not None and requester.follower in self._of_followers:
            # A follower has one session: a new one replaces it.
            self.remove(self._of_followers[requester.follower])
        if not self._make_room(session, now_ms):
            return NO_SESSION
        self._count(session)
        return session.session_id

    def _count(self, session: FetchSession) -> None:
        session_id, (connection_id, follower) = session.session_id, session.requester
        self._sessions[session_id] = session
        self._of_connections.setdefault(connection_id, {})[session_id] = None
        if follower is None:
            self.size_bytes += session.size_bytes
        else:
            self._of_followers[follower] = session_id

    def _uncount(self, session: FetchSession) -> None:
        session_id, (connection_id, follower) = session.session_id, session.requester
        own = self._of_connections[connection_id]
        del own[session_id]
        if not own:
            del self._of_connections[connection_id]
        if follower is None:
            self.size_bytes -= session.size_bytes
        elif self._of_followers.get(follower) == session_id:
            del self._of_followers[follower]

    def _make_room(self, session: FetchSession, now_ms: int) -> bool:
        """Evict other sessions. Returns False if ``session`` gets no room."""
        if session.privileged:
            if len(session.partitions) > MAX_FOLLOWER_PARTITIONS:
                return False
        elif session.size_bytes > MAX_BYTES:
            return False
        # A session without room takes that of older sessions of its connection, then of others by rules 1 and 3.
        own = iter(list(self._of_connections.get(session.requester.connection_id, ())))
        for _ in range(MAX_EVICTIONS):
            lacks_slot = len(self._sessions) >= self._slots
            if not lacks_slot and self._has_bytes_for(session):
                return True
            weakest = None if lacks_slot else next(own, None)
            if weakest is None:
                weakest = self._weakest(session, now_ms, consumers_only=not lacks_slot)
            if weakest is None:
                return False
            self.remove(weakest)
            self.evictions += 1
        return len(self._sessions) < self._slots and self._has_bytes_for(session)

    def _has_bytes_for(self, session: FetchSession) -> bool:
        return session.privileged or self.size_bytes + session.size_bytes <= MAX_BYTES

    def _weakest(self, session: FetchSession, now_ms: int, *, consumers_only: bool) -> int | None:
        others = [other for other in self._sessions.values() if not (consumers_only and other.privileged)]
        if not others:
            return None
        # Rule 1: sessions are in order of last use.
        if now_ms - others[0].used_ms > EVICTION_MS:
            return others[0].session_id
        candidates = [
            (other.privileged, len(other.partitions), other.session_id)
            for other in others
            # Rules 2 and 3.
            if other.used_ms - other.created_ms > EVICTION_MS or (session.privileged and not other.privileged)
        ]
        weakest = min(candidates, default=None)
        if weakest is None or (session.privileged, len(session.partitions)) < weakest[:2]:
            return None
        return weakest[2]

    def _new_id(self) -> int:
        while True:
            session_id = int.from_bytes(self._random_bytes(4), "big") & INT32_MAX
            if session_id != NO_SESSION and session_id not in self._sessions:
                return session_id
