"""TransactionShard: a deterministic state machine for the transactions that one ``__transaction_state`` partition
coordinates.

The node calls a decide method with a token and the time, appends the decision's records as one batch, calls ``apply``
for each, and once they are durable delivers ``reply`` to the token and ``released`` to the others and sends
``markers``. It reports each partition with a written marker to ``markers_written``, and deleted ones to
``partitions_deleted``. After a failed append it calls ``append_failed``; at ``deadline_ms()`` it calls ``tick`` and
treats its decision alike. Loading: ``apply`` for every record of the log in order, then ``loaded``; no decisions
before.

The rule: only ``apply`` changes persisted state, and the same ``apply`` rebuilds it from the log. Decide methods may
change soft state (``soft_state``). Between decide and apply a transaction is *pending* and requests for it wait, so
that ``apply`` may follow later. The shard reads no clock and generates no producer ids.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    CoordinatorEpoch,
    ProducerId,
    TopicPartition,
    TransactionalId,
)
from oncelog.base.invariant import InvariantViolation, invariant
from oncelog.core.transactions import decisions, transitions
from oncelog.core.transactions.late_requests import LateRequests
from oncelog.core.transactions.model import (
    AddRequest,
    MarkersToWrite,
    NeedsProducerId,
    Reply,
    TransactionDecision,
    TransactionDescription,
    TransactionListing,
    TransactionRequest,
)
from oncelog.core.transactions.settings import TransactionSettings
from oncelog.core.transactions.soft_state import (
    LastClients,
    OutstandingMarkers,
    ParkedRequest,
    Parking,
    PendingTransitions,
    TimerKey,
    TimerKind,
    Timers,
)
from oncelog.core.transactions.states import AT_REST, PREPARED, STATE_NAMES, TransactionState, may_follow
from oncelog.core.transactions.store import TransactionStore, is_whole, record_of
from oncelog.core.transactions.transitions import Transaction
from oncelog.core.transactions.transitions import check as check_transaction
from oncelog.records.internal import transaction_records
from oncelog.records.internal.transaction_records import Unknown

EXPIRY_IDS_PER_TICK = 1000
"""Ids checked by one tick of the expiry job, so that it does not block the loop."""
EXPIRY_PAUSE_MS = 10
"""Pause between two ticks of the expiry job."""
COMPLETE_RETRY_MS = 1_000
"""Delay before a failed append of a Complete record is retried. Without enough replicas in sync all of them fail."""
AT_ONCE_MS = 0
_EXPIRY = TimerKey(TimerKind.EXPIRY)


class TransactionShard:
    """``coordinator_epoch`` is the leader epoch of the partition."""

    def __init__(self, partition: int, coordinator_epoch: CoordinatorEpoch, settings: TransactionSettings) -> None:
        self._transactions = TransactionStore()
        self._markers = OutstandingMarkers(coordinator_epoch)
        self.partition = partition
        self.coordinator_epoch = coordinator_epoch
        self.settings = settings
        self.is_loaded = False
        self._pending = PendingTransitions()
        self._timers = Timers()
        self._parking = Parking(self._timers)
        self._late_requests = LateRequests()
        self.clients = LastClients()
        self._expiry_queue: list[TransactionalId] = []
        self.timed_out = 0
        """The number of transactions aborted by their time-out."""

    def decide(
        self, request: TransactionRequest, token: int, now_ms: int, *, producer_id: ProducerId = NO_PRODUCER_ID
    ) -> TransactionDecision:
        """InitProducerId with a transactional id, AddPartitionsToTxn of one transaction, AddOffsetsToTxn or EndTxn.

        Replies InitReply, AddReply or EndReply, possibly later; or NeedsProducerId: decide again with a new
        ``producer_id``. A verify-only request gets VerifyReply at once.
        """
        if isinstance(request, AddRequest) and request.verify_only:
            return self.verify_partitions(request)
        if self.settings.refuse_late_requests:
            transaction = self._transactions.get(request.transactional_id)
            late = self._late_requests.refusal(request, None if transaction is None else transaction.identity)
            if late is not None:
                return TransactionDecision(reply=late)
        waiting = ParkedRequest(token, request)
        out = TransactionDecision()
        outcome = self._outcome(waiting, producer_id, now_ms)
        self._make(outcome.transitions, out)
        if outcome.reply is None:
            self._parking.park(waiting, now_ms + self._wait_ms(request))
            # append_failed needs it: the parked request must not stay behind.
            out.parked = token
        out.reply = outcome.reply
        out.shows = request.transactional_id if outcome.waits_for_pending else None
        return out

    def verify_partitions(self, request: AddRequest) -> TransactionDecision:
        """Verify that partitions are in the transaction; replies VerifyReply at once."""
        reply = decisions.verify_partitions(self._transactions.get(request.transactional_id), request)
        shown = request.transactional_id if reply.error_code is ErrorCode.NONE else None
        return TransactionDecision(reply=reply, shows=shown)

    def take_part(self, request: AddRequest) -> bool:
        """True if ``verify_partitions`` would accept all partitions, by the applied state, durable or not."""
        return decisions.verify_partitions(self._transactions.get(request.transactional_id), request).take_part

    def abort_timed_out(
        self, transactional_id: TransactionalId, producer_id: ProducerId, now_ms: int
    ) -> TransactionDecision:
        """Abort a transaction after its time-out, unless it has ended. Called by ``tick``, and by the node with the
        producer id requested by ``needs_producer_id``. No reply.
        """
        out = TransactionDecision()
        transaction = self._transactions.get(transactional_id)
        if transaction is None or (deadline_ms := transaction.deadline_ms) is None:
            return out
        # Try again later if the append fails or no producer id arrives.
        self._watch(transaction, now_ms + self.settings.abort_timed_out_interval_ms)
        if now_ms < deadline_ms or transactional_id in self._pending:
            return out
        lacks_id = transitions.needs_producer_id(transaction, self.settings.transaction_version)
        if lacks_id and producer_id == NO_PRODUCER_ID:
            out.needs_producer_id = transactional_id
            return out
        self._make(decisions.fence(transaction, self.settings, producer_id, now_ms), out)
        self.timed_out += 1
        out.times_out = True
        return out

    def _wait_ms(self, request: TransactionRequest) -> int:
        """How long a request may wait for the previous transaction to complete."""
        longest_ms = request.longest_wait_ms if isinstance(request, AddRequest) else None
        wait_ms = self.settings.concurrent_wait_ms
        return wait_ms if longest_ms is None else min(wait_ms, longest_ms)

    def _decide_again(self, now_ms: int) -> TransactionDecision:
        """Decide the request that has been ready longest."""
        waiting = self._parking.next_ready()
        out = TransactionDecision()
        outcome = self._outcome(waiting, NO_PRODUCER_ID, now_ms)
        self._make(outcome.transitions, out)
        if outcome.reply is None:
            self._parking.park(waiting, now_ms + self.settings.concurrent_wait_ms)
            out.parked, out.parked_by_tick = waiting.token, True
            return out
        self._parking.answered(waiting.token)
        out.released.append((waiting.token, outcome.reply))
        out.shows = waiting.transactional_id if outcome.waits_for_pending else None
        return out

    def _outcome(self, waiting: ParkedRequest, producer_id: ProducerId, now_ms: int) -> decisions.RequestOutcome:
        if waiting.transactional_id in self._pending:
            return decisions.WAIT
        transaction = self._transactions.get(waiting.transactional_id)
        return decisions.decide(transaction, waiting.request, self.settings, producer_id, now_ms)

    def _make(self, following: Iterable[Transaction], out: TransactionDecision) -> None:
        """The transitions are pending until applied."""
        for transaction in following:
            tid = transaction.transactional_id
            record = record_of(transaction, self.settings)
            out.records.append(record)
            out.transitions.append(tid)
            self._pending.decided(tid, record[1], transaction)
            if transaction.state in PREPARED and transaction.partitions:
                out.markers.append(self._markers.to_write(transaction))

    def markers_written(
        self, markers: MarkersToWrite, partitions: Iterable[TopicPartition], now_ms: int
    ) -> TransactionDecision:
        """Partitions have their marker durably, or no longer need it; the last one completes the transaction. Reports
        about another transaction or coordinator epoch are ignored. No reply."""
        out = TransactionDecision()
        # A late report about an earlier transaction must not complete this one.
        if self._markers.are_current(markers) and self._markers.settle(markers.transactional_id, partitions):
            self._complete(markers.transactional_id, now_ms, out)
        return out

    def partitions_deleted(self, partitions: Collection[TopicPartition], now_ms: int) -> TransactionDecision:
        """Stop waiting for markers of deleted partitions. No reply."""
        out = TransactionDecision()
        for tid in self._markers.awaiting_any(partitions):
            if self._markers.settle(tid, partitions):
                self._complete(tid, now_ms, out)
        return out

    def _complete(self, transactional_id: TransactionalId, now_ms: int, out: TransactionDecision) -> None:
        transaction = self._transactions.get(transactional_id)
        if transaction is not None and transaction.state in PREPARED and transactional_id not in self._pending:
            self._make([transitions.complete(transaction, now_ms)], out)

    def deadline_ms(self) -> int | None:
        """When to call ``tick`` next, 0 for at once; None: not before the next decision."""
        return AT_ONCE_MS if self._parking.has_ready() else self._timers.next_deadline_ms()

    def tick(self, now_ms: int) -> TransactionDecision:
        """Handle one due deadline or ready request; repeat while ``deadline_ms()`` is due."""
        if self._parking.has_ready():
            return self._decide_again(now_ms)
        out = TransactionDecision()
        key = self._timers.pop_due(now_ms)
        if key is None:
            return out
        if key.kind is TimerKind.TIME_OUT:
            return self.abort_timed_out(TransactionalId(key.transactional_id), NO_PRODUCER_ID, now_ms)
        if key.kind is TimerKind.COMPLETE:
            self._complete(TransactionalId(key.transactional_id), now_ms, out)
        elif key.kind is TimerKind.EXPIRY:
            self._expire(now_ms, out)
        else:
            waiting = self._parking.remove(key.token)
            if waiting is not None:
                out.released.append(waiting.refused(ErrorCode.CONCURRENT_TRANSACTIONS))
        return out

    def _watch(self, transaction: Transaction, not_before_ms: int = 0) -> None:
        """Schedule an open transaction's time-out, at the first sweep after it, as in Apache Kafka."""
        key = TimerKey(TimerKind.TIME_OUT, transaction.transactional_id)
        deadline_ms = transaction.deadline_ms
        if deadline_ms is None:
            self._timers.cancel(key)
            return
        interval_ms = self.settings.abort_timed_out_interval_ms
        self._timers.schedule(key, -(-max(deadline_ms, not_before_ms) // interval_ms) * interval_ms)

    def _expire(self, now_ms: int, out: TransactionDecision) -> None:
        """Run a part of the expiry job; the next follows soon, or after the interval if all ids are done."""
        if not self._expiry_queue:
            self._expiry_queue = self._transactions.ids()
        oldest_ms = now_ms - self.settings.transactional_id_expiration_ms
        for _ in range(min(EXPIRY_IDS_PER_TICK, len(self._expiry_queue))):
            tid = self._expiry_queue.pop()
            transaction = self._transactions.get(tid)
            if transaction is None or tid in self._pending or transaction.last_update_ms > oldest_ms:
                continue
            # A tombstone for an open transaction would lose its decision.
            if may_follow(transaction.state, TransactionState.DEAD):
                out.records.append((transaction_records.encode_key(tid), None))
                out.transitions.append(tid)
                self._pending.decided(tid, None, None)
        interval_ms = EXPIRY_PAUSE_MS if self._expiry_queue else self.settings.remove_expired_interval_ms
        self._timers.schedule(_EXPIRY, now_ms + interval_ms)

    def apply(self, key: bytes, value: bytes | None) -> None:
        """Apply one record of the log: any record while loading, afterwards decided ones."""
        if not self.is_loaded:
            self._transactions.load(key, value)
            return
        name = transaction_records.decode_key(key)
        if isinstance(name, Unknown):
            raise InvariantViolation("X7: the applied record was not decided", {"key": key.hex()})
        tid = TransactionalId(name)
        following = self._confirm(tid, value)
        if following is None:
            self._transactions.remove(tid)
            self._timers.cancel(TimerKey(TimerKind.TIME_OUT, tid))
        else:
            self._transactions.put(following)
        self._entered(tid, following)

    def _confirm(self, transactional_id: TransactionalId, value: bytes | None) -> Transaction | None:
        """The transaction after an applied record, which must be the decided one; with its last epoch."""
        following = self._pending.confirm(transactional_id, value).transaction
        if value is None or following is None:
            return None
        current = self._transactions.get(transactional_id)
        previous = TransactionState.EMPTY if current is None else current.state
        if not may_follow(previous, following.state):
            raise InvariantViolation("X1: a transition the table lacks", {"state": previous.name})
        # A version 0 record lacks tagged fields, and replay would not have them: keep what the record says.
        if is_whole(value):
            return following
        read = self._transactions.read(transactional_id, value)
        return following if read is None else read._replace(last_epoch=following.last_epoch)

    def _entered(self, tid: TransactionalId, transaction: Transaction | None) -> None:
        """Set the soft state for an entered state: time-out, outstanding markers, ready requests."""
        if transaction is not None:
            self._watch(transaction)
        if transaction is not None and transaction.state in PREPARED:
            self._markers.begin(transaction)
            return
        if self._markers.forget(tid):
            self._timers.cancel(TimerKey(TimerKind.COMPLETE, tid))
        # With another transition pending the requests would only be parked again.
        if tid not in self._pending:
            self._parking.make_ready(tid)

    def loaded(self, now_ms: int) -> TransactionDecision:
        """End loading: decided transactions continue, open ones keep their start. No reply."""
        self.is_loaded = True
        out = TransactionDecision()
        for tid, transaction in self._transactions.unpacked():
            # At rest there is no soft state to set.
            if transaction.state in AT_REST:
                continue
            self._entered(tid, transaction)
            if transaction.state in PREPARED:
                if transaction.partitions:
                    out.markers.append(self._markers.to_write(transaction))
                else:
                    self._timers.schedule(TimerKey(TimerKind.COMPLETE, tid), now_ms)
        self._timers.schedule(_EXPIRY, now_ms + self.settings.remove_expired_interval_ms)
        return out

    def unloaded(self, now_ms: int) -> TransactionDecision:
        """Another broker coordinates these transactions now: refuse parked requests. The shard must not be used
        afterwards; the coordinator epoch fences markers in flight."""
        self.is_loaded = False
        self._transactions.clear()
        self._pending.clear()
        self._markers.clear()
        return TransactionDecision(released=self._parking.clear(ErrorCode.NOT_COORDINATOR))

    def append_failed(self, decision: TransactionDecision, error_code: ErrorCode, now_ms: int) -> TransactionDecision:
        """Undo a decision whose records could not be appended. The node answers the caller's token with ``error_code``;
        the returned decision has the replies to others.
        """
        out = TransactionDecision(released=[(token, _refused(reply, error_code)) for token, reply in decision.released])
        if decision.parked is not None:
            waiting = self._parking.remove(decision.parked)
            if waiting is not None and decision.parked_by_tick:
                out.released.append(waiting.refused(error_code))
        self.timed_out -= decision.times_out
        for tid in decision.transitions:
            self._pending.drop(tid)
            transaction = self._transactions.get(tid)
            if transaction is None or transaction.state not in PREPARED:
                self._parking.make_ready(tid)
            # All markers are written, so no report will complete the transaction: retry by timer.
            elif not self._markers.awaited(tid):
                self._timers.schedule(TimerKey(TimerKind.COMPLETE, tid), now_ms + COMPLETE_RETRY_MS)
        return out

    def id_count(self) -> int:
        return len(self._transactions)

    @property
    def skipped(self) -> Counter[str]:
        """Unreadable records by reason, for the node to log; the state of an earlier record stays."""
        return self._transactions.skipped

    def describe(self, transactional_id: TransactionalId) -> TransactionDescription | None:
        transaction = self._transactions.get(transactional_id)
        if transaction is None:
            return None
        return TransactionDescription(
            transactional_id,
            STATE_NAMES[transaction.state],
            transaction.identity,
            transaction.timeout_ms,
            transaction.start_ms,
            transaction.partitions,
            self.clients.get(transactional_id),
        )

    def listings(
        self,
        now_ms: int,
        *,
        states: Collection[TransactionState] | None = None,
        producer_ids: Collection[ProducerId] | None = None,
        longer_than_ms: int = -1,
    ) -> list[TransactionListing]:
        """ListTransactions; None: any. As in Apache Kafka, an id without a transaction counts as open since 1970. The
        caller matches patterns.
        """
        # No packed id is unpacked: there may be a million.
        at_rest = states is None or not AT_REST.isdisjoint(states)
        return [
            TransactionListing(tid, producer_id, STATE_NAMES[state])
            for tid, state, producer_id, start_ms in self._transactions.states(at_rest=at_rest)
            if (states is None or state in states)
            and (producer_ids is None or producer_id in producer_ids)
            and (longer_than_ms < 0 or now_ms - start_ms > longer_than_ms)
        ]

    def counts(self) -> dict[str, int]:
        return {STATE_NAMES[state]: count for state in STATE_NAMES if (count := self._transactions.counts[state])}

    def outstanding_count(self) -> int:
        """The number of markers that decided transactions wait for (metrics)."""
        return self._markers.count()

    def open_of(self, producer_ids: Collection[int]) -> dict[int, TransactionalId]:
        """The transactional ids of those ``producer_ids`` that have an open or completing transaction."""
        return {
            transaction.identity.producer_id: tid
            for tid, transaction in self._transactions.unpacked()
            if transaction.identity.producer_id in producer_ids and transaction.state not in AT_REST
        }

    def outstanding(self, transactional_id: TransactionalId) -> tuple[TopicPartition, ...]:
        """The partitions whose markers a prepared transaction waits for (console, debugging)."""
        return self._markers.awaited(transactional_id) or ()

    def awaits_marker(self, partition: TopicPartition, producer_ids: Collection[ProducerId]) -> bool:
        """True if a decided transaction of one of these producers still needs its marker on ``partition``."""
        transactions = (self._transactions.get(tid) for tid in self._markers.awaiting_any((partition,)))
        return any(held is not None and held.identity.producer_id in producer_ids for held in transactions)

    def persisted(self) -> dict[TransactionalId, Transaction]:
        """The transactions that a replay of the log must reproduce, without last epochs (tests)."""
        return {
            tid: transaction._replace(last_epoch=NO_PRODUCER_EPOCH) for tid, transaction in self._transactions.items()
        }

    def check(self) -> None:
        """For tests: it traverses everything. Raises InvariantViolation."""
        for tid, transaction in self._transactions.items():
            invariant(transaction.transactional_id == tid, "a transaction under another's id", transactional_id=tid)
            check_transaction(transaction)
            awaited = self._markers.awaited(tid)
            prepared = transaction.state in PREPARED
            invariant(prepared == (awaited is not None), "X9: markers of nothing decided", transactional_id=tid)
            invariant(not awaited or set(awaited) <= set(transaction.partitions), "X9: a foreign marker", id=tid)
            drives_on = bool(awaited) or tid in self._pending
            drives_on = drives_on or self._timers.deadline_of(TimerKey(TimerKind.COMPLETE, tid)) is not None
            invariant(not prepared or drives_on, "X9: nothing completes it", transactional_id=tid)
            watched = self._timers.deadline_of(TimerKey(TimerKind.TIME_OUT, tid)) is not None
            invariant(watched == (transaction.deadline_ms is not None), "X10: time-out", transactional_id=tid)
            may_park = prepared or tid in self._pending
            invariant(may_park or not self._parking.is_parked(tid), "X8: waits for nothing", transactional_id=tid)
        tokens = [waiting.token for waiting in self._parking]
        invariant(len(tokens) == len(set(tokens)), "X8: a token twice")


def _refused(reply: Reply, error_code: ErrorCode) -> Reply:
    """A reply of the same kind with an error; after NeedsProducerId the request is decided again anyway."""
    return reply if isinstance(reply, NeedsProducerId) else type(reply)(error_code)
