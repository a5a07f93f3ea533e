"""Ends a hanging transaction on its partition: the one thing here that can destroy data, so it is done step by step.

1. What is to be ended was found by a scan; :func:`refusal` says what must not be touched, by the verdict alone.
2. Immediately before each marker leader and coordinators are asked anew (:func:`abort`), and refused anew.
3. The marker goes to the partition's leader only. oncelog's leaders take it by the transaction's start offset and exact
   epoch (:attr:`OpenTransaction.takes_start_offset`: they are known by the tagged fields in DescribeProducers), and
   where they are its coordinator too they refuse what is live by then. Apache Kafka passes the tag over and takes a
   marker for whatever the producer has open at that moment; there remains the time between the check and the marker,
   milliseconds, in which a producer that is alive *and of the same epoch* could begin its next transaction on the
   partition. The coordinator epoch is the one the leader gave, 0 where it gave none.
4. Then the last stable offset is watched until it moves, and where that race could have happened the coordinator is
   asked once more: a transaction that has begun on the partition in the meantime is a warning.

The rule (``AbortMarker`` in ``base.transaction_verdicts``): what is decided, or waits for a decision from outside
(two-phase commit), is never ended here, whatever the force. ``termination`` asks the coordinator to end those.
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
from oncelog.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)

MOVING_TIMEOUT_MS: Final = 5 * SECOND_MS
"""The time for which the last stable offset is watched after a marker."""

RACE: Final = (
    "this broker does not say that it takes a start offset with a marker: in the milliseconds between the last check "
    "and the marker a live producer of the same epoch could begin its next transaction here, which would be ended"
)
SAME_EPOCH: Final = (
    "its producer may be alive at the same epoch: should it begin its next transaction here in the milliseconds "
    "between the last check and the marker, the first records of that one would be aborted too; stop it to be sure"
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
    """The outcome for one transaction. ``error`` is None when its marker was written.

    Offsets are None where they could not be read. ``next_start``: where the transaction begins that holds the
    partition now, if one does. ``warning``: the race may have been lost, and what to do then.
    """

    transaction: OpenTransaction
    error: str | None = None
    stable_before: int | None = None
    stable_after: int | None = None
    end_offset: int | None = None
    next_start: int | None = None
    warning: str | None = None


def refusal(one: OpenTransaction, *, force: bool = False, options: str = "") -> str | None:
    """The reason not to end a transaction by a marker, or None. ``options`` name the cluster in a suggested command."""
    if tool_sends_marker(one.code, one.verdict, forced=force):
        return None
    instead = f"oncelog txn force-terminate{options} {argument(one.transactional_id or 'ID')}"
    if one.verdict is Verdict.TWO_PHASE:
        return (
            "a marker would tear a transaction in two-phase commit, whose outcome is decided outside; not even --force "
            f"does that. If it has to end: {instead}"
        )
    if one.code is ReasonCode.COMPLETING:
        return "its coordinator has decided it and is writing the marker; not even --force contradicts that. Wait"
    if one.verdict is Verdict.LIVE:
        return (
            f"it is live. Its coordinator will end it; to make it do so now: {instead} "
            "(--force writes a marker all the same, and tears the transaction if it spans more partitions)"
        )
    return f"it is not certain that it hangs: {one.reason} (--force writes a marker all the same)"


@operation
def find_one(
    cluster: Cluster, partition: TopicPartition, start_offset: int, *, min_age_ms: int = 0
) -> Program[OpenTransaction]:
    """The transaction that is open in a partition from ``start_offset`` on, whatever its age.

    Raises ClientError when there is none, naming those there are; BrokerRefused and UnknownTopic.
    """
    found = yield from scan(cluster, Scope(partitions=(partition,)), min_age_ms=min_age_ms)
    for one in found.transactions:
        if one.start_offset == start_offset:
            return one
    if found.unanswered and not found.transactions:
        raise ClientError(str(found.unanswered[0]))
    starts = ", ".join(str(transaction.start_offset) for transaction in found.transactions)
    there = f"open there: {starts}" if starts else "none is open there"
    raise ClientError(f"{partition}: no transaction is open from offset {start_offset} on; {there}")


@operation
def abort(
    cluster: Cluster,
    one: OpenTransaction,
    *,
    force: bool = False,
    min_age_ms: int | None = None,
    audit: Audit = no_audit,
) -> Program[Aborted]:
    """Check once more, write the marker, watch the last stable offset. Raises only what the audit raises."""
    again = yield from _again(cluster, one, min_age_ms)
    if isinstance(again, str):
        audit(_entry(cluster, one, "refused", force, error=again))
        return Aborted(one, again)
    refused = refusal(again, force=force)
    if refused is not None:
        audit(_entry(cluster, again, "refused", force, error=refused))
        return Aborted(again, refused)
    audit(_entry(cluster, again, "sending", force))
    try:
        yield from write_abort_marker(cluster, again, ends_live=force and again.verdict is not Verdict.HANGING)
    except ClientError as error:
        audit(_entry(cluster, again, "failed", force, error=str(error)))
        return Aborted(again, str(error))
    watched = yield from _watched(cluster, again)
    warning = yield from _begun_meanwhile(cluster, again)
    result = replace(watched, warning=warning)
    seen = {"stable_after": result.stable_after, "end_offset": result.end_offset, "warning": result.warning}
    audit(_entry(cluster, again, "aborted", force, **seen))
    return result


def _again(cluster: Cluster, one: OpenTransaction, min_age_ms: int | None) -> Program[OpenTransaction | str]:
    """The transaction as leader and coordinators have it now (step 2); a text when there is none to end any more."""
    try:
        looked = yield from describe_producers(cluster, [one.where], open_only=True)
        if looked.unanswered:
            return f"it could not be checked again: {looked.unanswered[0]}"
        same = [
            row
            for row in looked.rows
            if (row.producer_id, row.start_offset) == (one.producer.producer_id, one.start_offset)
        ]
        examined = yield from examine(cluster, same, min_age_ms=min_age_ms)
    except ClientError as error:
        return f"it could not be checked again: {error}"
    found = examined.transactions
    return found[0] if found else "it has ended in the meantime; there is nothing to abort"


@operation
def write_abort_marker(cluster: Cluster, one: OpenTransaction, *, ends_live: bool = False) -> Program[None]:
    """Step 3, without any check: send the marker to the leader, who (oncelog) ends a live one only if ``ends_live``.
    Raises BrokerRefused and what ``request`` does."""
    producer = one.producer
    marker = WritableTxnMarker(
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        transaction_result=False,
        topics=[WritableTxnMarkerTopic(name=producer.topic, partition_indexes=[producer.partition])],
        coordinator_epoch=max(0, producer.coordinator_epoch),
        start_offset=one.start_offset,
        ends_live=ends_live,
    )
    answer = yield from cluster.request(WriteTxnMarkersRequest(markers=[marker]), broker=producer.leader)
    for result in answer.markers:
        for topic in result.topics:
            for partition in topic.partitions:
                code = partition.error_code
                if code:
                    meaning = _MEANINGS.get(code) or explain(code)
                    raise BrokerRefused(code, f"marker for {one.where}", meaning)


def _watched(cluster: Cluster, one: OpenTransaction) -> Program[Aborted]:
    before = one.start.last_stable_offset
    bounds = yield from wait_for_bounds(
        cluster, one.where, lambda now: now.last_stable_offset != one.start_offset, MOVING_TIMEOUT_MS
    )
    if bounds is None:
        return Aborted(one, None, before)
    holder = None
    if bounds.held:
        producers = yield from describe_producers(cluster, [one.where], open_only=True)
        holder = min((row.start_offset for row in producers.rows if row.start_offset is not None), default=None)
    return Aborted(one, None, before, bounds.last_stable_offset, bounds.end_offset, holder)


def _begun_meanwhile(cluster: Cluster, one: OpenTransaction) -> Program[str | None]:
    """A warning where the same producer, at the same epoch, has a transaction on the partition by now."""
    if race_of(one) is None or one.transactional_id is None or one.verdict is not Verdict.HANGING:
        return None
    described = yield from describe_transactions(cluster, [one.transactional_id])
    row = described.rows.get(one.transactional_id)
    same = row is not None and (row.producer_id, row.producer_epoch) == (
        one.producer.producer_id,
        one.producer.producer_epoch,
    )
    if row is None or not same or not row.is_open or one.where not in row.partitions:
        return None
    return (
        f"{one.transactional_id!r} has begun its next transaction here at this very moment; if that was before the "
        "marker, its first records here are aborted. To be sure that it does not commit without them: "
        f"oncelog txn force-terminate {argument(one.transactional_id)}"
    )


def race_of(one: OpenTransaction) -> str | None:
    """The race that the checks cannot exclude, in a sentence; None when nothing is left.

    A newer epoch at the coordinator, or an id that is not there, shuts out the producer that wrote this; a leader of
    ours that is its coordinator too asks itself in the step in which it writes the marker.
    """
    if one.code in (ReasonCode.MOVED_ON, ReasonCode.FORGOTTEN):
        return None
    if not one.takes_start_offset:
        return RACE
    return None if one.coordinator == one.producer.leader else SAME_EPOCH


def _entry(cluster: Cluster, one: OpenTransaction, outcome: str, force: bool, **details: Any) -> dict[str, Any]:
    return entry_of(
        "abort",
        outcome,
        cluster=cluster.view.cluster_id,
        bootstrap=",".join(map(str, cluster.bootstrap)),
        topic=one.producer.topic,
        partition=one.producer.partition,
        start_offset=one.start_offset,
        producer_id=one.producer.producer_id,
        producer_epoch=one.producer.producer_epoch,
        transactional_id=one.transactional_id,
        coordinator=one.coordinator,
        coordinator_state=None if one.row is None else one.row.state,
        verdict=one.verdict.value,
        reason=one.reason,
        age_ms=one.age_ms,
        by_start_offset=one.takes_start_offset,
        forced=force,
        last_stable_offset=one.start.last_stable_offset,
        **details,
    )
