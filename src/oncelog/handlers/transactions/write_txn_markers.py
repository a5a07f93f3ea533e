"""WriteTxnMarkers, versions 1 and 2 (KIP-98, KIP-890): ends transactions on the partitions that this broker leads.

Sent by transaction coordinators, and by administrators who end a hanging transaction (KIP-664). An administrator's
marker has a start offset, in our own tag that Apache Kafka skips: it aborts, and ends only a transaction of exactly
this producer epoch and start offset, which its coordinator has not decided and which is not prepared (two-phase
commit); a live one only by force, a second tag. This broker's own coordinator does not use the API.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Final

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import NO_OFFSET, Offset, ProducerEpoch, ProducerId, TopicName, TopicPartition, by_topic
from oncelog.handlers.api import Operation
from oncelog.handlers.broker import audit
from oncelog.handlers.broker.broker_clients import is_trusted_broker
from oncelog.handlers.broker.context import Context
from oncelog.handlers.broker.ports import Marker
from oncelog.handlers.broker.time_slices import SliceBudget
from oncelog.handlers.broker.waits import NextSlice, Steps, UntilDurable
from oncelog.handlers.transactions.coordinator_verdict import marker_refusal
from oncelog.storage.errors import AppendRefused
from oncelog.wire.messages import write_txn_markers as wire

if TYPE_CHECKING:
    from oncelog.storage.log.partition_log import PartitionLog
    from oncelog.storage.transactions.open_transactions import OpenTransaction

ERRORS: Final[Mapping[ErrorCode, str]] = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "no such topic or partition, or this broker has no replica of it",
    ErrorCode.NOT_LEADER_OR_FOLLOWER: "this broker does not lead the partition, or no longer when it is durable, "
    "or (administrator) a coordinator that may have decided or prepared the transaction cannot be asked now",
    ErrorCode.REQUEST_TIMED_OUT: "the marker is not durable within request.timeout.ms",
    ErrorCode.INVALID_PRODUCER_EPOCH: "the producer's epoch is newer, or (administrator) not exactly this one",
    ErrorCode.TRANSACTION_COORDINATOR_FENCED: "a coordinator of a newer epoch has written here",
    ErrorCode.INVALID_TXN_STATE: "(administrator) no transaction is open from the offset on, or its coordinator has "
    "decided it or (unless forced) has it open itself, or it is prepared in two-phase commit",
    ErrorCode.INVALID_REQUEST: "(administrator) a commit: a hanging transaction can only be aborted",
    ErrorCode.KAFKA_STORAGE_ERROR: "the log could not be written",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "neither a broker nor allowed to alter the cluster",
}

NO_COORDINATOR_EPOCH: Final = -1
_KNOWS_TRANSACTION_VERSION: Final = 2
_NOT_READY: Final = frozenset(
    {ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR}
)
"""The errors of a group coordinator that is not ready: for the sender of a marker, a leader that is not."""
_CHECKED_ALWAYS: Final = ("Alter or ClusterAction on the cluster", "producer epoch and coordinator epoch not older")
_CHECKED_OF_HANGING: Final = (
    "Alter or ClusterAction on the cluster",
    "it aborts",
    "the open transaction begins at the start offset",
    "the producer epoch is the latest",
    "neither decided nor prepared in two-phase commit, as far as its coordinator is here",
)
_NOT_LIVE: Final = "not live, as far as its coordinator is here"

Outcomes = dict[int, dict[TopicPartition, ErrorCode]]
"""Outcomes by producer id: several markers of one producer share a result, as in Apache Kafka."""


def handle(request: wire.WriteTxnMarkersRequest, context: Context) -> Steps[wire.WriteTxnMarkersResponse]:
    if context.allows_cluster_silently(Operation.ALTER) or context.allows_cluster(Operation.CLUSTER_ACTION):
        return (yield from _write_all(request, context))
    outcomes: Outcomes = {}
    for marker in request.markers:
        refused = dict.fromkeys(_partitions(marker), ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        outcomes.setdefault(marker.producer_id, {}).update(refused)
    return _response(outcomes)


def _write_all(request: wire.WriteTxnMarkersRequest, context: Context) -> Steps[wire.WriteTxnMarkersResponse]:
    outcomes: Outcomes = {}
    ends: dict[TopicPartition, Offset] = {}
    budget = SliceBudget(context.partitions)
    for marker in request.markers:
        written = dict.fromkeys(_partitions(marker), ErrorCode.OPERATION_NOT_ATTEMPTED)
        open_transactions = _open_transactions(marker, context)
        if budget.spent():
            yield NextSlice()
        try:
            for partition in _partitions(marker):
                written[partition] = yield from _write(marker, partition, context, ends)
                if budget.spent():
                    yield NextSlice()
        finally:  # runs if the requester disconnects, too
            # All but the markers of coordinators on other brokers, which have ClusterAction: Alter is enough to end a
            # transaction, but never unseen.
            if marker.start_offset != NO_OFFSET or not is_trusted_broker(context):
                context.transactions.audit(_audit_record(marker, written, open_transactions, context))
        outcomes.setdefault(marker.producer_id, {}).update(written)
    return (yield from _when_durable(outcomes, ends, context)) if ends else _response(outcomes)


def _partitions(marker: wire.WritableTxnMarker) -> Iterator[TopicPartition]:
    for topic in marker.topics:
        for index in topic.partition_indexes:
            yield TopicPartition(TopicName(topic.name), index)


def _write(
    marker: wire.WritableTxnMarker, partition: TopicPartition, context: Context, ends: dict[TopicPartition, Offset]
) -> Steps[ErrorCode]:
    leader = context.partitions.leader_log(partition)
    if isinstance(leader, ErrorCode):
        return leader if _has_replica(partition, context) else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    written = _marker(marker, leader.log, context.version)
    if written.start_offset != NO_OFFSET:
        refusal = yield from _administrators_refusal(written, leader.log, context, ends_live=marker.ends_live)
        if refusal is not ErrorCode.NONE:
            return refusal
    try:
        end = context.transactions.write_marker(leader, written)
    except AppendRefused as refused:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER if refused.error_code in _NOT_READY else refused.error_code
    except OSError:
        return ErrorCode.KAFKA_STORAGE_ERROR
    # A partition may be named by several markers.
    ends[partition] = max(end, ends.get(partition, end))
    return ErrorCode.NONE


def _has_replica(partition: TopicPartition, context: Context) -> bool:
    image = context.cluster.image.partition(partition)
    return image is not None and context.cluster.broker_id in image.replicas


def _administrators_refusal(
    marker: Marker, log: PartitionLog, context: Context, *, ends_live: bool
) -> Steps[ErrorCode]:
    """The error if an administrator's marker may not end the transaction that it names; the log checks the name. With
    NONE, the leadership has not changed meanwhile.
    """
    if marker.committed:
        return ErrorCode.INVALID_REQUEST
    entry = log.producers.entries.get(marker.producer_id)
    opened = log.transactions.get(log.partition, marker.producer_id)
    if entry is None or opened is None or opened.start_offset != marker.start_offset:
        return ErrorCode.NONE
    if entry.epoch != marker.producer_epoch:
        return ErrorCode.NONE
    if context.transactions.is_loading():
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    return (yield from marker_refusal(opened, entry, context, ends_live=ends_live))


def _marker(marker: wire.WritableTxnMarker, log: PartitionLog, version: int) -> Marker:
    administrators = marker.start_offset != NO_OFFSET
    coordinator_epoch = marker.coordinator_epoch
    if administrators:
        entry = log.producers.entries.get(marker.producer_id)
        # It needs no coordinator epoch, and never raises the stored one, which would lock out the coordinator's own
        # markers.
        stored = NO_COORDINATOR_EPOCH if entry is None else entry.coordinator_epoch
        coordinator_epoch = stored if coordinator_epoch == NO_COORDINATOR_EPOCH else min(coordinator_epoch, stored)
    return Marker(
        ProducerId(marker.producer_id),
        ProducerEpoch(marker.producer_epoch),
        coordinator_epoch,
        marker.transaction_result,
        # An administrator names the producer's current epoch: no rule may require a greater one.
        0 if administrators or version < _KNOWS_TRANSACTION_VERSION else marker.transaction_version,
        Offset(marker.start_offset),
    )


def _when_durable(
    outcomes: Outcomes, ends: Mapping[TopicPartition, Offset], context: Context
) -> Steps[wire.WriteTxnMarkersResponse]:
    deadline_ms = context.now_ms + context.cluster.config.get("request.timeout.ms")
    late: set[TopicPartition] = yield UntilDurable(ends, deadline_ms, holds_connection=True)
    for of_producer in outcomes.values():
        for partition, error_code in of_producer.items():
            if partition in late and error_code is ErrorCode.NONE:
                led = not isinstance(context.partitions.leader_log(partition), ErrorCode)
                of_producer[partition] = ErrorCode.REQUEST_TIMED_OUT if led else ErrorCode.NOT_LEADER_OR_FOLLOWER
    return _response(outcomes)


def _response(outcomes: Outcomes) -> wire.WriteTxnMarkersResponse:
    return wire.WriteTxnMarkersResponse(
        markers=[
            wire.WritableTxnMarkerResult(producer_id=producer_id, topics=_topics(of_producer))
            for producer_id, of_producer in outcomes.items()
        ]
    )


def _topics(outcomes: Mapping[TopicPartition, ErrorCode]) -> list[wire.WritableTxnMarkerTopicResult]:
    return [
        wire.WritableTxnMarkerTopicResult(
            name=topic,
            partitions=[
                wire.WritableTxnMarkerPartitionResult(
                    partition_index=index, error_code=outcomes[TopicPartition(topic, index)]
                )
                for index in indexes
            ],
        )
        for topic, indexes in by_topic(outcomes).items()
    ]


def _open_transactions(marker: wire.WritableTxnMarker, context: Context) -> dict[TopicPartition, OpenTransaction]:
    # Read before the marker is written: afterwards they are gone.
    open_transactions = {}
    for partition in islice(_partitions(marker), audit.PARTITIONS_NAMED):
        leader = context.partitions.leader_log(partition)
        if isinstance(leader, ErrorCode):
            continue
        opened = leader.log.transactions.get(partition, marker.producer_id)
        if opened is not None:
            open_transactions[partition] = opened
    return open_transactions


def _entry(partition: TopicPartition, outcome: ErrorCode, opened: OpenTransaction | None) -> Mapping[str, audit.Value]:
    entry: dict[str, audit.Value] = {
        "topic": partition.topic,
        "partition": partition.partition,
        "outcome": outcome.name,
    }
    if opened is not None:
        entry["open_from"] = opened.start_offset
        entry["open_since_ms"] = opened.started_ms
        entry["transactional_id"] = opened.transactional_id
        entry["verdict"] = opened.verdict
    return entry


def _audit_record(
    marker: wire.WritableTxnMarker,
    outcomes: Mapping[TopicPartition, ErrorCode],
    open_transactions: Mapping[TopicPartition, OpenTransaction],
    context: Context,
) -> audit.AuditRecord:
    named = list(_partitions(marker))
    conditional = marker.start_offset != NO_OFFSET
    transaction: dict[str, audit.Value] = {
        "producer_id": marker.producer_id,
        "producer_epoch": marker.producer_epoch,
        "coordinator_epoch": marker.coordinator_epoch,
        "result": "COMMIT" if marker.transaction_result else "ABORT",
        "start_offset": marker.start_offset if conditional else None,
        "partitions": [_entry(p, outcomes[p], open_transactions.get(p)) for p in named[: audit.PARTITIONS_NAMED]],
        "partition_count": len(named),
    }
    return audit.AuditRecord(
        time_ms=context.now_ms,
        action=audit.ABORT_HANGING if conditional else audit.WRITE_MARKERS,
        who=audit.requester(context),
        transaction=transaction,
        checked=_checked(marker) if conditional else _CHECKED_ALWAYS,
        outcome=audit.summary([outcomes[p].name for p in named] or ["NONE"]),
    )


def _checked(marker: wire.WritableTxnMarker) -> Sequence[str]:
    return _CHECKED_OF_HANGING if marker.ends_live else (*_CHECKED_OF_HANGING, _NOT_LIVE)
