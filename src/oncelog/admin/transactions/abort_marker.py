"""Ends a hanging transaction on its partition: the only operation here that can destroy data, done step by step.

1. A scan has found the transaction; :func:`refusal` rejects it by the verdict alone.
2. Immediately before each marker, leader and coordinators are queried again (:func:`abort`), and the verdict is checked
   again.
3. The marker goes to the partition's leader only.
4. Then the last stable offset is watched until it moves. If the race was possible, the coordinator is queried once
   more.

The rule (``AbortMarker`` in ``base.transaction_verdicts``): a decided transaction, or one in two-phase commit, is never
ended here, not even by force. ``termination`` asks the coordinator to end those.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final

from oncelog.admin.transactions.audit_trail import Audit, entry_of, no_audit
from oncelog.admin.transactions.cluster_scan import OpenTransaction, Scope, examine, scan
from oncelog.admin.transactions.partition_offsets import wait_for_bounds
from oncelog.admin.transactions.producers import describe_producers
from oncelog.admin.transactions.transactional_ids import describe_transactions
from oncelog.base.errors import ErrorCode
from oncelog.base.ids import TopicPartition
from oncelog.base.notation.shell_words import argument
from oncelog.base.transaction_verdicts import ReasonCode, Verdict, tool_sends_marker
from oncelog.base.units import SECOND_MS
from oncelog.client.errors import BrokerRefused, ClientError, explain
from oncelog.client.programs import Cluster, Program, operation
from oncelog.wire.messages.write_txn_markers import WritableTxnMarker, WritableTxnMarkerTopic, WriteTxnMarkersRequest

MOVING_TIMEOUT_MS: Final = 5 * SECOND_MS
"""How long the last stable offset is watched after a marker."""

# Between the last check and the marker a live producer *of the same epoch* could begin its next transaction on the
# partition. Apache Kafka's leader would end that one.
RACE: Final = (
    "this broker does not say that it takes a start offset with a marker. A live producer of the same epoch could "
    "begin its next transaction in the milliseconds before the marker, which would end it"
)
SAME_EPOCH: Final = (
    "its producer may be alive at the same epoch. If it begins its next transaction here in the milliseconds before "
    "the marker, the first records of that one are aborted too; stop the producer to be sure"
)

_MEANINGS: Final[dict[int, str]] = {
    ErrorCode.INVALID_TXN_STATE: "no transaction is open there from this offset on any more, or its producer has begun "
    "its next one there by now; nothing was written",
    ErrorCode.INVALID_PRODUCER_EPOCH: "the producer has a newer epoch there by now; nothing was written",
    ErrorCode.TRANSACTION_COORDINATOR_FENCED: "a newer coordinator has written there by now; nothing was written",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "not allowed: it needs Alter or ClusterAction on the cluster",
    ErrorCode.NOT_LEADER_OR_FOLLOWER: "the partition has moved to another broker; try again",
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "the partition has moved off the broker, or is gone; try again",
}


@dataclass(frozen=True, slots=True)
class Aborted:
    """The outcome for one transaction. ``error`` is None if its marker was written.

    Offsets are None if they could not be read. ``next_start`` is the start of the transaction that holds the partition
    now. ``warning`` says that the race may have been lost, and what to do.
    """

    transaction: OpenTransaction
    error: str | None = None
    stable_before: int | None = None
    stable_after: int | None = None
    end_offset: int | None = None
    next_start: int | None = None
    warning: str | None = None


def refusal(
    transaction: OpenTransaction, *, force: bool = False, is_named: bool = False, options: str = ""
) -> str | None:
    """Why a transaction must not be ended by a marker, or None. ``options`` name the cluster in a suggested command.

    ``is_named``: the administrator names this one by its start offset, so it may be younger than a hanging one.
    """
    verdict = Verdict.HANGING if is_named and transaction.lacks_only_age else transaction.verdict
    if tool_sends_marker(transaction.code, verdict, forced=force):
        return None
    # The coordinator ends a transaction on all its partitions, which a marker cannot.
    instead = f"oncelog txn force-terminate{options} {argument(transaction.transactional_id or 'ID')}"
    if transaction.verdict is Verdict.TWO_PHASE:
        return (
            "a marker would tear a transaction in two-phase commit, whose outcome is decided outside; not even --force "
            f"does that. If it has to end: {instead}"
        )
    if transaction.code is ReasonCode.COMPLETING:
        return "its coordinator has decided it and is writing the marker; not even --force contradicts that. Wait"
    if transaction.verdict is Verdict.LIVE:
        return (
            f"it is live. Its coordinator will end it; to make it do so now: {instead} "
            "(--force writes a marker all the same, and tears the transaction if it spans more partitions)"
        )
    return f"it is not certain that it hangs: {transaction.reason} (--force writes a marker all the same)"


@operation
def find_one(
    cluster: Cluster, partition: TopicPartition, start_offset: int, *, min_age_ms: int = 0
) -> Program[OpenTransaction]:
    """The transaction that is open in a partition from ``start_offset`` on, whatever its age.

    Raises ClientError if it does not exist, listing the open ones; BrokerRefused and UnknownTopic.
    """
    scanned = yield from scan(cluster, Scope(partitions=(partition,)), min_age_ms=min_age_ms)
    for transaction in scanned.transactions:
        if transaction.start_offset == start_offset:
            return transaction
    if scanned.unanswered and not scanned.transactions:
        raise ClientError(str(scanned.unanswered[0]))
    starts = ", ".join(str(transaction.start_offset) for transaction in scanned.transactions)
    open_text = f"open there: {starts}" if starts else "none is open there"
    raise ClientError(f"{partition}: no transaction is open from offset {start_offset} on; {open_text}")


@operation
def abort(
    cluster: Cluster,
    transaction: OpenTransaction,
    *,
    force: bool = False,
    min_age_ms: int | None = None,
    audit: Audit = no_audit,
) -> Program[Aborted]:
    """Check once more, write the marker, watch the last stable offset. Raises only what ``audit`` raises."""
    again = yield from _recheck(cluster, transaction, min_age_ms)
    if isinstance(again, str):
        audit(_entry(cluster, transaction, "refused", force, error=again))
        return Aborted(transaction, again)
    refused = refusal(again, force=force)
    if refused is not None:
        audit(_entry(cluster, again, "refused", force, error=refused))
        return Aborted(again, refused)
    # On disk before the marker is sent.
    audit(_entry(cluster, again, "sending", force))
    try:
        yield from write_abort_marker(cluster, again, ends_live=force and again.verdict is not Verdict.HANGING)
    except ClientError as error:
        audit(_entry(cluster, again, "failed", force, error=str(error)))
        return Aborted(again, str(error))
    watched = yield from _watch_stable_offset(cluster, again)
    warning = yield from _race_warning(cluster, again)
    result = replace(watched, warning=warning)
    seen = {"stable_after": result.stable_after, "end_offset": result.end_offset, "warning": result.warning}
    audit(_entry(cluster, again, "aborted", force, **seen))
    return result


def _recheck(cluster: Cluster, transaction: OpenTransaction, min_age_ms: int | None) -> Program[OpenTransaction | str]:
    """The transaction as leader and coordinators have it now (step 2), or the reason why none can be ended."""
    try:
        described = yield from describe_producers(cluster, [transaction.topic_partition], open_only=True)
        if described.unanswered:
            return f"it could not be checked again: {described.unanswered[0]}"
        same = [
            row
            for row in described.rows
            if (row.producer_id, row.start_offset) == (transaction.producer.producer_id, transaction.start_offset)
        ]
        examined = yield from examine(cluster, same, min_age_ms=min_age_ms)
    except ClientError as error:
        return f"it could not be checked again: {error}"
    transactions = examined.transactions
    return transactions[0] if transactions else "it has ended in the meantime; there is nothing to abort"


@operation
def abort_transaction(
    cluster: Cluster,
    partition: TopicPartition,
    *,
    producer_id: int,
    producer_epoch: int,
    coordinator_epoch: int = 0,
) -> Program[None]:
    """Write an abort marker without any check, as Java's ``Admin.abortTransaction``: :func:`abort` looks first.

    The values are those of ``describe_producers``. Raises BrokerRefused and UnknownTopic.
    """
    marker = WritableTxnMarker(
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transaction_result=False,
        topics=[WritableTxnMarkerTopic(name=partition.topic, partition_indexes=[partition.partition])],
        coordinator_epoch=max(0, coordinator_epoch),
    )
    yield from _send_marker(cluster, marker, partition, (yield from cluster.leader(partition)))


@operation
def write_abort_marker(cluster: Cluster, transaction: OpenTransaction, *, ends_live: bool = False) -> Program[None]:
    """Step 3, without any check: send the marker to the leader. An oncelog leader ends a live transaction only with
    ``ends_live``. Raises BrokerRefused and what ``request`` raises.
    """
    producer = transaction.producer
    marker = WritableTxnMarker(
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        transaction_result=False,
        topics=[WritableTxnMarkerTopic(name=producer.topic, partition_indexes=[producer.partition])],
        # −1 would be refused: the leader gave none.
        coordinator_epoch=max(0, producer.coordinator_epoch),
        # oncelog's leaders match the transaction by start offset and exact epoch
        # (``OpenTransaction.takes_start_offset``; tagged fields in DescribeProducers identify such leaders), and refuse
        # to end a live transaction that they also coordinate. Apache Kafka ignores the tag and ends whatever the
        # producer has open at that moment.
        start_offset=transaction.start_offset,
        ends_live=ends_live,
    )
    yield from _send_marker(cluster, marker, transaction.topic_partition, producer.leader)


def _send_marker(cluster: Cluster, marker: WritableTxnMarker, partition: TopicPartition, leader: int) -> Program[None]:
    answer = yield from cluster.request(WriteTxnMarkersRequest(markers=[marker]), broker=leader)
    for result in answer.markers:
        for topic in result.topics:
            for written in topic.partitions:
                code = written.error_code
                if code:
                    raise BrokerRefused(code, f"marker for {partition}", _MEANINGS.get(code) or explain(code))


def _watch_stable_offset(cluster: Cluster, transaction: OpenTransaction) -> Program[Aborted]:
    before = transaction.start.last_stable_offset
    bounds = yield from wait_for_bounds(
        cluster,
        transaction.topic_partition,
        lambda now: now.last_stable_offset != transaction.start_offset,
        MOVING_TIMEOUT_MS,
    )
    if bounds is None:
        return Aborted(transaction, None, before)
    # Another transaction may hold the partition now.
    holder = None
    if bounds.held:
        producers = yield from describe_producers(cluster, [transaction.topic_partition], open_only=True)
        holder = min((row.start_offset for row in producers.rows if row.start_offset is not None), default=None)
    return Aborted(transaction, None, before, bounds.last_stable_offset, bounds.end_offset, holder)


def _race_warning(cluster: Cluster, transaction: OpenTransaction) -> Program[str | None]:
    """A warning if the same producer, at the same epoch, has a transaction on the partition now."""
    if (
        race_of(transaction) is None
        or transaction.transactional_id is None
        or transaction.verdict is not Verdict.HANGING
    ):
        return None
    described = yield from describe_transactions(cluster, [transaction.transactional_id])
    row = described.rows.get(transaction.transactional_id)
    # Another epoch is another instance, which the marker could not have ended.
    same = row is not None and (row.producer_id, row.producer_epoch) == (
        transaction.producer.producer_id,
        transaction.producer.producer_epoch,
    )
    if row is None or not same or not row.is_open or transaction.topic_partition not in row.partitions:
        return None
    return (
        f"{transaction.transactional_id!r} has begun its next transaction here at this very moment; if that was before "
        "the marker, its first records here are aborted. To be sure that it does not commit without them: "
        f"oncelog txn force-terminate {argument(transaction.transactional_id)}"
    )


def race_of(transaction: OpenTransaction) -> str | None:
    """The race that the checks cannot exclude, in a sentence, or None."""
    if transaction.code in (ReasonCode.MOVED_ON, ReasonCode.FORGOTTEN):
        return None
    if not transaction.takes_start_offset:
        return RACE
    return None if transaction.coordinator == transaction.producer.leader else SAME_EPOCH


def _entry(cluster: Cluster, transaction: OpenTransaction, outcome: str, force: bool, **details: Any) -> dict[str, Any]:
    return entry_of(
        "abort",
        outcome,
        cluster=cluster.view.cluster_id,
        bootstrap=",".join(map(str, cluster.bootstrap)),
        topic=transaction.producer.topic,
        partition=transaction.producer.partition,
        start_offset=transaction.start_offset,
        producer_id=transaction.producer.producer_id,
        producer_epoch=transaction.producer.producer_epoch,
        transactional_id=transaction.transactional_id,
        coordinator=transaction.coordinator,
        coordinator_state=None if transaction.row is None else transaction.row.state,
        verdict=transaction.verdict.value,
        reason=transaction.reason,
        age_ms=transaction.age_ms,
        by_start_offset=transaction.takes_start_offset,
        forced=force,
        last_stable_offset=transaction.start.last_stable_offset,
        **details,
    )
