"""Incremental fetch sessions (KIP-227, topic ids: KIP-516): requests and responses name only partitions that changed.

A *full* request (epoch 0) opens a session, which remembers its partitions. *Incremental* requests (epochs 1, 2, …
2³¹−1, 1, …) add, change and forget partitions; epoch −1 closes the session. The rule: an incremental response has
exactly the partitions with records, an error, a divergence, a preferred replica, or another high watermark or log start
offset than the last response. A partition that returned records moves to the end, so that none starves.

A request begins with ``FetchSessions.begin`` and ends with ``context.finish``. It may wait in between, but ``finish``
refuses it if another request of the session has arrived.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final, Generic, NamedTuple, Protocol, TypeVar

from oncelog.base.errors import ErrorCode
from oncelog.base.units import INT32_MAX
from oncelog.core.sessions.fetch_cache import (
    NO_SESSION,
    FetchPartition,
    FetchSession,
    FetchSessionCache,
    PartitionKey,
    Requester,
    size_of,
)
from oncelog.core.sessions.pending_partitions import PendingPartitions

INITIAL_EPOCH: Final = 0
FINAL_EPOCH: Final = -1


class Answer(Protocol):
    @property
    def error_code(self) -> int:
        """The partition's error code, or 0."""

    @property
    def high_watermark(self) -> int:
        """−1 with an error."""

    @property
    def log_start_offset(self) -> int:
        """−1 with an error."""

    @property
    def diverging_epoch(self) -> object | None:
        """The epoch from which the client's log diverges, or None."""

    @property
    def preferred_read_replica(self) -> int:
        """The replica to read from instead, or −1."""

    @property
    def records(self) -> object | None:
        """The records; may be empty or None."""


A = TypeVar("A", bound=Answer)


class Finished(NamedTuple, Generic[A]):
    """The response to a Fetch: top-level error, session, and partitions to include."""

    error_code: ErrorCode
    session_id: int
    answers: Sequence[tuple[FetchPartition, A]]


class FetchContext:
    """A Fetch request without a session, with its partitions in order."""

    __slots__ = ("_partitions", "error_code", "session")

    def __init__(
        self,
        partitions: list[FetchPartition] | None,
        error_code: ErrorCode = ErrorCode.NONE,
        session: FetchSession | None = None,
    ) -> None:
        self._partitions = partitions
        self.session = session
        """The session of an incremental request."""
        self.error_code = error_code
        """Why the request's session is refused, with nothing to read; or NONE."""

    @property
    def partitions(self) -> list[FetchPartition]:
        if self._partitions is None:  # lazily: a follower's session reads its pending partitions instead
            self._partitions = [] if self.session is None else list(self.session.partitions.values())
        return self._partitions

    def finish(
        self, answers: Sequence[tuple[FetchPartition, A]], now_ms: int, caught_up: Iterable[FetchPartition] = ()
    ) -> Finished[A]:
        """End the request with what was read; a follower has all records of ``caught_up`` partitions. Without a session
        the response has every partition."""
        return Finished(self.error_code, NO_SESSION, answers)

    def preview(self, answers: Sequence[tuple[FetchPartition, A]]) -> Finished[A]:
        """The response that ``finish`` would give, without recording it as sent. An empty one may be sent instead, to a
        client that has to wait."""
        return Finished(self.error_code, NO_SESSION, answers)


class _FullContext(FetchContext):
    """A full request whose response opens a session, if the cache has room."""

    __slots__ = ("_by_key", "_cache", "_requester", "_uses_topic_ids")

    def __init__(
        self,
        cache: FetchSessionCache,
        by_key: dict[PartitionKey, FetchPartition],
        *,
        uses_topic_ids: bool,
        requester: Requester,
    ) -> None:
        super().__init__(list(by_key.values()))
        self._cache = cache
        self._by_key = by_key
        self._uses_topic_ids = uses_topic_ids
        self._requester = requester

    def finish(
        self, answers: Sequence[tuple[FetchPartition, A]], now_ms: int, caught_up: Iterable[FetchPartition] = ()
    ) -> Finished[A]:
        for partition, answer in answers:
            partition.sent_high_watermark = answer.high_watermark
            partition.sent_log_start_offset = answer.log_start_offset
        session_id = self._cache.create(
            self._by_key, requester=self._requester, uses_topic_ids=self._uses_topic_ids, now_ms=now_ms
        )
        return Finished(ErrorCode.NONE, session_id, answers)


class _IncrementalContext(FetchContext):
    """An incremental request, whose response has the partitions changed since the last one."""

    __slots__ = ("_epoch", "_session")

    def __init__(self, session: FetchSession) -> None:
        super().__init__(None, session=session)
        self._session = session
        self._epoch = session.epoch

    def finish(
        self, answers: Sequence[tuple[FetchPartition, A]], now_ms: int, caught_up: Iterable[FetchPartition] = ()
    ) -> Finished[A]:
        session = self._session
        if session.epoch != self._epoch:
            if session.pending is not None:
                # This response was never sent: read its partitions again.
                session.pending.note(_key(partition, session.uses_topic_ids) for partition, _ in answers)
            return Finished(ErrorCode.INVALID_FETCH_SESSION_EPOCH, session.session_id, ())
        told: list[tuple[FetchPartition, A]] = []
        for entry in answers:
            partition, answer = entry
            if not _is_news(partition, answer):
                continue
            told.append(entry)
            if answer.records:
                key = _key(partition, session.uses_topic_ids)
                # To the end of the order, so that the others are read first next time.
                del session.partitions[key]
                session.partitions[key] = partition
        session.settle(caught_up)
        return Finished(ErrorCode.NONE, session.session_id, told)

    def preview(self, answers: Sequence[tuple[FetchPartition, A]]) -> Finished[A]:
        session = self._session
        if session.epoch != self._epoch:
            return Finished(ErrorCode.INVALID_FETCH_SESSION_EPOCH, session.session_id, ())
        return Finished(ErrorCode.NONE, session.session_id, [entry for entry in answers if _differs(*entry)])


def _differs(partition: FetchPartition, answer: Answer) -> bool:
    return bool(
        answer.records
        or answer.error_code
        or answer.diverging_epoch is not None
        or answer.preferred_read_replica != -1
        or partition.sent_high_watermark != answer.high_watermark
        or partition.sent_log_start_offset != answer.log_start_offset
    )


def _is_news(partition: FetchPartition, answer: Answer) -> bool:
    news = _differs(partition, answer)
    if news:
        # After an error the next success is always included, as if nothing had been sent.
        partition.sent_high_watermark = -1 if answer.error_code else answer.high_watermark
        partition.sent_log_start_offset = answer.log_start_offset
    return news


def next_epoch(epoch: int) -> int:
    """The epoch after ``epoch``: never 0 again, and −1 stays."""
    if epoch < 0:
        return FINAL_EPOCH
    return 1 if epoch == INT32_MAX else epoch + 1


class FetchSessions:
    """``slots`` is ``max.incremental.fetch.session.cache.slots``."""

    def __init__(self, slots: int, random_bytes: Callable[[int], bytes]) -> None:
        self.cache = FetchSessionCache(slots, random_bytes)

    def begin(
        self,
        session_id: int,
        epoch: int,
        requested: Iterable[FetchPartition],
        forgotten: Iterable[PartitionKey],
        *,
        uses_topic_ids: bool,
        requester: Requester | None,
        now_ms: int,
    ) -> FetchContext:
        """The last of duplicate partitions counts. ``requester`` is None for a request without a session."""
        by_key = {_key(partition, uses_topic_ids): partition for partition in requested}
        if epoch not in (INITIAL_EPOCH, FINAL_EPOCH):
            return self._incremental(session_id, epoch, by_key, forgotten, uses_topic_ids, requester, now_ms)
        # A full request replaces the client's former session.
        if session_id != NO_SESSION:
            self.cache.remove(session_id)
        if epoch == FINAL_EPOCH or requester is None:
            return FetchContext(list(by_key.values()))
        return _FullContext(self.cache, by_key, uses_topic_ids=uses_topic_ids, requester=requester)

    def _incremental(
        self,
        session_id: int,
        epoch: int,
        by_key: dict[PartitionKey, FetchPartition],
        forgotten: Iterable[PartitionKey],
        uses_topic_ids: bool,
        requester: Requester | None,
        now_ms: int,
    ) -> FetchContext:
        session = self.cache.get(session_id)
        if session is None:
            return FetchContext([], ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        # A repeated or reordered request: the client has to open a new session.
        if session.epoch != epoch:
            return FetchContext([], ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        if session.uses_topic_ids != uses_topic_ids:
            return FetchContext([], ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        added = [key for key in by_key if key not in session.partitions]
        if requester is None or (added and not self.cache.has_room(session, len(added), size_of(added))):
            # The session outgrew its bound: the client starts over with a full request, and gets no session.
            self.cache.remove(session_id)
            return FetchContext([], ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.privileged and uses_topic_ids:
            if session.pending is None:
                session.pending = PendingPartitions()
            session.pending.note(by_key)
        self.cache.use(session, by_key, forgotten, requester.connection_id, now_ms)
        if not session.partitions:
            return FetchContext(list(by_key.values()))
        session.epoch = next_epoch(session.epoch)
        return _IncrementalContext(session)


def _key(partition: FetchPartition, uses_topic_ids: bool) -> PartitionKey:
    if uses_topic_ids:
        return partition.topic_id, partition.partition
    return partition.topic or "", partition.partition  # type: ignore[return-value]  # an empty name is valid here
