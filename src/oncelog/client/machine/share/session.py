"""A member's share session with one leader (KIP-932): requests, and what their answers say.

Epoch  request                                      after the answer
-----  -------------------------------------------  ----------------------------------------------------
0      ShareFetch with all partitions, which opens  1
       the session and may not acknowledge
1 …    ShareFetch with the changes, ShareAcknowledge  one more; after 2³¹−1 comes 1
−1     ShareAcknowledge, which ends the session and  the session is over
       releases all that is locked

1. One request is in flight. Any error of a whole response makes the session begin again at 0. Acknowledgements wait for
   epoch 1, because the locks belong to the member, not to the session.
2. The leader releases the locks when the connection ends: unanswered and unsent acknowledgements fail then.
3. A partition that is acknowledged and not fetched any more is forgotten in the same request, or the leader would add
   it to the session.
4. Renewals go in a ShareAcknowledge: a ShareFetch with one may not acquire records.
5. A leader carries out a partition's acknowledgements in one request together or not at all. After INVALID_RECORD_STATE
   they are sent again, one request for those whose locks end at the same time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from oncelog.base.errors import ErrorCode, PeerError
from oncelog.base.ids import TopicName, TopicPartition, group_by_key
from oncelog.base.units import INT32_MAX, SECOND_MS
from oncelog.client.errors import BrokerRefused, ClientError, ConnectionLost, UnsupportedRequest
from oncelog.client.machine.retry import Remedy, remedy
from oncelog.client.machine.share.locks import AcknowledgementQueue, Lock, Locks, Pending
from oncelog.client.machine.share.values import (
    ACQUIRE_MODES,
    Acknowledge,
    Acknowledged,
    AcquiredBatches,
    AcquiredRange,
    SharePartition,
    ShareSettings,
)
from oncelog.client.machine.whole_batches import whole_batches
from oncelog.wire.messages import share_acknowledge, share_fetch
from oncelog.wire.messages.share_acknowledge import ShareAcknowledgeRequest
from oncelog.wire.messages.share_fetch import ShareFetchRequest

NEW_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
MODES_FROM: Final = 2
"""Before this version of the requests there are no acquire modes and no renewals."""
_LOCK_TIMEOUT_MS: Final = 30 * SECOND_MS
"""Apache Kafka's default, for a leader that does not tell the group's."""
_LOST_SESSION: Final = (
    ErrorCode.SHARE_SESSION_NOT_FOUND,
    ErrorCode.INVALID_SHARE_SESSION_EPOCH,
    ErrorCode.SHARE_SESSION_LIMIT_REACHED,
)
_Acknowledgements = dict[SharePartition, list[Pending]]


class Refused(NamedTuple):
    """An error about a partition that was fetched."""

    partition: SharePartition
    error: BrokerRefused
    leader: int
    """The present leader according to the response, −1 if it does not say."""
    leader_epoch: int


@dataclass(slots=True)
class Outcome:
    """The contents of a response."""

    acquired: list[AcquiredBatches] = field(default_factory=list)
    results: list[Acknowledged] = field(default_factory=list)
    refused: list[Refused] = field(default_factory=list)
    fetched: frozenset[SharePartition] = frozenset()
    """The partitions that a ShareFetch was answered for, those without records too."""
    error: BrokerRefused | None = None
    """The error of the whole response."""
    broken: PeerError | None = None
    """The response is invalid: the connection has to be closed."""
    has_to_repeat: bool = False
    """True if acknowledgements are to be sent again after a pause."""


class _InFlight(NamedTuple):
    acknowledgements: _Acknowledgements
    fetched: frozenset[SharePartition]
    sent_ms: int


class ShareSession:
    def __init__(
        self,
        leader: int,
        group: str,
        member_id: str,
        settings: ShareSettings,
        locks: Locks,
        names: Mapping[bytes, TopicName],
    ) -> None:
        self.leader = leader
        self.epoch = NEW_EPOCH
        self.lock_timeout_ms: int | None = None
        """The group's lock duration, as the leader has told last."""
        self._group = group
        self._member_id = member_id
        self._settings = settings
        self._locks = locks
        self._names = names
        self._queue = AcknowledgementQueue()
        self._partitions: dict[SharePartition, None] = {}
        """The partitions that the leader has in the session."""
        self._in_flight: _InFlight | None = None

    @property
    def partitions(self) -> list[SharePartition]:
        return list(self._partitions)

    @property
    def is_waiting(self) -> bool:
        """True while a request is in flight."""
        return self._in_flight is not None

    @property
    def has_acknowledgements(self) -> bool:
        """True while acknowledgements are unsent or unanswered."""
        return bool(self._queue) or (self._in_flight is not None and bool(self._in_flight.acknowledgements))

    @property
    def may_acknowledge(self) -> bool:
        """True if a ShareAcknowledge is useful now."""
        return bool(self._queue) and self.epoch != NEW_EPOCH

    @property
    def acknowledges_first(self) -> bool:
        """True if a ShareAcknowledge has to precede the next ShareFetch."""
        return (self._queue.has_renewals or self._queue.has_apart) and self.epoch != NEW_EPOCH

    @property
    def _lock_duration_ms(self) -> int:
        return _LOCK_TIMEOUT_MS if self.lock_timeout_ms is None else self.lock_timeout_ms

    def acknowledge(self, partition: SharePartition, lock: Lock, kind: Acknowledge) -> None:
        """Send an acknowledgement with the next request."""
        self._queue.add(partition, Pending(lock.first_offset, lock.last_offset, kind, lock.until_ms))

    def fetch(self, targets: Iterable[SharePartition], version: int, sent_ms: int) -> ShareFetchRequest:
        """The ShareFetch that acquires records of ``targets``, with acknowledgements. Raises UnsupportedRequest."""
        settings = self._settings
        if version < MODES_FROM and settings.acquire != "batch_optimized":
            raise UnsupportedRequest(
                f"broker {self.leader} has no acquire mode {settings.acquire} (Kafka 4.2 and later has)"
            )
        is_new = self.epoch == NEW_EPOCH
        acknowledgements = {} if is_new else self._queue.take(sent_ms)
        target = dict.fromkeys(targets)
        added = [partition for partition in target if is_new or partition not in self._partitions]
        forgotten = [] if is_new else [p for p in self._partitions if p not in target]
        forgotten += [p for p in acknowledgements if p not in target and p not in self._partitions]
        self._partitions = target
        self._in_flight = _InFlight(acknowledgements, frozenset(target), sent_ms)
        return ShareFetchRequest(
            group_id=self._group,
            member_id=self._member_id,
            share_session_epoch=self.epoch,
            # A lock's time is counted from here, and must not end during the wait.
            max_wait_ms=min(settings.max_wait_ms, self._lock_duration_ms // 2),
            min_bytes=settings.min_bytes,
            max_bytes=settings.max_bytes,
            max_records=settings.max_records,
            batch_size=settings.max_records,
            share_acquire_mode=ACQUIRE_MODES[settings.acquire],
            topics=_topics(share_fetch, share_fetch.FetchTopic, share_fetch.FetchPartition, added, acknowledgements),
            forgotten_topics_data=_forgotten(forgotten),
        )

    def acknowledge_request(self, sent_ms: int, *, is_last: bool = False) -> ShareAcknowledgeRequest:
        """The ShareAcknowledge with the next acknowledgements; ``is_last`` ends the session."""
        acknowledgements = self._queue.take(sent_ms)
        is_renewal = any(p.kind is Acknowledge.RENEW for ranges in acknowledgements.values() for p in ranges)
        self._in_flight = _InFlight(acknowledgements, frozenset(), sent_ms)
        return ShareAcknowledgeRequest(
            group_id=self._group,
            member_id=self._member_id,
            share_session_epoch=FINAL_EPOCH if is_last else self.epoch,
            is_renew_ack=is_renewal,
            topics=_topics(
                share_acknowledge,
                share_acknowledge.AcknowledgeTopic,
                share_acknowledge.AcknowledgePartition,
                (),
                acknowledgements,
            ),
        )

    def fetched(self, response: Any, wall_ms: int) -> Outcome:
        """Apply a ShareFetchResponse."""
        sent, outcome = self._answered(response, wall_ms)
        if outcome.error is None:
            outcome.fetched = sent.fetched
            try:
                for partition, data in _partitions_of(response):
                    self._fetched(outcome, sent, partition, data, wall_ms)
            except PeerError as error:
                outcome.broken = error
            self._unanswered(outcome, sent)
        return outcome

    def acknowledged(self, response: Any, wall_ms: int) -> Outcome:
        """Apply a ShareAcknowledgeResponse."""
        sent, outcome = self._answered(response, wall_ms)
        if outcome.error is None:
            for partition, data in _partitions_of(response):
                pending = sent.acknowledgements.pop(partition, None)
                if pending is None:
                    outcome.broken = PeerError("the broker answered for a partition that was not acknowledged")
                    break
                self._settle(outcome, sent, partition, pending, data.error_code, data.error_message, wall_ms)
                if remedy(data.error_code) is Remedy.REFRESH_METADATA:
                    self._refused(outcome, partition, data)
            self._unanswered(outcome, sent)
        return outcome

    def lost(self, reason: str) -> list[Acknowledged]:
        """The connection has ended, and with it the session. Returns the failures of all acknowledgements."""
        unknown = {} if self._in_flight is None else self._in_flight.acknowledgements
        self._in_flight = None
        self.epoch = NEW_EPOCH
        self._partitions = {}
        self._locks.lose(self.leader)
        results: list[Acknowledged] = []
        for partition, ranges in [*unknown.items(), *self._queue.take_all().items()]:
            results += self._failures(partition, ranges, ConnectionLost(f"the acknowledgement was lost: {reason}"))
        return results

    def _answered(self, response: Any, wall_ms: int) -> tuple[_InFlight, Outcome]:
        sent = self._in_flight
        if sent is None:
            raise PeerError("the broker answered a request that was not sent")
        self._in_flight = None
        outcome = Outcome()
        if response.acquisition_lock_timeout_ms > 0:
            self.lock_timeout_ms = response.acquisition_lock_timeout_ms
        if not response.error_code:
            self.epoch = self.epoch + 1 if self.epoch < INT32_MAX else 1
            return sent, outcome
        self.epoch = NEW_EPOCH
        self._partitions = {}
        outcome.error = BrokerRefused(response.error_code, f"share group {self._group!r}", response.error_message)
        if response.error_code in _LOST_SESSION:
            self._repeat(sent.acknowledgements)
        else:
            for partition, ranges in sent.acknowledgements.items():
                outcome.results += self._failures(partition, ranges, outcome.error)
        return sent, outcome

    def _fetched(self, outcome: Outcome, sent: _InFlight, partition: SharePartition, data: Any, wall_ms: int) -> None:
        pending = sent.acknowledgements.pop(partition, None)
        if pending is None and partition not in sent.fetched:
            raise PeerError("the broker answered for a partition that was not fetched")
        if pending is not None:
            code, message = data.acknowledge_error_code, data.acknowledge_error_message
            self._settle(outcome, sent, partition, pending, code, message, wall_ms)
        if data.error_code:
            self._refused(outcome, partition, data)
        elif data.acquired_records:
            outcome.acquired.append(self._acquired(outcome, partition, data, self._lock_end_ms(sent)))

    def _lock_end_ms(self, sent: _InFlight) -> int:
        return sent.sent_ms + self._lock_duration_ms

    def _settle(
        self,
        outcome: Outcome,
        sent: _InFlight,
        partition: SharePartition,
        ranges: list[Pending],
        code: int,
        message: str | None,
        wall_ms: int,
    ) -> None:
        name = self._name(partition)
        if not code:
            for pending in ranges:
                if pending.kind is Acknowledge.RENEW:
                    self._locks.renewed(partition, pending, self._lock_end_ms(sent))
                outcome.results.append(Acknowledged(name, pending.first_offset, pending.last_offset, pending.kind))
            return
        if code == ErrorCode.INVALID_RECORD_STATE and self._repeat_apart(partition, ranges):
            return
        may_pass = remedy(code) in (Remedy.RETRY, Remedy.FIND_COORDINATOR)
        again = [pending for pending in ranges if may_pass and wall_ms < pending.until_ms]
        if again:
            self._repeat({partition: again})
            outcome.has_to_repeat = True
        error = BrokerRefused(code, f"acknowledgement of records of {name}", message)
        outcome.results += self._failures(partition, [p for p in ranges if p not in again], error)

    def _unanswered(self, outcome: Outcome, sent: _InFlight) -> None:
        for partition, ranges in sent.acknowledgements.items():
            error = ClientError(f"broker {self.leader} did not answer the acknowledgement for {self._name(partition)}")
            outcome.results += self._failures(partition, ranges, error)

    def _failures(self, partition: SharePartition, ranges: list[Pending], error: ClientError) -> list[Acknowledged]:
        for pending in ranges:
            if pending.kind is Acknowledge.RENEW:
                self._locks.take(partition, pending.first_offset, pending.last_offset)
        name = self._name(partition)
        return [Acknowledged(name, p.first_offset, p.last_offset, p.kind, error) for p in ranges]

    def _repeat(self, acknowledgements: _Acknowledgements) -> None:
        for partition, ranges in acknowledgements.items():
            for pending in ranges:
                for part in self._still_wanted(partition, pending):
                    self._queue.add(partition, part)

    def _repeat_apart(self, partition: SharePartition, ranges: list[Pending]) -> bool:
        """The leader has carried out none, because a lock has ended: send those whose locks end together apart from the
        others. False if all end together."""
        ends_ms = sorted({pending.until_ms for pending in ranges}, reverse=True)
        if len(ends_ms) == 1:
            return False
        for until_ms in ends_ms:
            together: list[Pending] = []
            for pending in ranges:
                if pending.until_ms == until_ms:
                    together += self._still_wanted(partition, pending)
            if together:
                self._queue.add_apart(partition, together)
        return True

    def _still_wanted(self, partition: SharePartition, pending: Pending) -> list[Pending]:
        """The range; a renewal without the offsets that the caller has acknowledged meanwhile, which have no lock."""
        if pending.kind is not Acknowledge.RENEW:
            return [pending]
        locks = self._locks.within(partition, pending.first_offset, pending.last_offset)
        return [pending._replace(first_offset=lock.first_offset, last_offset=lock.last_offset) for lock in locks]

    def _refused(self, outcome: Outcome, partition: SharePartition, data: Any) -> None:
        error = BrokerRefused(data.error_code, f"fetch from {self._name(partition)}", data.error_message)
        hint = data.current_leader
        outcome.refused.append(Refused(partition, error, hint.leader_id, hint.leader_epoch))

    def _acquired(self, outcome: Outcome, partition: SharePartition, data: Any, until_ms: int) -> AcquiredBatches:
        ranges: list[AcquiredRange] = []
        name = self._name(partition)
        for row in data.acquired_records:
            previous = ranges[-1].last_offset if ranges else -1
            if not previous < row.first_offset <= row.last_offset:
                raise PeerError(f"acquired offsets {row.first_offset} to {row.last_offset} after {previous}")
            ranges.append(AcquiredRange(row.first_offset, row.last_offset, row.delivery_count))
            if self._queue:
                # They are of the delivery before, and must not settle this one.
                error = BrokerRefused(ErrorCode.INVALID_RECORD_STATE, f"acknowledgement of records of {name}")
                stale = self._queue.cut(partition, row.first_offset, row.last_offset)
                outcome.results += self._failures(partition, stale, error)
        records = memoryview(data.records) if data.records is not None else memoryview(b"")
        size, _ = whole_batches(records, 0, old_formats=True)
        is_cut = size < len(records)
        return AcquiredBatches(name, records[:size], tuple(ranges), until_ms, partition.topic_id, self.leader, is_cut)

    def _name(self, partition: SharePartition) -> TopicPartition:
        return TopicPartition(self._names[partition.topic_id], partition.partition)


def _partitions_of(response: Any) -> Iterable[tuple[SharePartition, Any]]:
    for topic in response.responses:
        for data in topic.partitions:
            yield SharePartition(bytes(topic.topic_id), data.partition_index), data


def _topics(
    messages: Any, topic: Any, partition: Any, added: Iterable[SharePartition], acknowledgements: _Acknowledgements
) -> list[Any]:
    """The topics of either request: partitions to add, and acknowledgements."""
    by_topic: dict[bytes, list[Any]] = {}
    for topic_id, index in dict.fromkeys([*added, *acknowledgements]):
        batches = [
            messages.AcknowledgementBatch(
                first_offset=pending.first_offset,
                last_offset=pending.last_offset,
                acknowledge_types=[int(pending.kind)],
            )
            for pending in acknowledgements.get(SharePartition(topic_id, index), ())
        ]
        entry = partition(partition_index=index, acknowledgement_batches=batches)
        by_topic.setdefault(topic_id, []).append(entry)
    return [topic(topic_id=topic_id, partitions=entries) for topic_id, entries in by_topic.items()]


def _forgotten(partitions: Iterable[SharePartition]) -> list[share_fetch.ForgottenTopic]:
    by_topic = group_by_key(partitions)
    return [share_fetch.ForgottenTopic(topic_id=topic_id, partitions=rows) for topic_id, rows in by_topic.items()]
