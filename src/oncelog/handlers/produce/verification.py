"""Verification before a transactional append: the partition has to be part of the transaction (KIP-890).

Without it a late batch could open a transaction that never ends. The coordinator is asked whether a V1 client has added
the partition. From Produce 12 on (V2) the produce itself adds it, and waits until that is durable.

A coordinator on this broker nearly always knows the partition durably, and nothing is waited for. The partition's log
has a guard against the race with an abort (``core.producers.verification``): a marker written since the question voids
the answer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, cast

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import TopicPartition, TransactionalId
from oncelog.core.transactions.identity import Identity
from oncelog.core.transactions.model import AddReply, AddRequest, VerifyReply
from oncelog.core.transactions.settings import TRANSACTIONS_V2
from oncelog.handlers.broker.context import Context, CoordinatorRefusal
from oncelog.handlers.broker.waits import AddToTransaction, Steps
from oncelog.handlers.produce.partition_append import PartitionAppend

if TYPE_CHECKING:
    from oncelog.core.producers.verification import Guard
    from oncelog.storage.log.partition_log import PartitionLog

KNOWS_TRANSACTION_ABORTABLE: Final = 11
ADDS_PARTITIONS: Final = 12

_RETRIABLE: Final = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NETWORK_EXCEPTION,
    }
)
"""Answered as NOT_ENOUGH_REPLICAS, which older clients retry without a metadata request."""


def verifies(context: Context) -> bool:
    """False if V1 transactions may begin on partitions without verification."""
    is_on = context.version >= ADDS_PARTITIONS or context.cluster.config.get(
        "transaction.partition.verification.enable"
    )
    return bool(is_on)


class Verification:
    """One request to the coordinator about partitions, with the guards under which its answer counts."""

    def __init__(self, transactional_id: str, identity: Identity, appends: Sequence[PartitionAppend]) -> None:
        self._transactional_id = TransactionalId(transactional_id)
        self._identity = identity
        self._appends = appends
        self._guarded: dict[TopicPartition, tuple[PartitionLog, Guard]] = {}

    def begin(self) -> None:
        """Set a guard in each log."""
        for append in self._appends:
            if append.leader is not None and append.partition not in self._guarded:
                log = append.leader.log
                self._guarded[append.partition] = log, log.producers.verifications.begin(self._identity.producer_id)
            if append.partition in self._guarded:
                append.guard = self._guarded[append.partition][1]

    def end(self) -> None:
        for log, guard in self._guarded.values():
            log.producers.verifications.end(guard)

    def is_overtaken(self) -> bool:
        """True if a marker was written while partitions were being added."""
        if any(append.unverified is not ErrorCode.NONE for append in self._appends):
            return False
        # EndTxn is answered before its markers are written: the marker ended the previous transaction, for which the
        # addition waited, or this one, and then the coordinator says so when asked again.
        return any(
            not log.producers.verifications.is_current(guard)
            and not log.producers.has_open_transaction(self._identity.producer_id)
            for log, guard in self._guarded.values()
        )

    def ask(self, context: Context) -> Steps[None]:
        """Ask the coordinator, and mark the appends that it does not confirm."""
        if not verifies(context):
            return
        adds = context.version >= ADDS_PARTITIONS
        for _, guard in self._guarded.values():
            guard.begins_at_zero = adds
        partitions = list(dict.fromkeys(append.partition for append in self._appends))
        version = TRANSACTIONS_V2 if adds else 0
        request = AddRequest(self._transactional_id, self._identity, partitions, version, verify_only=not adds)
        # Known durably on this broker: no message is needed.
        if not adds and context.transactions.take_part(request):
            return
        reply = yield from _ask(request)
        if reply.error_code is ErrorCode.NONE:
            refused = _refused(request, reply, context)
        else:
            refused = dict.fromkeys(partitions, error_for_version(reply.error_code, context.version))
        for append in self._appends:
            append.unverified = refused.get(append.partition, ErrorCode.NONE)
        if refused:
            context.transactions.verification_failed(len(refused))


def _ask(request: AddRequest) -> Steps[AddReply | VerifyReply]:
    try:
        # If a crash undid the addition, the append would leave a transaction open for ever.
        reply: AddReply | VerifyReply = yield AddToTransaction(request)
    except CoordinatorRefusal as refusal:
        return AddReply(refusal.error_code)
    return reply


def _refused(
    request: AddRequest, reply: AddReply | VerifyReply, context: Context
) -> Mapping[TopicPartition, ErrorCode]:
    # A coordinator here is asked again, which gives the client a better error. Another broker's answer may be outdated:
    # the guards in the logs cover that.
    shard = context.transactions.shard_of(request.transactional_id)
    if shard is not None:
        reply = cast("VerifyReply", shard.verify_partitions(request).reply)
        if reply.error_code is not ErrorCode.NONE:
            return dict.fromkeys(request.partitions, error_for_version(reply.error_code, context.version))
    outcomes = reply.partitions.items() if isinstance(reply, VerifyReply) else ()
    return {p: error_for_version(error, context.version) for p, error in outcomes if error is not ErrorCode.NONE}


def error_for_version(error_code: ErrorCode, version: int) -> ErrorCode:
    if error_code in _RETRIABLE:
        return ErrorCode.NOT_ENOUGH_REPLICAS
    if error_code is ErrorCode.CONCURRENT_TRANSACTIONS and version < ADDS_PARTITIONS:
        return ErrorCode.NOT_ENOUGH_REPLICAS
    if error_code is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if error_code in (ErrorCode.INVALID_TXN_STATE, ErrorCode.TRANSACTION_ABORTABLE):
        return abortable(version)
    return error_code


def abortable(version: int) -> ErrorCode:
    """The error of a transaction that must be aborted, as the version knows it."""
    knows_error = version >= KNOWS_TRANSACTION_ABORTABLE
    return ErrorCode.TRANSACTION_ABORTABLE if knows_error else ErrorCode.INVALID_TXN_STATE
