"""W23 to W27: a record of a share group is with one member at a time, counted, and settled once (KIP-932).

Counts and locks of a leader live in its memory: a new one begins with what was written. So these rules compare the
deliveries of one *tenure*, in which a broker certainly keeps a share partition, and what was answered as written for
ever. A former leader that has not heard of its successor may deliver what the successor has settled; its
acknowledgements are refused.

Groups whose offsets an administrator has changed are judged again from the next sessions on, unless the change may
still come.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Final, NamedTuple

from oncelog.base.errors import ErrorCode
from oncelog.sim.checkers.wire.append_times import AppendTimes
from oncelog.sim.checkers.wire.exchange import Exchange, Report, Topics
from oncelog.sim.checkers.wire.share_changes import OffsetChanges
from oncelog.sim.checkers.wire.share_records import (
    REJECT,
    RELEASE,
    RENEW,
    AnswerKind,
    Delivery,
    RecordSeen,
    Settled,
    ShareLog,
    acknowledged_in,
    answer_kind,
)
from oncelog.sim.checkers.wire.share_sessions import Session, SessionKey, Sessions, ShareKey, key_of
from oncelog.wire.messages.share_acknowledge import ShareAcknowledgeRequest, ShareAcknowledgeResponse
from oncelog.wire.messages.share_fetch import ShareFetchRequest, ShareFetchResponse

SETTLED: Final = "W23 settled record delivered"
STOLEN: Final = "W24 acknowledged without the lock"
LOCKED: Final = "W25 locked record delivered"
COUNT: Final = "W26 delivery count is wrong"
ANSWER: Final = "W27 wrong answer to a member of a share group"
_FOREVER: Final = 1 << 62


class ShareLimits(NamedTuple):
    """``group.share.delivery.delivery_count.limit`` and ``group.share.record.lock.duration.ms``."""

    deliveries: int = 5
    lock_ms: int = 30_000


class Shares:
    """``late_acknowledgements``: instances of W24, with the offset. An acknowledgement of a record that the log has
    lost succeeds, so only those at or above the last log start count.
    """

    def __init__(self, topics: Topics, report: Report, times: AppendTimes, *, is_cluster: bool) -> None:
        self.limits = ShareLimits()
        # The present time by a broker's clock, by which its locks end.
        self.clock: Callable[[int], int] = lambda broker_id: 0
        self.logs: dict[ShareKey, ShareLog] = {}
        self.late_acknowledgements: list[tuple[ShareKey, int, str]] = []
        self._topics = topics
        self._report = report
        self._times = times
        self._is_cluster = is_cluster
        self._sessions = Sessions(self._session_ended)
        self.changes = OffsetChanges(self._forget)
        # The partitions of each ShareFetch without an answer, and the times of requests, by the exchange's index.
        self._fetches: dict[int, tuple[ShareKey, ...]] = {}
        self._requested_ms: dict[int, int] = {}

    def _forget(self, group: str) -> None:
        self.logs = {key: log for key, log in self.logs.items() if key.group != group}

    def _log(self, key: ShareKey) -> ShareLog:
        log = self.logs.get(key)
        if log is None:
            log = self.logs[key] = ShareLog()
        return log

    def _describe(self, key: ShareKey, offset: int) -> str:
        topic = self._topics.describe(self._topics.key(None, key.topic_id, key.partition) or ("?", 0))
        return f"{topic}@{offset} of {key.group}"

    def unseen(self, key: ShareKey, offset: int) -> int:
        """Fetches without an answer that may have got a record since its highest delivery count was seen."""
        log = self._log(key)
        partition = self._topics.key(None, key.topic_id, key.partition)
        earliest = 0 if partition is None else self._times.earliest(partition, offset)
        record = log.records.get(offset)
        return min(log.lost - (0 if record is None else record.lost), log.lost_since(earliest))

    def fetch_requested(self, exchange: Exchange) -> None:
        session = self._sessions.fetch_requested(exchange)
        self._acknowledging(exchange)
        keys = () if session is None else tuple(session.partitions)
        for key in keys:
            log = self._log(key)
            log.requested(exchange.broker_id, exchange.received_index)
            log.waiting += 1
        self._fetches[exchange.received_index] = keys

    def acknowledge_requested(self, exchange: Exchange) -> None:
        self._sessions.acknowledge_requested(exchange)
        self._acknowledging(exchange)

    def _acknowledging(self, exchange: Exchange) -> None:
        member = exchange.request.member_id
        self._requested_ms[exchange.received_index] = self.clock(exchange.broker_id)
        for key, offsets in acknowledged_in(exchange.request):
            log = self._log(key)
            for offset, kind in offsets:
                if kind == RENEW:
                    continue
                if kind != RELEASE:
                    log.record(offset).attempts += 1
                    log.record(offset).settlers.add(member)
                if offset in log.held and log.holder(offset) == member:
                    del log.held[offset]

    def fetched(self, exchange: Exchange, response: ShareFetchResponse, index: int) -> None:
        keys = self._end_fetch(exchange)
        self._check_code(exchange, response.error_code)
        if response.error_code:
            self._lose(exchange, keys, index)
            return
        partitions = {
            ShareKey(exchange.request.group_id, topic.topic_id, partition.partition_index): partition
            for topic in response.responses
            for partition in topic.partitions
        }
        # They were decided before records were acquired.
        codes = {key: partition.acknowledge_error_code for key, partition in partitions.items()}
        self._acknowledged(exchange, codes, index)
        if self._may_lack_records(exchange):
            for key in keys:
                self._log(key).lost_at.append(index)
        is_judged = self._is_judged(exchange)
        for key, partition in partitions.items():
            self._check_code(exchange, partition.error_code)
            if partition.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
                self._log(key).begun_at.pop(exchange.broker_id, None)
            for batch in partition.acquired_records if is_judged else ():
                for offset in range(batch.first_offset, batch.last_offset + 1):
                    self._delivered(key, offset, batch.delivery_count, exchange, index)

    def _may_lack_records(self, exchange: Exchange) -> bool:
        # A response that waits for acknowledgements leaves out records whose locks have ended. Their deliveries count.
        waited_ms = self.clock(exchange.broker_id) - self._requested_ms[exchange.received_index]
        return waited_ms >= self.limits.lock_ms and any(acknowledged_in(exchange.request))

    def _end_fetch(self, exchange: Exchange) -> tuple[ShareKey, ...]:
        keys = self._fetches.pop(exchange.received_index, ())
        for key in keys:
            self._log(key).waiting -= 1
        return keys

    def acknowledged(self, exchange: Exchange, response: ShareAcknowledgeResponse, index: int) -> None:
        self._check_code(exchange, response.error_code)
        codes = {
            ShareKey(exchange.request.group_id, topic.topic_id, partition.partition_index): partition.error_code
            for topic in response.responses
            for partition in topic.partitions
        }
        if response.error_code:
            codes = {key: response.error_code for key, _ in acknowledged_in(exchange.request)}
        self._acknowledged(exchange, codes, index)

    def _check_code(self, exchange: Exchange, code: int) -> None:
        if code == ErrorCode.UNKNOWN_SERVER_ERROR and not self.changes.are_possible(exchange.request.group_id):
            request = exchange.request
            self._report(ANSWER, f"{type(request).__name__} of {request.member_id}: answered {code}")

    def _is_judged(self, exchange: Exchange) -> bool:
        session = self._sessions.get(key_of(exchange))
        opened_at = exchange.received_index if session is None else session.opened_at
        return self.changes.is_over(exchange.request.group_id, opened_at)

    def lost(self, exchanges: Iterable[Exchange], index: int) -> None:
        """Requests without an answer: their connection or broker is gone. ``index``: of the last event on the wire."""
        for exchange in exchanges:
            if isinstance(exchange.request, ShareFetchRequest):
                self._lose(exchange, self._end_fetch(exchange), index)
            elif isinstance(exchange.request, ShareAcknowledgeRequest):
                self._acknowledged(exchange, {}, _FOREVER)
            else:
                self.changes.lost(exchange)

    def _lose(self, exchange: Exchange, keys: Iterable[ShareKey], index: int) -> None:
        for key in keys:
            self._log(key).lost_at.append(index)
        self._acknowledged(exchange, {}, _FOREVER)

    def disconnected(self, connection: Hashable) -> None:
        self._sessions.disconnected(connection)

    def broker_died(self, broker_id: int) -> None:
        self._sessions.broker_died(broker_id)
        for log in self.logs.values():
            log.begun_at.pop(broker_id, None)
            if log.broker_id == broker_id:
                log.end_tenure()

    def _session_ended(self, key: SessionKey, session: Session, is_last: bool) -> None:
        for share_key, log in self.logs.items():
            if share_key.group != key.group or log.broker_id != key.broker_id:
                continue
            if is_last:
                log.end_tenure()
            else:
                log.end_locks(key.member)

    def _delivered(self, key: ShareKey, offset: int, count: int, exchange: Exchange, index: int) -> None:
        log = self._log(key)
        record = log.record(offset)
        request, broker_id = exchange.request, exchange.broker_id
        delivery = Delivery(request.member_id, count, broker_id, log.tenure, exchange.received_index, index, log.lost)
        self._check_settled(key, offset, log, record, delivery)
        self._check_count(key, offset, log, record, delivery)
        self._check_lock(key, offset, log, record, delivery)
        record.last = record.by_member[request.member_id] = delivery
        if count >= record.max_count:
            record.max_count, record.lost = count, log.lost
        if self._sessions.get(key_of(exchange)) is not None and log.broker_id == broker_id:
            log.held[offset] = self._requested_ms[exchange.received_index] + self.limits.lock_ms
        else:
            log.held.pop(offset, None)

    def _check_settled(self, key: ShareKey, offset: int, log: ShareLog, record: RecordSeen, delivery: Delivery) -> None:
        settled = record.settled
        if settled is None or not log.knows(delivery.broker_id, settled):
            return
        if delivery.requested > settled.answered or (
            delivery.broker_id == settled.broker_id and delivery.delivery_count > settled.delivery_count > 0
        ):
            self._report(
                SETTLED,
                f"{self._describe(key, offset)} to {delivery.member}, delivery {delivery.delivery_count}: "
                f"{settled.member} settled it (type {settled.kind}, delivery {settled.delivery_count})",
            )

    def _check_count(self, key: ShareKey, offset: int, log: ShareLog, record: RecordSeen, delivery: Delivery) -> None:
        count, last, released = delivery.delivery_count, record.last, record.released
        unseen = log.lost - record.lost + log.waiting
        most = self.limits.deliveries
        is_known = not self.changes.are_possible(key.group)
        is_next = last is not None and last.tenure == delivery.tenure and delivery.requested > last.sent
        problem = None
        if not 1 <= count <= most:
            problem = f"the limit is {most}"
        elif is_known and count > record.max_count + 1 + unseen:
            problem = f"the highest before was {record.max_count}, and {unseen} fetches may have got it since"
        elif released is not None and count <= released.delivery_count and delivery.requested > released.answered:
            if log.knows(delivery.broker_id, released):
                problem = f"it was released as delivery {released.delivery_count}"
        elif is_known and is_next and not self._is_cluster and last is not None and count <= last.delivery_count:
            problem = f"{last.member} had delivery {last.delivery_count}"
        if problem is not None:
            self._report(COUNT, f"{self._describe(key, offset)} to {delivery.member}, delivery {count}: {problem}")

    def _check_lock(
        self,
        key: ShareKey,
        offset: int,
        log: ShareLog,
        record: RecordSeen,
        delivery: Delivery,
    ) -> None:
        until_ms, last = log.held.get(offset), record.last
        if until_ms is None or last is None or last.tenure != delivery.tenure or last.lost != log.lost:
            return
        now_ms = self.clock(delivery.broker_id)
        if delivery.delivery_count > last.delivery_count and now_ms < until_ms:
            self._report(
                LOCKED,
                f"{self._describe(key, offset)} to {delivery.member}, delivery {delivery.delivery_count}: "
                f"it is locked for {last.member} for {until_ms - now_ms} ms",
            )

    def _acknowledged(self, exchange: Exchange, codes: dict[ShareKey, int], index: int) -> None:
        is_judged = self._is_judged(exchange)
        for key, offsets in acknowledged_in(exchange.request):
            log = self._log(key)
            kind_of_answer = answer_kind(codes[key]) if key in codes else AnswerKind.UNKNOWN
            if kind_of_answer is AnswerKind.REFUSED:
                continue
            for offset, kind in offsets:
                record = log.record(offset)
                record.is_rejected |= kind == REJECT
                if kind_of_answer is AnswerKind.UNKNOWN:
                    record.is_open |= kind != RENEW
                    # It may be released: the lock is not certain any more.
                    log.held.pop(offset, None)
                elif is_judged:
                    self._check_holder(key, offset, log, record, exchange)
                    self._settle(log, offset, record, kind, exchange, index)
                else:
                    record.is_open = True

    def _settle(
        self, log: ShareLog, offset: int, record: RecordSeen, kind: int, exchange: Exchange, index: int
    ) -> None:
        member = exchange.request.member_id
        own = record.by_member.get(member)
        count = 0 if own is None else own.delivery_count
        settled = Settled(kind, member, count, exchange.broker_id, index)
        if kind == RENEW:
            if offset in log.held and log.holder(offset) == member:
                renewed_ms = self._requested_ms[exchange.received_index] + self.limits.lock_ms
                log.held[offset] = max(log.held[offset], renewed_ms)
        elif kind == RELEASE and count < self.limits.deliveries:
            if own is not None and own is record.last:
                record.released = settled
        elif record.settled is None:
            record.settled = settled

    def _check_holder(self, key: ShareKey, offset: int, log: ShareLog, record: RecordSeen, exchange: Exchange) -> None:
        text = self._problem_of_holder(log, record, exchange)
        if text is not None:
            member = exchange.request.member_id
            self.late_acknowledgements.append((key, offset, f"{self._describe(key, offset)} by {member}: {text}"))

    def _problem_of_holder(self, log: ShareLog, record: RecordSeen, exchange: Exchange) -> str | None:
        member = exchange.request.member_id
        last, own, settled = record.last, record.by_member.get(member), record.settled
        # A record that is done is acknowledged without a look, and the member may have got it again unseen.
        if own is None or own.lost != log.lost or record.max_count >= self.limits.deliveries:
            return None
        if settled is not None:
            # The only other request was to another leader, whose successor refuses this one's write.
            is_other = settled.broker_id != exchange.broker_id and settled.member != member
            is_late = settled.answered < exchange.received_index
            return f"{settled.member} had settled it" if is_other and is_late and record.attempts == 2 else None
        if last is None or last.member == member or last.sent > exchange.received_index:
            return None
        is_later = last.tenure == own.tenure and last.delivery_count > own.delivery_count
        is_later |= not self._is_cluster and last.requested > own.sent
        if is_later and not record.settlers - {member} and last.broker_id == exchange.broker_id:
            return f"{last.member} had got it since"
        return None
