"""The audit record of one marker of a WriteTxnMarkers request. Not an API."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Final

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import NO_OFFSET, TopicName, TopicPartition
from oncelog.handlers.broker.audit import PARTITIONS_NAMED, AuditRecord, Value, requester, summary

if TYPE_CHECKING:
    from oncelog.handlers.broker.context import Context
    from oncelog.storage.transactions.open_transactions import OpenTransaction
    from oncelog.wire.messages.write_txn_markers import WritableTxnMarker

ABORT_HANGING: Final = "abort-hanging"
"""The action of markers with a start offset: an administrator's, conditional."""
WRITE_MARKERS: Final = "write-markers"
"""The action of markers without one, as Apache Kafka's own tools send them."""
_CHECKED_ALWAYS: Final = ("Alter or ClusterAction on the cluster", "producer epoch and coordinator epoch not older")
_CHECKED_OF_HANGING: Final = (
    "Alter or ClusterAction on the cluster",
    "it aborts",
    "the open transaction begins at the start offset",
    "the producer epoch is the latest",
    "neither decided nor prepared in two-phase commit, as far as its coordinator is here",
)
_NOT_LIVE: Final = "not live, as far as its coordinator is here"


def open_there(marker: WritableTxnMarker, context: Context) -> dict[TopicPartition, OpenTransaction]:
    """The open transactions that a marker is to end; to be asked before it is written, for afterwards they are gone."""
    found = {}
    for partition in islice(_named(marker), PARTITIONS_NAMED):
        leader = context.partitions.leader_log(partition)
        if isinstance(leader, ErrorCode):
            continue
        opened = leader.log.transactions.get(partition, marker.producer_id)
        if opened is not None:
            found[partition] = opened
    return found


def _named(marker: WritableTxnMarker) -> Iterator[TopicPartition]:
    return (TopicPartition(TopicName(t.name), index) for t in marker.topics for index in t.partition_indexes)


def _entry(partition: TopicPartition, outcome: ErrorCode, opened: OpenTransaction | None) -> Mapping[str, Value]:
    entry: dict[str, Value] = {"topic": partition.topic, "partition": partition.partition, "outcome": outcome.name}
    if opened is not None:
        entry["open_from"] = opened.start_offset
        entry["open_since_ms"] = opened.started_ms
        entry["transactional_id"] = opened.transactional_id
        entry["verdict"] = opened.verdict
    return entry


def record_of(
    marker: WritableTxnMarker,
    outcomes: Mapping[TopicPartition, ErrorCode],
    found: Mapping[TopicPartition, OpenTransaction],
    context: Context,
) -> AuditRecord:
    """The record of a marker: its request, what was open (:func:`open_there`) and what came of it; ``outcomes`` by
    partition."""
    named = list(_named(marker))
    conditional = marker.start_offset != NO_OFFSET
    transaction: dict[str, Value] = {
        "producer_id": marker.producer_id,
        "producer_epoch": marker.producer_epoch,
        "coordinator_epoch": marker.coordinator_epoch,
        "result": "COMMIT" if marker.transaction_result else "ABORT",
        "start_offset": marker.start_offset if conditional else None,
        "partitions": [_entry(p, outcomes[p], found.get(p)) for p in named[:PARTITIONS_NAMED]],
        "partition_count": len(named),
    }
    return AuditRecord(
        time_ms=context.now_ms,
        action=ABORT_HANGING if conditional else WRITE_MARKERS,
        who=requester(context),
        transaction=transaction,
        checked=_checked(marker) if conditional else _CHECKED_ALWAYS,
        outcome=summary([outcomes[p].name for p in named] or ["NONE"]),
    )


def _checked(marker: WritableTxnMarker) -> Sequence[str]:
    return _CHECKED_OF_HANGING if marker.ends_live else (*_CHECKED_OF_HANGING, _NOT_LIVE)
