"""Verification before a transactional append: the partition has to be part of the transaction (KIP-890).

Without this a late batch could open a transaction that nobody ends. Clients of Transactions V1 have added the partition
beforehand, and the coordinator is asked whether they did. From Produce 12 on (V2) the produce itself adds it, and waits
until that is durable.

Where the coordinator is this broker and knows of the partition durably, as it nearly always does by then, nothing is
waited for. Otherwise it is asked. Against the race of its answer with an
abort a partition's log has a guard (``core.producers.verification``): a marker that was
written since the coordinator was asked makes its answer worthless, wherever the coordinator is. Where it is this broker
its word is also taken anew with the append, which tells the client more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, cast

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import TopicPartition, TransactionalId
from oncelog.core.transactions.model import AddReply, AddRequest, Identity, VerifyReply
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
"""Answered as NOT_ENOUGH_REPLICAS: older clients retry that without asking for metadata."""


def unopened(appends: Sequence[PartitionAppend]) -> dict[TopicPartition, Identity]:
    """Partitions with transactional records whose leader does not know their transaction yet, with their producers."""
    found: dict[TopicPartition, Identity] = {}
    for append in appends:
        identity = append.identity()
        if append.leader is not None and identity is not None and not _is_open(append.leader.log, identity):
            found[append.partition] = identity
    return found


def _is_open(log: PartitionLog, identity: Identity) -> bool:
    entry = log.producers.entries.get(identity.producer_id)
    return entry is not None and entry.transaction_first_offset is not None and entry.epoch == identity.producer_epoch


def verifies(context: Context) -> bool:
    """True unless partitions may begin transactions of V1 without the coordinator's word."""
    is_on = context.version >= ADDS_PARTITIONS or context.cluster.config.get(
        "transaction.partition.verification.enable"
    )
    return bool(is_on)


class Verification:
    """One question to the coordinator about partitions, and the guards under which its answer counts."""

    def __init__(self, transactional_id: str, identity: Identity, appends: Sequence[PartitionAppend]) -> None:
        self._transactional_id = TransactionalId(transactional_id)
        self._identity = identity
        self._appends = appends
        self._guarded: dict[TopicPartition, tuple[PartitionLog, Guard]] = {}

    def begin(self) -> None:
        """Set a guard in each log, before the coordinator is asked."""
        for append in self._appends:
            if append.leader is not None and append.partition not in self._guarded:
                log = append.leader.log
                self._guarded[append.partition] = log, log.producers.verifications.begin(self._identity.producer_id)
            if append.partition in self._guarded:
                append.guard = self._guarded[append.partition][1]

    def end(self) -> None:
        """Take the guards away."""
        for log, guard in self._guarded.values():
            log.producers.verifications.end(guard)

    def is_overtaken(self) -> bool:
        """True if a marker was written while partitions were being added. They have waited for it, if it ended the
        transaction before: EndTxn is answered before its markers are written. Or it has ended theirs, and the
        coordinator, asked anew, will say so."""
        if any(append.unverified is not ErrorCode.NONE for append in self._appends):
            return False
        return any(
            not log.producers.verifications.is_current(guard)
            and not log.producers.has_open_transaction(self._identity.producer_id)
            for log, guard in self._guarded.values()
        )

    def ask(self, context: Context) -> Steps[None]:
        """Ask the coordinator; what it does not take as part of the transaction is noted at its append."""
        if not verifies(context):
            return
        adds = context.version >= ADDS_PARTITIONS
        partitions = list(dict.fromkeys(append.partition for append in self._appends))
        version = TRANSACTIONS_V2 if adds else 0
        request = AddRequest(self._transactional_id, self._identity, partitions, version, verify_only=not adds)
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
    """Add the partitions, or see that they were added; durably, or a crash could leave a transaction nobody ends."""
    try:
        reply: AddReply | VerifyReply = yield AddToTransaction(request)
    except CoordinatorRefusal as refusal:
        return AddReply(refusal.error_code)
    return reply


def _refused(
    request: AddRequest, reply: AddReply | VerifyReply, context: Context
) -> Mapping[TopicPartition, ErrorCode]:
    """The partitions that do not take part. A coordinator here is asked anew; another broker's may have added or
    verified what has ended since, against which the guards in the logs are."""
    shard = context.transactions.shard_of(request.transactional_id)
    if shard is not None:
        reply = cast("VerifyReply", shard.verify_partitions(request).reply)
        if reply.error_code is not ErrorCode.NONE:
            return dict.fromkeys(request.partitions, error_for_version(reply.error_code, context.version))
    outcomes = reply.partitions.items() if isinstance(reply, VerifyReply) else ()
    return {p: error_for_version(error, context.version) for p, error in outcomes if error is not ErrorCode.NONE}


def error_for_version(error_code: ErrorCode, version: int) -> ErrorCode:
    """The error as a producer of that version knows it."""
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
    """The transaction cannot go on, in the words that the version knows."""
    known = version >= KNOWS_TRANSACTION_ABORTABLE
    return ErrorCode.TRANSACTION_ABORTABLE if known else ErrorCode.INVALID_TXN_STATE
