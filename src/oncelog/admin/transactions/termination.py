"""Ends the open transaction of an id through its coordinator, which aborts it on all partitions at once (KIP-939).

The request is that of a new instance of the producer: InitProducerId, with a newer epoch and without keeping a prepared
transaction. It needs no verdict: the coordinator cannot end what it has forgotten. But a live producer is fenced and
has to restart, and a transaction prepared for two-phase commit is aborted even if the outside system has decided to
commit it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from oncelog.admin.transactions.audit_trail import Audit, entry_of, no_audit
from oncelog.admin.transactions.partition_offsets import Bounds, bounds_of
from oncelog.admin.transactions.transactional_ids import TransactionRow, describe_transaction
from oncelog.base.errors import ErrorCode
from oncelog.base.ids import TopicPartition
from oncelog.base.notation.shell_words import argument
from oncelog.base.units import MINUTE_MS, SECOND_MS
from oncelog.client.errors import BrokerRefused, ClientError
from oncelog.client.programs import TRANSACTION_KEY, Cluster, Program, operation
from oncelog.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

FENCES: Final = "its producer, if it is alive, is fenced and has to be started again"
UNDECIDES: Final = "it takes part in two-phase commit, and is aborted even if it was decided outside to commit it"
TIMEOUT_MS: Final = 30 * SECOND_MS
_FALLBACK_TIMEOUT_MS: Final = MINUTE_MS


@dataclass(frozen=True, slots=True)
class Terminated:
    """An id before and after, with the ``bounds`` of its transaction's partitions. ``done`` is False if none was
    open."""

    before: TransactionRow
    after: TransactionRow
    done: bool
    bounds: dict[TopicPartition, Bounds]


def warning_of(row: TransactionRow) -> str:
    """The consequences of ending the transaction, as a warning."""
    return f"{FENCES}; {UNDECIDES}" if row.is_two_phase else FENCES


@operation
def force_terminate(
    cluster: Cluster, transactional_id: str, *, audit: Audit = no_audit, timeout_ms: int = TIMEOUT_MS
) -> Program[Terminated]:
    """Have the coordinator abort the id's open transaction, if any, and wait until its markers are written.

    Raises BrokerRefused (TRANSACTIONAL_ID_NOT_FOUND, not allowed, …) and ClientError if the markers are not written in
    time.
    """
    before = yield from describe_transaction(cluster, transactional_id)
    # InitProducerId would fence a live producer for nothing.
    if not before.is_open:
        return Terminated(before, before, False, {})
    details = {
        "cluster": cluster.view.cluster_id,
        "transactional_id": transactional_id,
        "producer_id": before.producer_id,
        "producer_epoch": before.producer_epoch,
        "state": before.state,
        "two_phase": before.is_two_phase,
        "partitions": sorted(map(str, before.partitions)),
    }
    audit(entry_of("force-terminate", "sending", **details))
    try:
        after = yield from _terminated(cluster, before, cluster.now_ms() + timeout_ms)
    except ClientError as error:
        audit(entry_of("force-terminate", "failed", **details, error=str(error)))
        raise
    audit(entry_of("force-terminate", "terminated", **details, state_after=after.state))
    yield from cluster.metadata({partition.topic for partition in before.partitions})
    bounds, _ = yield from bounds_of(cluster, sorted(before.partitions))
    return Terminated(before, after, True, bounds)


@dataclass(frozen=True, slots=True)
class Fenced:
    """The present identity of an id; producers with an earlier one are refused."""

    transactional_id: str
    producer_id: int
    producer_epoch: int


@operation
def fence_producers(cluster: Cluster, transactional_ids: Iterable[str]) -> Program[list[Fenced]]:
    """Fence the producers of ids, and abort their open transactions. Unknown ids are created. Raises BrokerRefused."""
    fenced = []
    for name in dict.fromkeys(transactional_ids):
        deadline, response = cluster.now_ms() + TIMEOUT_MS, None
        for attempt in range(1 << 30):
            response = yield from _initialize(cluster, name, _FALLBACK_TIMEOUT_MS)
            if response is not None or cluster.now_ms() >= deadline:
                break
            yield from cluster.pause(attempt)
        if response is None:
            raise BrokerRefused(ErrorCode.CONCURRENT_TRANSACTIONS, f"transactional id {name!r}")
        fenced.append(Fenced(name, response.producer_id, response.producer_epoch))
    return fenced


def _terminated(cluster: Cluster, before: TransactionRow, deadline: int) -> Program[TransactionRow]:
    """Request new epochs until nothing is open. A coordinator still at it answers CONCURRENT_TRANSACTIONS."""
    name = before.transactional_id
    # The request needs a time-out; two-phase commit has none of its own.
    own_ms = _FALLBACK_TIMEOUT_MS if before.is_two_phase or before.timeout_ms <= 0 else before.timeout_ms
    initialized = False
    for attempt in range(1 << 30):
        if not initialized:
            initialized = (yield from _initialize(cluster, name, own_ms)) is not None
        row = yield from describe_transaction(cluster, name)
        if initialized and not row.is_open:
            return row
        if cluster.now_ms() >= deadline:
            raise ClientError(
                f"transactional id {name!r} is {row.state} and its markers are not written yet; "
                f"`oncelog txn describe {argument(name)}` shows where it stands"
            )
        yield from cluster.pause(attempt)
    raise AssertionError("unreachable")


def _initialize(cluster: Cluster, name: str, timeout_ms: int) -> Program[InitProducerIdResponse | None]:
    """Send one InitProducerId. Returns None if the coordinator is still ending the transaction."""
    message = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=timeout_ms)

    def attempt() -> Program[InitProducerIdResponse]:
        coordinator = yield from cluster.coordinator(name, TRANSACTION_KEY)
        response = yield from cluster.request(message, broker=coordinator)
        if response.error_code in (ErrorCode.NONE, ErrorCode.CONCURRENT_TRANSACTIONS):
            return response
        raise BrokerRefused(response.error_code, f"transactional id {name!r}")

    response = yield from cluster.retrying(attempt)
    return response if response.error_code == ErrorCode.NONE else None
