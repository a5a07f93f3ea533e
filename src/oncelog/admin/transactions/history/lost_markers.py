"""Finds transactions whose marker an unclean election has lost (KAFKA-20716)."""

# A coordinator has decided a transaction, and a partition's leader has written its marker; then a replica that was not
# in sync is elected (unclean.leader.election.enable), without the marker. The coordinator is done, no other marker will
# come, and committed readers stop for ever. It looks like a batch that came after its marker (KAFKA-9144). Evidence:
#
# 1. The partition has a later leader epoch than the transaction's first records, and the epoch of those ended before
#    any marker of theirs (OffsetForLeaderEpoch).
# 2. The coordinator's log has the transaction decided, with this partition in it.
# 3. No marker of the producer is between the transaction's begin, by the coordinator's clock, and its first records
#    here: they did not come after a marker.
#
# Without 2, for lack of permission, no marker of the producer at all makes it likely.

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from oncelog.admin.transactions.cluster_scan import OpenTransaction
from oncelog.admin.transactions.coordinator_log import read_coordinator_log
from oncelog.admin.transactions.durations import moment_text
from oncelog.admin.transactions.fetches import fetch_request, fetched_in
from oncelog.admin.transactions.partition_offsets import read_at
from oncelog.admin.transactions.stored_identity import PastTransaction
from oncelog.base.ids import TopicPartition
from oncelog.base.transaction_verdicts import ReasonCode, Verdict
from oncelog.base.units import MIB
from oncelog.client.errors import ClientError, explain
from oncelog.client.machine.requests import offset_query
from oncelog.client.programs import Cluster, Program
from oncelog.client.programs.log_offsets import list_offsets
from oncelog.records.batch import iter_headers, read_header
from oncelog.records.errors import CorruptBatch, TruncatedBatch
from oncelog.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)

MOST_BYTES: Final = 16 * MIB
_CODES: Final = frozenset({ReasonCode.ENDED, ReasonCode.MOVED_ON})
_NO_MARKER: Final = -1


@dataclass(frozen=True, slots=True)
class LostMarker:
    # ``end_offset`` ends the leader epoch of the transaction's records. Without the coordinator's log ``committed`` is
    # None.

    committed: bool | None
    ended_ms: int | None
    epoch: int
    next_epoch: int
    end_offset: int
    is_proven: bool = True

    @property
    def sentences(self) -> list[str]:
        if self.is_proven:
            end = "committed" if self.committed else "aborted"
            first = f"The coordinator has {end} it {moment_text(self.ended_ms or 0)}, with this partition, and its "
            first += "marker was written here: it is lost."
        else:
            first = "Its marker was probably lost: the partition has none of its producer."
        return [
            first,
            f"Leader epoch {self.epoch} ended at offset {self.end_offset:,}, before the marker, and epoch "
            f"{self.next_epoch} or a later one began there: a replica that was not in sync was elected "
            "(unclean.leader.election.enable, KAFKA-20716). Other records that had been written after that offset are "
            "lost as well.",
        ]

    @property
    def way_out(self) -> str:
        if self.committed:
            return (
                "An abort marker ends it, and hides its records here from committed readers, while other partitions "
                "show theirs. To keep them, read them first, and write them again afterwards:"
            )
        return "An abort marker ends it, as its coordinator had decided:" if self.is_proven else ""


def find_lost_marker(cluster: Cluster, transaction: OpenTransaction) -> Program[LostMarker | None]:
    """None without evidence."""
    is_over = transaction.verdict is Verdict.HANGING or transaction.lacks_only_age
    if not is_over or transaction.code not in _CODES or transaction.transactional_id is None:
        return None
    try:
        return (yield from _find(cluster, transaction, transaction.transactional_id))
    except (ClientError, CorruptBatch, TruncatedBatch):
        return None


def _find(cluster: Cluster, transaction: OpenTransaction, transactional_id: str) -> Program[LostMarker | None]:
    partition, start_offset = transaction.topic_partition, transaction.start_offset
    info = cluster.view.partition(partition)
    header = read_header((yield from read_at(cluster, partition, start_offset)))
    epoch = header.partition_leader_epoch
    if info is None or not 0 <= epoch < info.leader_epoch:
        return None
    end_offset = yield from _end_of_epoch(cluster, partition, epoch)
    if end_offset <= start_offset:
        return None
    producer = transaction.producer
    identity = producer.producer_id, producer.producer_epoch
    log = yield from read_coordinator_log(cluster, transactional_id, identity)
    decided = [past for past in log.transactions if _may_be(past, transaction)]
    if not decided:
        is_likely = log.problem is not None and producer.coordinator_epoch == _NO_MARKER
        lost = LostMarker(None, None, epoch, info.leader_epoch, end_offset, is_proven=False)
        return lost if is_likely else None
    past = decided[-1]
    if (yield from _has_marker(cluster, transaction, past.start_ms)):
        return None
    return LostMarker(past.committed, past.ended_ms, epoch, info.leader_epoch, end_offset)


def _may_be(past: PastTransaction, transaction: OpenTransaction) -> bool:
    producer = transaction.producer
    return (
        past.committed is not None
        and transaction.topic_partition in past.partitions
        and past.producer_id == producer.producer_id
        and past.producer_epoch in (None, producer.producer_epoch)
    )


def _end_of_epoch(cluster: Cluster, partition: TopicPartition, epoch: int) -> Program[int]:
    selected = OffsetForLeaderPartition(partition=partition.partition, leader_epoch=epoch)
    topic = OffsetForLeaderTopic(topic=partition.topic, partitions=[selected])
    # A consumer's request; with a replica's id it would need the rights of a broker.
    message = OffsetForLeaderEpochRequest(replica_id=-1, topics=[topic])
    leader = yield from cluster.leader(partition)
    answer = yield from cluster.request(message, broker=leader)
    result = answer.topics[0].partitions[0]
    if result.error_code:
        raise ClientError(explain(result.error_code))
    # The largest epoch up to the requested one that the leader has records of.
    return int(result.end_offset) if result.leader_epoch == epoch else -1


def _has_marker(cluster: Cluster, transaction: OpenTransaction, since_ms: int) -> Program[bool]:
    """True if a marker of the producer is between a time and the transaction's records, or may be."""
    partition, end = transaction.topic_partition, transaction.start_offset
    if transaction.producer.coordinator_epoch == _NO_MARKER:
        return False
    listed = yield from list_offsets(cluster, {partition: offset_query(since_ms)})
    position, left_bytes = listed[partition].offset, MOST_BYTES
    while 0 <= position < end:
        leader = yield from cluster.leader(partition)
        answer = yield from cluster.request(fetch_request(cluster.view, {partition: position}, MIB), broker=leader)
        fetched = next(iter(fetched_in(cluster.view, answer, {partition: position})), None)
        if fetched is None or fetched.error_code or not fetched.records or left_bytes <= 0:
            return True
        for _, header in iter_headers(fetched.records):
            is_own = header.is_control and header.producer_id == transaction.producer.producer_id
            if is_own and header.base_offset < end and header.max_timestamp >= since_ms:
                return True
        position = fetched.next_offset
        left_bytes -= len(fetched.records)
    return False
