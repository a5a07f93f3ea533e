"""A share consumer's work, for both drivers: fetches from leaders, acknowledgements, and the end of a membership.

1. Each leader has a connection of its own, which the session is bound to, and one request in flight on it.
2. Records are acquired only by ``poll``, when it has none: a lock's time runs from the acquisition.
3. Acknowledgements go with the next ShareFetch to the leader, or in a ShareAcknowledge if none is due.
4. ``record_limit`` acquires from one leader at a time, in turns.
5. State changes only between two steps: a cancelled program loses nothing that has arrived.
6. Programs of other tasks run during a step: a leader may be gone after it, and the consumer closed.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any, Final

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import TopicPartition
from oncelog.client.errors import (
    BrokerRefused,
    ClientError,
    Closed,
    ConnectionLost,
    OutOfTurn,
    RequestTimedOut,
    UnsupportedRequest,
)
from oncelog.client.machine.retry import Remedy, remedy
from oncelog.client.machine.share.locks import LOST, Lock, Locks
from oncelog.client.machine.share.member import ShareGroupMember
from oncelog.client.machine.share.session import MODES_FROM, NEW_EPOCH, Outcome, Refused, ShareSession
from oncelog.client.machine.share.values import (
    Acknowledge,
    Acknowledged,
    AcquiredBatches,
    SharePartition,
    ShareRecord,
    ShareSettings,
)
from oncelog.client.programs.cluster import Cluster
from oncelog.client.programs.doubt import DOUBT_AGAIN_MS, DOUBT_MS, Doubt, Silent
from oncelog.client.programs.share_member import Failures, ShareMemberPrograms, new_member_id
from oncelog.client.programs.steps import Link, Pending, Program, Sleep, Submit, Wait
from oncelog.wire.messages.share_acknowledge import ShareAcknowledgeRequest
from oncelog.wire.messages.share_fetch import ShareFetchRequest

MOST_RESULTS: Final = 10_000
"""Results of acknowledgements that wait for ``commit``; older ones are dropped."""
_LONGEST_PAUSE_MS: Final = 60_000
_LONGEST_SLEEP_MS: Final = 100
_LEAVE_TIMEOUT_MS: Final = 5_000


class _Leader:
    """The session with one leader, its connection, and the request in flight."""

    def __init__(self, session: ShareSession, cluster: Cluster) -> None:
        self.session = session
        self.failures = Failures(cluster)
        self.link: Link | None = None
        self.pending: Pending | None = None
        self.asked_for: list[TopicPartition] = []
        self.doubtful_ms = 0
        """The time from which the leader is doubted if the request has no answer."""
        self.is_fetch = False
        self.is_busy = False
        """True while a program connects."""
        self.is_ending = False
        """True once the last request of the session is sent."""


class ShareConsumerPrograms:
    def __init__(self, cluster: Cluster, group: str, topics: Sequence[str], settings: ShareSettings) -> None:
        self.settings = settings
        self.member = ShareMemberPrograms(
            cluster, ShareGroupMember(group, topics, settings.rack_id, new_member_id(cluster))
        )
        self.results: deque[Acknowledged] = deque(maxlen=MOST_RESULTS)
        """Results of acknowledgements in order of arrival, until the consumer takes them."""
        self._cluster = cluster
        self._leaders: dict[int, _Leader] = {}
        self._doubt = Doubt(cluster)
        self._locks = Locks()
        self._arrived: list[AcquiredBatches] = []
        self._errors: list[ClientError] = []
        self._at_end: frozenset[SharePartition] = frozenset()
        """Partitions whose last answered fetch found nothing."""
        self._turn = -1
        """The leader that was asked last, for ``record_limit``."""
        self._is_closing = False

    @property
    def lock_timeout_ms(self) -> int | None:
        """The group's lock duration as a leader has told last; None before."""
        timeouts_ms = (leader.session.lock_timeout_ms for leader in self._leaders.values())
        return next((timeout_ms for timeout_ms in timeouts_ms if timeout_ms is not None), None)

    @property
    def not_at_end(self) -> list[TopicPartition]:
        partitions = self.member.member.partitions
        return sorted(name for partition, name in partitions.items() if partition not in self._at_end)

    def acknowledge(
        self, at: SharePartition, first: int, last: int, kind: Acknowledge, delivery_count: int | None, until_ms: int
    ) -> None:
        """Queue the acknowledgement of the locked offsets within a range, or report at once that it fails because the
        lock has ended. Raises OutOfTurn for offsets that were acknowledged already."""
        locks = self._locks.within(at, first, last)
        if locks and delivery_count in (None, locks[0].delivery_count):
            if kind is not Acknowledge.RENEW:
                self._locks.take(at, first, last)
            for lock in locks:
                self._queue(at, lock, kind)
            return
        name = self._name(at)
        if not locks and until_ms > self._cluster.environment.wall_ms():
            raise OutOfTurn(f"offset {first} of {name} was acknowledged already")
        error = BrokerRefused(ErrorCode.INVALID_RECORD_STATE, f"acknowledgement of records of {name}")
        self._report([Acknowledged(name, first, last, kind, error)])

    def accept_all(self, unread: Iterable[ShareRecord] = ()) -> None:
        """Accept everything that is locked, without ``unread`` records."""
        kept: list[tuple[SharePartition, Lock]] = []
        for record in unread:
            at = SharePartition(record.topic_id, record.partition)
            kept += [(at, lock) for lock in self._locks.take(at, record.offset, record.offset)]
        for partition, lock in list(self._locks.items()):
            self._locks.take(partition, lock.first_offset, lock.last_offset)
            self._queue(partition, lock, Acknowledge.ACCEPT)
        for partition, lock in kept:
            self._locks.add(partition, lock)

    def accept_locked(self, record: ShareRecord) -> None:
        """Accept a record, if it is still locked and was not acknowledged."""
        at, offset = SharePartition(record.topic_id, record.partition), record.offset
        lock = self._locks.at(at, offset)
        if lock is not None and lock.delivery_count == record.delivery_count:
            self.acknowledge(at, offset, offset, Acknowledge.ACCEPT, record.delivery_count, record.lock_until_ms)

    def lock_until_ms(self, topic_id: bytes, partition: int, offset: int) -> int | None:
        lock = self._locks.at(SharePartition(topic_id, partition), offset)
        return None if lock is None or lock.leader == LOST else lock.until_ms

    def poll(self, wait_ms: int, *, heartbeats: bool) -> Program[list[AcquiredBatches]]:
        """Acquired batches, waiting up to ``wait_ms`` for the first; ``heartbeats`` maintains the membership too.
        Raises ClientError; Closed if ``close`` begins meanwhile."""
        deadline_ms = self._cluster.now_ms() + wait_ms
        while True:
            self._require_open()
            self._collect()
            self._raise_error()
            if self._arrived:
                yield from self._send(fetches=False)
                self._require_open()
            if arrived := self._take_arrived():
                return arrived
            if heartbeats and not self.member.pause_ms(self._cluster.now_ms()):
                yield from self.member.advance()
            yield from self.member.look_up()
            yield from self._send(fetches=True)
            left_ms = deadline_ms - self._cluster.now_ms()
            if left_ms <= 0:
                return []
            yield from self._wait(left_ms, heartbeats)

    def commit(self, timeout_ms: int) -> Program[None]:
        """Send all acknowledgements and wait for their results. Raises RequestTimedOut, ClientError; Closed if
        ``close`` begins meanwhile."""
        deadline_ms = self._cluster.now_ms() + timeout_ms
        while True:
            self._require_open()
            self._collect()
            if not any(leader.session.has_acknowledgements for leader in self._leaders.values()):
                return
            self._raise_error()
            left_ms = deadline_ms - self._cluster.now_ms()
            if left_ms <= 0:
                raise RequestTimedOut(f"acknowledgements were not answered within {timeout_ms} ms; commit again")
            # A lost session is opened again by a fetch, without which nothing can be acknowledged.
            yield from self._send(fetches=False, opens=True)
            yield from self._wait(left_ms, heartbeats=False)

    def close(self, timeout_ms: int = _LEAVE_TIMEOUT_MS) -> Program[None]:
        """Send all acknowledgements, release the other records, end the sessions, and leave the group."""
        self._is_closing = True
        deadline_ms = self._cluster.now_ms() + timeout_ms
        while self._leaders:
            self._collect()
            for broker, leader in list(self._leaders.items()):
                if self._leaders.get(broker) is not leader:
                    continue
                is_paused = leader.session.may_acknowledge and leader.failures.until_ms > self._cluster.now_ms()
                if leader.pending is None and not leader.is_busy and not is_paused:
                    yield from self._end(broker, leader)
            left_ms = deadline_ms - self._cluster.now_ms()
            if left_ms <= 0:
                break
            yield from self._wait(left_ms, heartbeats=False)
        self.abort()
        with contextlib.suppress(ClientError):
            yield from self.member.leave()

    def abort(self) -> None:
        """Close the connections to the leaders, which release all locks."""
        self._doubt.close()
        for broker in list(self._leaders):
            self._forget(broker, "the consumer was closed")

    def _queue(self, partition: SharePartition, lock: Lock, kind: Acknowledge) -> None:
        leader = self._leaders.get(lock.leader)
        error: ClientError
        if leader is None:
            error = ConnectionLost("the connection to the leader has ended since, which releases the records")
        elif kind is Acknowledge.RENEW and leader.link is not None and not _has_renewals(leader.link):
            error = UnsupportedRequest(f"broker {lock.leader} cannot renew locks (Kafka 4.2 and later can)")
        else:
            leader.session.acknowledge(partition, lock, kind)
            return
        name = self._name(partition)
        self._report([Acknowledged(name, lock.first_offset, lock.last_offset, kind, error)])

    def _take_arrived(self) -> list[AcquiredBatches]:
        """Hand what has arrived to the caller. A lock that seems to have ended may hold, and each delivery counts: its
        acknowledgement tells."""
        self._locks.drop_expired(self._cluster.environment.wall_ms() - (self.lock_timeout_ms or 0))
        arrived, self._arrived = self._arrived, []
        for batches in arrived:
            at = SharePartition(batches.topic_id, batches.partition.partition)
            for first, last, delivery_count in batches.acquired:
                self._locks.add(at, Lock(first, last, delivery_count, batches.lock_until_ms, batches.leader))
        return arrived

    def _holds_of(self, broker: int) -> bool:
        """True if the caller has, or will get, records that a leader has locked."""
        return self._locks.has_of(broker) or any(batches.leader == broker for batches in self._arrived)

    def _require_open(self) -> None:
        if self._is_closing:
            raise Closed(f"the share consumer of group {self.member.member.group!r}")

    def _raise_error(self) -> None:
        if self._errors:
            raise self._errors.pop(0)

    def _report(self, results: Iterable[Acknowledged]) -> None:
        # The caller has not seen gaps.
        self.results += [result for result in results if result.kind is not Acknowledge.GAP]

    def _wait(self, left_ms: int, heartbeats: bool) -> Program[None]:
        now_ms = self._cluster.now_ms()
        pending = [leader.pending for leader in self._leaders.values() if leader.pending is not None]
        pauses = [left_ms, *(leader.failures.until_ms - now_ms for leader in self._leaders.values())]
        if heartbeats:
            pauses.append(self.member.pause_ms(now_ms))
        pause_ms = min(pause for pause in (*pauses, _LONGEST_PAUSE_MS) if pause > 0)
        if pending:
            yield Wait([*pending, *self._doubt.pending], min(pause_ms, DOUBT_AGAIN_MS))
        else:
            yield Sleep(min(pause_ms, _LONGEST_SLEEP_MS))
        yield from self._leave_replaced_leaders()

    def _leave_replaced_leaders(self) -> Program[None]:
        """Close the links to leaders that have not answered for long, if others lead by now."""
        now_ms = self._cluster.now_ms()
        yield from self._doubt.pursue(
            {
                broker: Silent(leader.link, leader.asked_for)
                for broker, leader in self._leaders.items()
                if leader.link is not None
                and leader.pending is not None
                and now_ms >= leader.doubtful_ms
                and not leader.pending.is_done
            }
        )

    def _wanted(self) -> dict[int, list[SharePartition]]:
        """The assigned partitions by their leaders."""
        by_leader: dict[int, list[SharePartition]] = {}
        for partition, name in self.member.member.partitions.items():
            leader = self._cluster.view.leader(name)
            if leader is not None:
                by_leader.setdefault(leader, []).append(partition)
        return by_leader

    def _send(self, *, fetches: bool, opens: bool = False) -> Program[None]:
        """Send the due request to each leader without one in flight. Raises ClientError."""
        if fetches and not self._is_closing:
            for broker in self._wanted().keys() - self._leaders.keys():
                self._leaders[broker] = self._new_leader(broker)
        # The wait for a connection delays no request to others.
        for broker, leader in sorted(self._leaders.items(), key=lambda item: item[1].link is None):
            if self._is_closing:
                return
            if self._leaders.get(broker) is not leader:
                continue
            session, targets = leader.session, self._wanted()
            chosen = self._chosen(targets) if fetches else None
            if leader.pending is not None or leader.is_busy or leader.failures.until_ms > self._cluster.now_ms():
                continue
            reopens = opens and session.has_acknowledgements and session.epoch == NEW_EPOCH
            if session.acknowledges_first or (session.may_acknowledge and not (fetches and broker in targets)):
                yield from self._send_to(leader, None)
            elif (fetches and broker in targets and chosen in (None, broker)) or (reopens and broker in targets):
                self._turn = broker
                yield from self._send_to(leader, targets[broker])
            elif session.may_acknowledge:
                yield from self._send_to(leader, None)
            elif broker not in targets and (session.epoch == NEW_EPOCH or not self._holds_of(broker)):
                yield from self._end(broker, leader)

    def _chosen(self, targets: dict[int, list[SharePartition]]) -> int | None:
        """The only leader to acquire from now, None for all."""
        if self.settings.acquire != "record_limit" or not targets:
            return None
        now_ms, leaders = self._cluster.now_ms(), self._leaders
        free = sorted(b for b in targets if b in leaders and leaders[b].failures.until_ms <= now_ms)
        is_taken = any(x.is_busy or (x.pending is not None and x.is_fetch) for x in leaders.values())
        if not free or is_taken:
            return LOST
        return next((broker for broker in free if broker > self._turn), free[0])

    def _new_leader(self, broker: int) -> _Leader:
        member = self.member.member
        session = ShareSession(broker, member.group, member.member_id, self.settings, self._locks, member.names)
        return _Leader(session, self._cluster)

    def _send_to(
        self, leader: _Leader, targets: Sequence[SharePartition] | None, *, is_last: bool = False
    ) -> Program[None]:
        """Send a ShareFetch of ``targets``, or a ShareAcknowledge without it or as the last request."""
        session, environment, began_ms = leader.session, self._cluster.environment, self._cluster.now_ms()
        leader.is_busy = True
        try:
            if leader.link is None or not leader.link.is_open:
                self._lose(leader, "the connection has ended")
                if is_last:
                    return
                link = yield from self._doubt.connect(session.leader)
                if self._leaders.get(session.leader) is not leader:
                    link.abort()
                    return
                leader.link = link
            link = leader.link
            if self._is_closing and targets is not None:
                return
            timeout_ms = self._cluster.config.request_timeout_ms
            message: Any
            if targets is not None and not is_last:
                version = link.versions.choose(ShareFetchRequest)
                message = session.fetch(targets, version, environment.wall_ms())
                timeout_ms += self.settings.max_wait_ms
            elif session.epoch == NEW_EPOCH:
                return
            else:
                version = link.versions.choose(ShareAcknowledgeRequest)
                message = session.acknowledge_request(environment.wall_ms(), is_last=is_last)
            leader.is_fetch, leader.is_ending = isinstance(message, ShareFetchRequest), is_last
            waits_ms = timeout_ms - self._cluster.config.request_timeout_ms
            leader.doubtful_ms = self._cluster.now_ms() + waits_ms + DOUBT_MS
            leader.asked_for = [self._name(partition) for partition in targets or session.partitions]
            leader.pending = yield Submit(link, message, version, timeout_ms)
        except ClientError as error:
            self._failed(leader, error)
            now_ms = self._cluster.now_ms()
            others_turn_ms = 0 if self._is_closing else min(now_ms - began_ms, DOUBT_MS)
            leader.failures.until_ms = max(leader.failures.until_ms, now_ms + others_turn_ms)
        finally:
            leader.is_busy = False
            if session.is_waiting and leader.pending is None:
                # Interrupted: whether it was sent is not known.
                self._lose(leader, "the request was interrupted")

    def _end(self, broker: int, leader: _Leader) -> Program[None]:
        """Send a leader's acknowledgements; without any end the session, or drop one that is not open."""
        is_open = leader.link is not None and leader.link.is_open and leader.session.epoch != NEW_EPOCH
        if is_open and not leader.is_ending:
            yield from self._send_to(leader, None, is_last=not leader.session.may_acknowledge)
        else:
            self._forget(broker, "the session with the leader has ended")

    def _collect(self) -> None:
        """Apply the responses that have arrived."""
        for broker, leader in list(self._leaders.items()):
            pending, session = leader.pending, leader.session
            if pending is None or not pending.is_done:
                continue
            leader.pending = None
            wall_ms = self._cluster.environment.wall_ms()
            try:
                response = pending.result()
                outcome = (session.fetched if leader.is_fetch else session.acknowledged)(response, wall_ms)
            except ClientError as error:
                if isinstance(error, RequestTimedOut):
                    self._doubt.add_silent(broker)
                self._failed(leader, error)
            else:
                self._apply(leader, outcome)
            if leader.is_ending:
                self._forget(broker, "the session with the leader has ended")

    def _apply(self, leader: _Leader, outcome: Outcome) -> None:
        self._report(outcome.results)
        if outcome.broken is None:
            self._arrived += outcome.acquired
        if outcome.broken is not None and leader.link is not None:
            error = ConnectionLost(f"{leader.link.address} sent what cannot be used: {outcome.broken}")
            self._failed(leader, error)
        elif outcome.error is not None:
            self._failed(leader, outcome.error, is_lost=False)
        else:
            # Beside records of one partition a response may lack those of others: its limits are reached.
            ended = (
                frozenset() if outcome.acquired else outcome.fetched.difference(r.partition for r in outcome.refused)
            )
            self._at_end = (self._at_end - outcome.fetched | ended) & self.member.member.partitions.keys()
            for refused in outcome.refused:
                self._refused(refused)
            if outcome.has_to_repeat or (outcome.refused and not outcome.acquired):
                leader.failures.pause()
            else:
                leader.failures.clear()

    def _refused(self, refused: Refused) -> None:
        """A partition cannot be fetched: look up its leader, or tell the caller."""
        view, name = self._cluster.view, self._name(refused.partition)
        if remedy(refused.error.code) is Remedy.FAIL:
            self._errors.append(refused.error)
        elif not view.leader_moved(name, refused.leader, refused.leader_epoch):
            view.forget(name.topic)

    def _failed(self, leader: _Leader, error: ClientError, *, is_lost: bool = True) -> None:
        """The request or the whole response has failed; later calls try again, or raise what does not pass."""
        if is_lost:
            self._lose(leader, str(error))
        for name in self.member.member.partitions.values():
            if self._cluster.view.leader(name) == leader.session.leader:
                self._cluster.view.forget(name.topic)
        try:
            leader.failures.add(error)
        except ClientError as final:
            self._errors.append(final)

    def _name(self, partition: SharePartition) -> TopicPartition:
        return TopicPartition(self.member.member.names[partition.topic_id], partition.partition)

    def _lose(self, leader: _Leader, reason: str) -> None:
        if leader.link is not None:
            leader.link.abort()
        leader.link = leader.pending = None
        self._report(leader.session.lost(reason))
        # Records that have arrived count as delivered, perhaps for the last time: they are handed over.
        self._arrived = [
            batches._replace(leader=LOST) if batches.leader == leader.session.leader else batches
            for batches in self._arrived
        ]

    def _forget(self, broker: int, reason: str) -> None:
        self._lose(self._leaders.pop(broker), reason)


def _has_renewals(link: Link) -> bool:
    return link.versions.choose(ShareAcknowledgeRequest) >= MODES_FROM
