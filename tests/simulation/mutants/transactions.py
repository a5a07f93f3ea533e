"""Bugs of the transaction coordinator and of producer ids."""

from __future__ import annotations

from typing import Any, Final

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import Offset
from oncelog.base.tree import CommitOutcome
from oncelog.core.transactions import decisions, transitions
from oncelog.core.transactions.model import EndReply
from oncelog.core.transactions.shard import TransactionShard
from oncelog.core.transactions.soft_state import OutstandingMarkers, TimerKey, TimerKind
from oncelog.core.transactions.states import COMPLETED, TransactionState
from oncelog.core.transactions.transitions import Transaction
from oncelog.node.coordinators.group_coordinators import GroupCoordinators
from oncelog.node.coordinators.markers import MarkerSender, MarkerWriter
from oncelog.node.coordinators.producer_ids import ProducerIds
from oncelog.node.coordinators.runner import Coordinators
from oncelog.node.coordinators.transaction_coordinators import TransactionCoordinators
from tests.simulation.mutants.mutant import Mutant, every

SOON_MS: Final = 3_000


def _wrong_outcome(right: Any) -> Any:
    now = every(7)

    def to_write(self: OutstandingMarkers, prepared: Transaction) -> Any:
        result = right(self, prepared)
        return result._replace(committed=not result.committed) if now() else result

    return to_write


def _marker_before_decision(right: Any) -> Any:
    def follow_up(self: TransactionCoordinators, led: Any, decision: Any, now_ms: int) -> None:
        if decision.markers:
            self.markers.add(led, decision.markers)
            self.markers.send_decided()
        decision.markers = []
        right(self, led, decision, now_ms)

    return follow_up


def _complete_before_markers(right: Any) -> Any:
    def write(self: MarkerWriter, leader_log: Any, marker: Any) -> Offset:
        right(self, leader_log, marker)
        return Offset(0)

    return write


def _answered_early(kind: type[Any]) -> Any:
    def replace(right: Any) -> Any:
        def deliver(self: Coordinators[Any, Any], led: Any, decision: Any, token: int | None, now_ms: int) -> None:
            if not isinstance(self, kind):
                right(self, led, decision, token, now_ms)
                return
            self._reply_all(led, decision.released)
            if token is not None and decision.reply is not None:
                self._reply(led, token, decision.reply)

        return deliver

    return replace


def _skip_prepared(right: Any) -> Any:
    def loaded(self: TransactionShard, now_ms: int) -> Any:
        out = right(self, now_ms)
        out.markers = []
        return out

    return loaded


def _forget_time_outs(right: Any) -> Any:
    def entered(self: TransactionShard, tid: Any, transaction: Any) -> None:
        right(self, tid, transaction)
        if transaction is not None and transaction.last_epoch < 0:  # as it is read from the log
            self._timers.cancel(TimerKey(TimerKind.TIME_OUT, tid))

    return entered


def _two_phase_times_out(right: Any) -> Any:
    def deadline_ms(self: Transaction) -> int | None:
        if self.state is not TransactionState.ONGOING:
            return None
        return self.start_ms + min(self.timeout_ms, SOON_MS) + 1

    return property(deadline_ms)


def _retry_is_always_well(right: Any) -> Any:
    def end(transaction: Transaction, request: Any, producer_id: Any, now_ms: int) -> Any:
        if transaction.state in COMPLETED and decisions._is_retry(transaction, request.identity):
            return decisions.RequestOutcome(EndReply(ErrorCode.NONE, transaction.identity), waits_for_pending=True)
        return right(transaction, request, producer_id, now_ms)

    return end


def _late_end_decides(right: Any) -> Any:
    def refusal(transaction: Transaction, identity: Any) -> ErrorCode:
        result: ErrorCode = right(transaction, identity)
        late = result is ErrorCode.PRODUCER_FENCED and identity.producer_id == transaction.identity.producer_id
        return ErrorCode.NONE if late else result

    return refusal


def _partition_forgotten(right: Any) -> Any:
    now = every(9)

    def prepare(transaction: Transaction, **how: Any) -> Any:
        if len(transaction.partitions) > 1 and now():
            transaction = transaction._replace(partitions=transaction.partitions[:-1])
        return right(transaction, **how)

    return prepare


def _epoch_not_raised(right: Any) -> Any:
    now = every(5)

    def prepare(transaction: Transaction, **how: Any) -> Any:
        following = right(transaction, **how)
        return following._replace(identity=transaction.identity) if now() else following

    return prepare


def _not_fenced(right: Any) -> Any:
    def initialise(transaction: Any, request: Any, settings: Any, producer_id: Any, now_ms: int) -> Any:
        if transaction is not None and transaction.state is TransactionState.ONGOING and not request.keep_prepared:
            ended = transaction._replace(state=TransactionState.COMPLETE_ABORT, partitions=())
            outcome = right(ended, request, settings, producer_id, now_ms)
            first = transitions.prepare(
                transaction._replace(partitions=()),
                committed=False,
                client_version=0,
                new_producer_id=producer_id,
                now_ms=now_ms,
            )
            return outcome._replace(transitions=(first, transitions.complete(first, now_ms), *outcome.transitions))
        return right(transaction, request, settings, producer_id, now_ms)

    return initialise


def _retry_markers_never(right: Any) -> Any:
    def retry(self: MarkerSender, sending: Any) -> None:
        """The log has refused; nobody tries again."""

    return retry


def _block_in_memory(right: Any) -> Any:
    def prefetch(self: ProducerIds, effects: Any) -> None:
        if self._in_use and self._allocator.wants_block:
            self._allocator.block_requested()
            self._granted(0, CommitOutcome.COMMITTED)

    return prefetch


TRANSACTIONS: Final = (
    Mutant(
        "wrong-marker",
        "a commit is marked as an abort, or the other way round, now and then",
        OutstandingMarkers,
        "to_write",
        _wrong_outcome,
    ),
    Mutant(
        "marker-before-decision",
        "markers are written before the decision is on disk",
        TransactionCoordinators,
        "_follow_up",
        _marker_before_decision,
    ),
    Mutant(
        "decision-answered-early",
        "EndTxn and InitProducerId are answered before what they decided is on disk",
        Coordinators,
        "_deliver_when_durable",
        _answered_early(TransactionCoordinators),
    ),
    Mutant(
        "complete-before-markers",
        "a transaction is complete before its markers are on disk",
        MarkerWriter,
        "write",
        _complete_before_markers,
    ),
    Mutant(
        "skip-prepared-at-load",
        "a coordinator that starts does not drive on what was decided before",
        TransactionShard,
        "loaded",
        _skip_prepared,
    ),
    Mutant(
        "time-out-forgotten-at-load",
        "transactions that were open when the broker stopped never time out",
        TransactionShard,
        "_entered",
        _forget_time_outs,
    ),
    Mutant(
        "two-phase-times-out",
        "a transaction in two phases is aborted by its time-out",
        Transaction,
        "deadline_ms",
        _two_phase_times_out,
    ),
    Mutant(
        "retry-is-always-well",
        "a repeated EndTxn is answered well whatever became of the transaction",
        decisions,
        "_end_v2",
        _retry_is_always_well,
    ),
    Mutant(
        "late-end-decides",
        "a late request of an earlier epoch decides the present transaction (KAFKA-17754)",
        decisions,
        "_identity_refusal",
        _late_end_decides,
    ),
    Mutant(
        "partition-forgotten",
        "the last partition that has joined a transaction is not ended with it, now and then",
        transitions,
        "prepare",
        _partition_forgotten,
    ),
    Mutant(
        "epoch-not-raised",
        "the end of a transaction does not raise the epoch now and then",
        transitions,
        "prepare",
        _epoch_not_raised,
    ),
    Mutant(
        "open-transaction-dropped",
        "a new instance forgets what the last one had open, instead of aborting it",
        decisions,
        "initialise",
        _not_fenced,
    ),
    Mutant(
        "marker-not-retried",
        "a marker that its log refused is not written again",
        MarkerSender,
        "_retry",
        _retry_markers_never,
    ),
    Mutant(
        "id-block-in-memory",
        "the block that producer ids come from is not written down",
        ProducerIds,
        "prefetch",
        _block_in_memory,
    ),
    Mutant(
        "commit-answered-early",
        "group coordinators answer before what they decided is on disk",
        Coordinators,
        "_deliver_when_durable",
        _answered_early(GroupCoordinators),
    ),
)
