"""Decides a transactional producer's next request to its coordinators, and applies the responses.

The states and verdicts are tables of ``transaction_states``; records and sequences are the ``ProducerMachine``'s.

1. One request at a time. It stays the next until it was answered for good: every one of them may be repeated.
2. With transaction version 1 a partition is announced (AddPartitionsToTxn) before a batch for it is sent, and a group
   (AddOffsetsToTxn) before its offsets. With version 2 (KIP-890) Produce 12 and TxnOffsetCommit 5 do it themselves.
3. A sequence that was used up and is not in the log makes a hole that the next batch would fall into: the epoch is
   raised (InitProducerId with the present id and epoch, KIP-360), which version 2 does at each end anyway.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import TopicPartition
from oncelog.base.invariant import invariant
from oncelog.client.errors import (
    BrokerRefused,
    ClientError,
    OutOfTurn,
    ProducerFenced,
    ProducerUnusable,
    TransactionFailed,
    UnsupportedRequest,
)
from oncelog.client.machine.offsets import Committed, GroupMetadata
from oncelog.client.machine.transaction_requests import (
    CoordinatorRequest,
    Identity,
    add_offsets_request,
    add_partitions_request,
    commit_offsets_request,
    end_request,
    error_of,
    init_request,
    refused_partitions,
    without_errors,
)
from oncelog.client.machine.transaction_states import FENCED, NEXT, State, Step, Verdict, produce_verdict, verdict
from oncelog.client.machine.transaction_values import Ended, StoredTransaction, TransactionSettings
from oncelog.wire.messages.end_txn import EndTxnResponse
from oncelog.wire.messages.init_producer_id import InitProducerIdResponse
from oncelog.wire.messages.txn_offset_commit import TxnOffsetCommitResponse

TRANSACTION_FEATURE: Final = "transaction.version"
LAST_PRODUCE_VERSION_1: Final = 11
"""Produce 12 adds its partitions to the transaction by itself, which only transaction version 2 has."""


@dataclass(slots=True, eq=False)
class _Pending:
    step: Step
    build: Callable[[], CoordinatorRequest]
    partitions: tuple[TopicPartition, ...] = ()
    sent: bool = False
    done: Callable[[Any], None] = lambda response: None


_HINTS: Final = {
    State.UNINITIALIZED: "; call initialize() first",
    State.READY: "; begin() or transaction() begins a transaction",
    State.IN_TRANSACTION: "; commit() or abort() ends it",
    State.PREPARED: "; complete() ends it",
}


class TransactionMachine:
    """The state machine of one producer: after each operation send ``next_request`` until it is None."""

    def __init__(self, settings: TransactionSettings) -> None:
        self.settings = settings
        self.state = State.UNINITIALIZED
        self.producer_id = -1
        self.producer_epoch = -1
        self.version = 0
        """The version of the current transaction; 0 and 1 are the same to a client."""
        self.prepared: StoredTransaction | None = None
        self.last_error: BrokerRefused | None = None
        self.refused_partitions: dict[TopicPartition, int] = {}
        """Partitions that the coordinator refused to add to the current transaction, with error codes."""
        self._version_seen = 0
        self._can_bump = True
        self._bump_required = False
        self._forgotten = False
        self._started = False
        self._partitions: set[TopicPartition] = set()
        self._groups: set[str] = set()
        self._steps: deque[_Pending] = deque()

    def initialize(self, *, keep_prepared: bool = False) -> None:
        """Obtain a producer id, fencing older instances; their open transaction is aborted unless it is kept."""
        if self.state is State.INITIALIZING:
            return
        self._to(State.INITIALIZING, "initialize")
        self._push_init(keep_prepared)

    def begin(self) -> None:
        """Begin a transaction; the brokers learn of it with its first partition."""
        self._to(State.IN_TRANSACTION, "begin a transaction")
        self.last_error = None
        self.refused_partitions = {}

    def require_open(self, subject: str) -> None:
        """Raise unless a transaction is open: OutOfTurn, TransactionFailed, ProducerUnusable."""
        if self.state is not State.IN_TRANSACTION:
            raise self._refusal(subject)

    def register(self, partitions: Iterable[TopicPartition]) -> None:
        """Add ``partitions`` before their batches are sent; allowed once ``next_request`` is None and the state is
        open."""
        self.require_open("send records")
        new = tuple(sorted(set(partitions) - self._partitions))
        if not new:
            return
        if self.version >= 2:
            self._started = True
            self._partitions.update(new)
            return

        def done(response: object) -> None:
            self._started = True
            self._partitions.update(new)

        self._steps.append(
            _Pending(Step.ADD_PARTITIONS, lambda: add_partitions_request(self._identity, new), new, done=done)
        )

    def add_offsets(self, offsets: Mapping[TopicPartition, Committed], group: GroupMetadata) -> None:
        """Commit offsets with the transaction (KIP-447)."""
        self.require_open("commit offsets")
        if not offsets:
            return
        if self.version < 2 and group.group not in self._groups:

            def done(response: object) -> None:
                self._started = True
                self._groups.add(group.group)

            self._steps.append(
                _Pending(Step.ADD_OFFSETS, lambda: add_offsets_request(self._identity, group.group), done=done)
            )
        left = dict(offsets)

        def committed(response: TxnOffsetCommitResponse) -> None:
            for topic in response.topics:
                for partition in topic.partitions:
                    left.pop(TopicPartition(topic.name, partition.partition_index), None)  # type: ignore[arg-type]  # a name

        self._steps.append(_Pending(Step.COMMIT_OFFSETS, lambda: self._commit_offsets(left, group), done=committed))

    def commit(self) -> None:
        """Commit flushed records. May be repeated after a lost response."""
        if self.state is State.COMMITTING:
            return
        invariant(not self._steps or self.state is not State.IN_TRANSACTION, "a commit before its requests are done")
        self._to(State.COMMITTING, "commit")
        self._push_end(committed=True)

    def abort(self) -> None:
        """Abort the transaction. May be repeated after a lost response."""
        if self.state is State.ABORTING:
            return
        self._to(State.ABORTING, "abort")
        # An announcement that was sent may have begun the transaction.
        self._steps = deque(step for step in self._steps if step.sent and self.version < 2 and _announces(step))
        self._push_end(committed=False)

    def prepare(self) -> StoredTransaction:
        """Prepare the transaction for a decision made elsewhere. Every record has to be flushed."""
        if not self.settings.two_phase:
            raise OutOfTurn("prepare: the producer was not made for two-phase commit")
        invariant(not self._steps or self.state is not State.IN_TRANSACTION, "prepared before its requests are done")
        self._to(State.PREPARED, "prepare")
        self.prepared = StoredTransaction(self.settings.transactional_id, self.producer_id, self.producer_epoch)
        return self.prepared

    def complete(self, stored: StoredTransaction | None) -> Ended:
        """End a prepared transaction: commit it if it equals ``stored``, else abort it (None: nothing was decided)."""
        if self.state is State.READY and self.prepared is None:
            return Ended.NOTHING_PREPARED
        if self.prepared is None or self.state not in (State.PREPARED, State.COMMITTING, State.ABORTING):
            raise self._refusal("complete a prepared transaction")
        # Id and epoch identify the decided transaction (KIP-939).
        if stored == self.prepared:
            self.commit()
            return Ended.COMMITTED
        self.abort()
        return Ended.ABORTED

    def observe(self, features: Mapping[str, int], *, can_bump: bool) -> None:
        """Apply a coordinator's ApiVersions: finalized features, and whether it has InitProducerId 3."""
        self._version_seen = features.get(TRANSACTION_FEATURE, 0)
        self._can_bump = can_bump

    def batch_failed(self, code: int, message: str | None, subject: str = "records of the transaction") -> None:
        """Records were given up: the transaction can no longer be committed."""
        if self.state is not State.IN_TRANSACTION:
            return
        self._bump_required = True
        # Without InitProducerId 3 the epoch cannot be raised.
        if produce_verdict(code) is Verdict.FATAL or (self.version < 2 and not self._can_bump):
            self._fatal(code, message, subject)
        else:
            self._abortable(code, message, subject)

    def sequences_lost(self) -> None:
        """Batches with a sequence were dropped: the epoch has to rise before the next one."""
        self._bump_required = True

    @property
    def produce_version_limit(self) -> int | None:
        """The highest version of Produce for the present transaction; None for any."""
        return None if self.version >= 2 else LAST_PRODUCE_VERSION_1

    @property
    def is_first(self) -> bool:
        """True if the next batch begins the transaction at its leader, without asking the coordinator first."""
        return self.version >= 2 and self.state is State.IN_TRANSACTION and not self._started

    @property
    def has_request(self) -> bool:
        return bool(self._steps)

    def next_request(self) -> CoordinatorRequest | None:
        """The request to send to a coordinator now, or None."""
        if not self._steps:
            return None
        self._steps[0].sent = True
        return self._steps[0].build()

    def answered(self, response: Any) -> Verdict:
        """Apply the response to ``next_request``. After RETRY and FIND_COORDINATOR the same request is due again."""
        pending = self._steps[0]
        code = error_of(response)
        outcome = verdict(pending.step, code)
        if outcome is Verdict.DONE:
            self._steps.popleft()
            pending.done(response)
            return outcome
        if outcome in (Verdict.RETRY, Verdict.FIND_COORDINATOR):
            if pending.step is Step.COMMIT_OFFSETS:
                pending.done(without_errors(response))
            return outcome
        if outcome is Verdict.ABORT_AND_BUMP:
            self._bump_required = True
            self._forgotten |= code == ErrorCode.INVALID_PRODUCER_ID_MAPPING
            outcome = Verdict.ABORT if self._can_bump else Verdict.FATAL
        if outcome is Verdict.ABORT and self.state is State.ABORTING and pending.step is not Step.END:
            self._steps.popleft()
            if not self._started and not any(map(_announces, self._steps)):
                self._ended()
            return outcome
        self._steps.clear()
        if pending.step is Step.ADD_PARTITIONS:
            self.refused_partitions = refused_partitions(response)
        if outcome is Verdict.FATAL:
            self._fatal(code, None, pending.step.value)
        else:
            self._abortable(code, None, pending.step.value)
        return outcome

    @property
    def is_open(self) -> bool:
        """True if there is a transaction that could be aborted."""
        return self.state in (State.IN_TRANSACTION, State.ABORTABLE_ERROR)

    def refused_by(self, error: ClientError) -> None:
        """A request failed for good. If it cannot be sent at all (no coordinator, or no version fits), the state
        becomes an error."""
        if isinstance(error, BrokerRefused):
            self._refused(error.code, str(error))
        elif isinstance(error, UnsupportedRequest):
            self._refused(int(ErrorCode.UNSUPPORTED_VERSION), str(error))

    def _refused(self, code: int, detail: str) -> None:
        subject = self._steps[0].step.value
        self._steps.clear()
        if code == ErrorCode.GROUP_AUTHORIZATION_FAILED and self.state is State.IN_TRANSACTION:
            self._abortable(code, detail, subject)
        else:
            self._fatal(code, detail, subject)

    def raise_failure(self, subject: str) -> None:
        """Raise TransactionFailed or ProducerUnusable in an error state."""
        if self.state in (State.ABORTABLE_ERROR, State.FATAL_ERROR):
            raise self._refusal(subject)

    @property
    def _identity(self) -> Identity:
        return Identity(self.settings.transactional_id, self.producer_id, self.producer_epoch)

    def _to(self, state: State, subject: str) -> None:
        if state not in NEXT[self.state]:
            raise self._refusal(subject)
        self.state = state

    def _refusal(self, subject: str) -> Exception:
        error = self.last_error
        if self.state in (State.ABORTABLE_ERROR, State.FATAL_ERROR) and error is not None:
            return type(error)(error.code, error.subject, error.detail)
        hint = _HINTS.get(self.state, "")
        return OutOfTurn(f"{subject}: the producer {self.settings.transactional_id!r} is {self.state.value}{hint}")

    def _abortable(self, code: int, detail: str | None, subject: str) -> None:
        self._to(State.ABORTABLE_ERROR, subject)
        self.last_error = TransactionFailed(code, subject, detail)

    def _fatal(self, code: int, detail: str | None, subject: str) -> None:
        self._to(State.FATAL_ERROR, subject)
        self._steps.clear()
        fenced = code in FENCED
        reported_code = ErrorCode.PRODUCER_FENCED if fenced else code
        self.last_error = (ProducerFenced if fenced else ProducerUnusable)(reported_code, subject, detail)

    def _push_init(self, keep_prepared: bool = False) -> None:
        present = self._identity if self.producer_id >= 0 else None

        def done(response: InitProducerIdResponse) -> None:
            self.producer_id, self.producer_epoch = response.producer_id, response.producer_epoch
            self._over()
            # A new instance ends the transaction with the id and epoch that are now its own, but only the stored ones
            # tell whether it is the one that was decided (KIP-939).
            if keep_prepared and response.ongoing_txn_producer_id >= 0:
                name = self.settings.transactional_id
                self.prepared = StoredTransaction(
                    name, response.ongoing_txn_producer_id, response.ongoing_txn_producer_epoch
                )
                self._started = True
                self.state = State.PREPARED
            else:
                self.state = State.READY

        self._steps.append(_Pending(Step.INIT, lambda: init_request(self.settings, present, keep_prepared), done=done))

    def _push_end(self, *, committed: bool) -> None:
        # EndTxn is not sent for a transaction that the coordinator cannot know of. With version 2 a doubt is enough to
        # abort.
        announced = bool(self._steps)
        if (self._started or announced) and not self._forgotten:

            def ended(response: EndTxnResponse) -> None:
                # KIP-890: EndTxn 5 returns the next epoch.
                if self.version >= 2 and response.producer_id >= 0:
                    self.producer_id, self.producer_epoch = response.producer_id, response.producer_epoch
                    self._bump_required = False
                self._ended()

            self._steps.append(
                _Pending(Step.END, lambda: end_request(self._identity, committed, self.version), done=ended)
            )
        else:
            self._ended()

    def _commit_offsets(self, offsets: Mapping[TopicPartition, Committed], group: GroupMetadata) -> CoordinatorRequest:
        if self.version >= 2:
            self._started = True
        return commit_offsets_request(self._identity, offsets, group, self.version)

    def _ended(self) -> None:
        """Leave the transaction after the coordinator's decision; the epoch is raised first if necessary."""
        self._steps.clear()
        self._started = False
        if self._bump_required or self.producer_id < 0 or self._version_seen != self.version:
            self.state = State.INITIALIZING
            self._push_init()
        else:
            self._over()
            self.state = State.READY

    def _over(self) -> None:
        # The cluster's finalized ``transaction.version`` is taken when a transaction is over; where it changed, the
        # epoch was raised first.
        self.version = self._version_seen
        self._bump_required = self._forgotten = self._started = False
        self.prepared = None
        self._partitions.clear()
        self._groups.clear()


def _announces(pending: _Pending) -> bool:
    return pending.step in (Step.ADD_PARTITIONS, Step.ADD_OFFSETS)
