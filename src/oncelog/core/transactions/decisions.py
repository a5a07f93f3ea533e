"""Decisions on requests for one transaction: Apache Kafka 4.3's checks in its order.

The rule: a function gets one transaction and one request and returns an outcome: a reply, transitions, both, or
neither. Without either the request waits until the transaction has completed and is decided again.
docs/internals/transactions.md explains epochs and retries.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, ProducerEpoch, ProducerId
from oncelog.base.transaction_verdicts import NEVER_TIMES_OUT
from oncelog.core.transactions import transitions
from oncelog.core.transactions.identity import Identity
from oncelog.core.transactions.model import (
    AddReply,
    AddRequest,
    EndReply,
    EndRequest,
    InitReply,
    InitRequest,
    NeedsProducerId,
    Reply,
    TransactionRequest,
    VerifyReply,
)
from oncelog.core.transactions.settings import TRANSACTIONS_V2, TransactionSettings
from oncelog.core.transactions.states import COMPLETED, PREPARED, TransactionState
from oncelog.core.transactions.transitions import EXHAUSTED, Transaction, is_exhausted

FENCED_SINCE_INIT_VERSION: Final = 4
FENCED_SINCE_ADD_VERSION: Final = 2
FENCED_SINCE_END_VERSION: Final = 2


def init_error(error_code: ErrorCode, version: int) -> ErrorCode:
    return _error_for_version(error_code, version, FENCED_SINCE_INIT_VERSION)


def add_error(error_code: ErrorCode, version: int) -> ErrorCode:
    """The error code for a version of AddPartitionsToTxn and AddOffsetsToTxn."""
    return _error_for_version(error_code, version, FENCED_SINCE_ADD_VERSION)


def end_error(error_code: ErrorCode, version: int) -> ErrorCode:
    return _error_for_version(error_code, version, FENCED_SINCE_END_VERSION)


def _error_for_version(error_code: ErrorCode, version: int, fenced_since: int) -> ErrorCode:
    # Older clients do not know PRODUCER_FENCED (KIP-588).
    if error_code is ErrorCode.PRODUCER_FENCED and version < fenced_since:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return error_code


class RequestOutcome(NamedTuple):
    """The reply (None: wait) and the transitions to make, in order."""

    reply: Reply | None
    transitions: tuple[Transaction, ...] = ()
    waits_for_pending: bool = False


MAX_ID_BYTES: Final = 2**15 - 1
"""The limit of a record's key; a request can have more."""
WAIT: Final = RequestOutcome(None)
NEEDS_PRODUCER_ID: Final = RequestOutcome(NeedsProducerId())


def decide(
    transaction: Transaction | None,
    request: TransactionRequest,
    settings: TransactionSettings,
    producer_id: ProducerId,
    now_ms: int,
) -> RequestOutcome:
    """Decide any request that may wait, with the new ``producer_id`` if there is one (−1: none)."""
    if isinstance(request, EndRequest):
        return end(transaction, request, producer_id, now_ms)
    if isinstance(request, AddRequest):
        return add_partitions(transaction, request, now_ms)
    return initialise(transaction, request, settings, producer_id, now_ms)


def initialise(
    transaction: Transaction | None,
    request: InitRequest,
    settings: TransactionSettings,
    producer_id: ProducerId,
    now_ms: int,
) -> RequestOutcome:
    """InitProducerId with a transactional id (KIP-98, KIP-360, KIP-939)."""
    refusal = _init_refusal(request, settings)
    if refusal is not ErrorCode.NONE:
        return RequestOutcome(InitReply(refusal))
    timeout_ms = NEVER_TIMES_OUT if request.enable_two_phase_commit else request.timeout_ms
    if transaction is None:
        if producer_id == NO_PRODUCER_ID:
            return NEEDS_PRODUCER_ID
        created = transitions.new(request.transactional_id, producer_id, now_ms)
        return _initialised(created, Identity(producer_id, ProducerEpoch(0)), NO_PRODUCER_EPOCH, timeout_ms, now_ms)
    # The markers still carry the present epoch; the new instance gets its own after them.
    if transaction.state in PREPARED:
        return WAIT
    if transaction.state is not TransactionState.ONGOING:
        return _raise_epoch(transaction, request.expected, timeout_ms, producer_id, now_ms)
    if request.keep_prepared:
        return _keep(transaction, request, producer_id, now_ms)
    if request.expected is not None and request.expected != transaction.client_identity:
        # Apache Kafka compares the producer id only, so that a zombie can abort its successor's transaction.
        return RequestOutcome(InitReply(ErrorCode.PRODUCER_FENCED))
    if _lacks_id(transaction, settings.transaction_version, producer_id):
        return NEEDS_PRODUCER_ID
    # The request is decided again after the abort: only then the new instance gets its epoch.
    return RequestOutcome(None, fence(transaction, settings, producer_id, now_ms))


def _init_refusal(request: InitRequest, settings: TransactionSettings) -> ErrorCode:
    if not 0 < len(request.transactional_id.encode()) <= MAX_ID_BYTES:
        return ErrorCode.INVALID_REQUEST
    if not settings.two_phase_commit_enable:
        if request.enable_two_phase_commit:
            return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        if request.keep_prepared:
            return ErrorCode.UNSUPPORTED_VERSION
    # Two-phase commit has no time-out to validate.
    if not request.enable_two_phase_commit and not 0 < request.timeout_ms <= settings.max_timeout_ms:
        return ErrorCode.INVALID_TRANSACTION_TIMEOUT
    return ErrorCode.NONE


def _initialised(
    transaction: Transaction, identity: Identity, last: ProducerEpoch, timeout_ms: int, now_ms: int
) -> RequestOutcome:
    following = transitions.initialise(transaction, identity, last, timeout_ms, now_ms)
    return RequestOutcome(InitReply(ErrorCode.NONE, identity), (following,))


def _raise_epoch(
    transaction: Transaction, expected: Identity | None, timeout_ms: int, producer_id: ProducerId, now_ms: int
) -> RequestOutcome:
    """InitProducerId without an open transaction: raise the epoch, or change the producer id if the epoch is
    exhausted."""
    current = transaction.identity
    if expected is not None and not _names(transaction, expected):
        return RequestOutcome(InitReply(ErrorCode.PRODUCER_FENCED))
    if expected is None or expected == current:
        # Without an expectation this is a new instance: no request of the last one may pass as a retry.
        last = NO_PRODUCER_EPOCH if expected is None else current.producer_epoch
        following = _raised(current, producer_id)
        if following is None:
            return NEEDS_PRODUCER_ID
        return _initialised(transaction, following, last, timeout_ms, now_ms)
    if expected.producer_epoch == transaction.last_epoch != NO_PRODUCER_EPOCH:
        # The last InitProducerId reply was lost. There is no other instance: it would have cleared the epoch.
        return _initialised(transaction, current, transaction.last_epoch, timeout_ms, now_ms)
    return RequestOutcome(InitReply(ErrorCode.PRODUCER_FENCED))


def _raised(current: Identity, producer_id: ProducerId) -> Identity | None:
    """None if ``current`` needs a new producer id that is not available."""
    if not is_exhausted(current.producer_epoch):
        return Identity(current.producer_id, ProducerEpoch(current.producer_epoch + 1))
    return None if producer_id == NO_PRODUCER_ID else Identity(producer_id, ProducerEpoch(0))


def _names(transaction: Transaction, expected: Identity) -> bool:
    """True if ``expected`` may own the transactional id: it has the current producer id, or the one before a rotation
    whose reply the client may have missed."""
    if expected.producer_id == transaction.identity.producer_id:
        return True
    return expected.producer_id == transaction.previous_producer_id and is_exhausted(expected.producer_epoch)


def _keep(transaction: Transaction, request: InitRequest, producer_id: ProducerId, now_ms: int) -> RequestOutcome:
    """InitProducerId of a new instance that will end an earlier one's prepared transaction (KIP-939)."""
    current, expected, ongoing = transaction.client_identity, request.expected, transaction.identity
    last = NO_PRODUCER_EPOCH
    if expected is not None:
        last = expected.producer_epoch
        # The epoch alone does not tell an exhausted producer id from the one before it.
        rotated = is_exhausted(last) and current.producer_epoch == 0 and expected.producer_id == ongoing.producer_id
        if last == transaction.last_epoch != NO_PRODUCER_EPOCH and (
            rotated or expected.producer_id == current.producer_id
        ):
            return RequestOutcome(InitReply(ErrorCode.NONE, current, ongoing), waits_for_pending=True)
        if expected != current:
            return RequestOutcome(InitReply(ErrorCode.PRODUCER_FENCED))
    # The transaction stays open, and each such call raises the next identity, so that only the latest instance can end
    # it.
    following = _raised(current, producer_id)
    if following is None:
        return NEEDS_PRODUCER_ID
    # The open transaction keeps its time-out: a shorter one could end it before the new instance does.
    timeout_ms = NEVER_TIMES_OUT if request.enable_two_phase_commit else transaction.timeout_ms
    kept = transitions.keep(transaction, following, last, timeout_ms, now_ms)
    return RequestOutcome(InitReply(ErrorCode.NONE, following, ongoing), (kept,))


def _lacks_id(transaction: Transaction, client_version: int, producer_id: ProducerId) -> bool:
    return producer_id == NO_PRODUCER_ID and transitions.needs_producer_id(transaction, client_version)


def fence(
    transaction: Transaction, settings: TransactionSettings, producer_id: ProducerId, now_ms: int
) -> tuple[Transaction, ...]:
    """The transitions that fence the client and abort its open transaction, with a new producer id if needed."""
    prepared = transitions.fence_and_prepare_abort(
        transaction,
        transaction_version=settings.transaction_version,
        new_producer_id=producer_id,
        now_ms=now_ms,
    )
    return _with_completion(prepared, now_ms)


def _with_completion(prepared: Transaction, now_ms: int) -> tuple[Transaction, ...]:
    """The completion follows at once if no marker is needed."""
    return (prepared,) if prepared.partitions else (prepared, transitions.complete(prepared, now_ms))


def add_partitions(transaction: Transaction | None, request: AddRequest, now_ms: int) -> RequestOutcome:
    """The first partitions begin the transaction."""
    if not request.transactional_id:
        return RequestOutcome(AddReply(ErrorCode.INVALID_REQUEST))
    if transaction is None:
        return RequestOutcome(AddReply(ErrorCode.INVALID_PRODUCER_ID_MAPPING))
    if transaction.state in PREPARED:
        return WAIT
    refusal = _identity_refusal(transaction, request.identity)
    if refusal is not ErrorCode.NONE:
        return RequestOutcome(AddReply(refusal))
    # A kept transaction is prepared: it can only be ended (KIP-939).
    if transaction.is_kept:
        return RequestOutcome(AddReply(ErrorCode.INVALID_TXN_STATE))
    present = frozenset(transaction.partitions)
    added = tuple(partition for partition in dict.fromkeys(request.partitions) if partition not in present)
    if transaction.state is TransactionState.ONGOING and not added:
        # The reply confirms partitions whose record may not be durable yet.
        return RequestOutcome(AddReply(ErrorCode.NONE), waits_for_pending=True)
    ongoing = transitions.add_partitions(transaction, added, request.client_version, now_ms)
    return RequestOutcome(AddReply(ErrorCode.NONE), (ongoing,))


def verify_partitions(transaction: Transaction | None, request: AddRequest) -> VerifyReply:
    """For a leader before it appends. Never waits."""
    if not request.transactional_id:
        return VerifyReply(ErrorCode.INVALID_REQUEST)
    if transaction is None:
        return VerifyReply(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if transaction.is_kept and request.identity == transaction.client_identity:
        # The new instance may only end a kept transaction, not write in it.
        present = frozenset[object]()
    else:
        if request.identity.producer_id != transaction.identity.producer_id:
            return VerifyReply(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        if request.identity.producer_epoch != transaction.identity.producer_epoch or transaction.is_kept:
            return VerifyReply(ErrorCode.PRODUCER_FENCED)
        present = frozenset(transaction.partitions)
    # No need to wait: the leader rejects a late write, and a client with a next transaction adds its partitions first.
    if transaction.state in PREPARED:
        return VerifyReply(ErrorCode.CONCURRENT_TRANSACTIONS)
    return VerifyReply(
        ErrorCode.NONE,
        {p: ErrorCode.NONE if p in present else ErrorCode.TRANSACTION_ABORTABLE for p in request.partitions},
    )


def _identity_refusal(transaction: Transaction, identity: Identity) -> ErrorCode:
    current = transaction.client_identity
    if identity.producer_id != current.producer_id:
        # A kept transaction has the id of the replaced instance.
        replaced = transaction.is_kept and identity.producer_id == transaction.identity.producer_id
        return ErrorCode.PRODUCER_FENCED if replaced else ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if identity.producer_epoch != current.producer_epoch or identity.producer_epoch > EXHAUSTED:
        return ErrorCode.PRODUCER_FENCED
    return ErrorCode.NONE


def end(transaction: Transaction | None, request: EndRequest, producer_id: ProducerId, now_ms: int) -> RequestOutcome:
    """The reply follows once the decision is in the log; the markers come later."""
    if not request.transactional_id:
        return RequestOutcome(EndReply(ErrorCode.INVALID_REQUEST))
    if transaction is None:
        return RequestOutcome(EndReply(ErrorCode.INVALID_PRODUCER_ID_MAPPING))
    if request.client_version < TRANSACTIONS_V2:
        return _end_before_v2(transaction, request, now_ms)
    return _end_v2(transaction, request, producer_id, now_ms)


def _end_before_v2(transaction: Transaction, request: EndRequest, now_ms: int) -> RequestOutcome:
    """EndTxn 0–4: the epoch stays, so only the state tells a retry from a new request."""
    refusal = _identity_refusal(transaction, request.identity)
    if refusal is not ErrorCode.NONE:
        return RequestOutcome(EndReply(refusal))
    if transaction.state in PREPARED:
        return WAIT
    if transaction.state is TransactionState.ONGOING:
        return _prepare(transaction, request, NO_PRODUCER_ID, now_ms)
    if transaction.state is _completed(committed=request.committed):
        return RequestOutcome(EndReply(ErrorCode.NONE, transaction.identity), waits_for_pending=True)
    return RequestOutcome(EndReply(ErrorCode.INVALID_TXN_STATE))


def _end_v2(transaction: Transaction, request: EndRequest, producer_id: ProducerId, now_ms: int) -> RequestOutcome:
    """EndTxn 5: the epoch tells this transaction from the last, which makes the request a retry."""
    if transaction.state in PREPARED:
        return WAIT
    if transaction.state in COMPLETED and _is_retry(transaction, request.identity):
        if transaction.state is _completed(committed=request.committed):
            return RequestOutcome(EndReply(ErrorCode.NONE, transaction.identity), waits_for_pending=True)
        # A commit lost to an abort, mostly the coordinator's own after the time-out: the producer has only to start
        # again, while clients give up at INVALID_TXN_STATE (KAFKA-20785).
        return RequestOutcome(EndReply(ErrorCode.PRODUCER_FENCED if request.committed else ErrorCode.INVALID_TXN_STATE))
    refusal = _identity_refusal(transaction, request.identity)
    if refusal is ErrorCode.INVALID_PRODUCER_ID_MAPPING and _is_retry(transaction, request.identity):
        refusal = ErrorCode.PRODUCER_FENCED
    if refusal is not ErrorCode.NONE:
        return RequestOutcome(EndReply(refusal))
    if transaction.state is not TransactionState.ONGOING and request.committed:
        return RequestOutcome(EndReply(ErrorCode.INVALID_TXN_STATE))
    # An abort without a transaction is legal: the client may not know whether its partitions were added. The epoch
    # still rises, so that none of its batches in flight is accepted.
    return _prepare(transaction, request, producer_id, now_ms)


def _is_retry(transaction: Transaction, identity: Identity) -> bool:
    """True if the identity is the one before the last end: one epoch lower, or exhausted before a rotation."""
    current = transaction.identity
    if identity.producer_id == current.producer_id:
        # A fence before V2 may have left the epoch reserved for fencing.
        return identity.producer_epoch + 1 == current.producer_epoch <= EXHAUSTED
    return (
        identity.producer_id == transaction.previous_producer_id
        and identity.producer_epoch == EXHAUSTED
        and current.producer_epoch == 0
    )


def _completed(*, committed: bool) -> TransactionState:
    return TransactionState.COMPLETE_COMMIT if committed else TransactionState.COMPLETE_ABORT


def _prepare(transaction: Transaction, request: EndRequest, producer_id: ProducerId, now_ms: int) -> RequestOutcome:
    if _lacks_id(transaction, request.client_version, producer_id):
        return NEEDS_PRODUCER_ID
    prepared = transitions.prepare(
        transaction,
        committed=request.committed,
        client_version=request.client_version,
        new_producer_id=producer_id,
        now_ms=now_ms,
    )
    identity = transitions.identity_after(prepared)
    return RequestOutcome(EndReply(ErrorCode.NONE, identity), _with_completion(prepared, now_ms))
