"""R2: a leader epoch and an offset name the same batch on every disk, whoever wrote it and whatever has become of it.

Below a high watermark that was told the offset alone does, on the disks of all replicas that may be elected: logs that
part there were not brought together again. Compaction writes batches anew, each replica in its own time: what it has
touched is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from oncelog.base.ids import BrokerId, TopicPartition
from oncelog.records.batch import BatchHeader
from oncelog.sim.checkers.disk.scan import ScannedLog

DIFFERS: Final = "R2 replicas differ"

Disks = Mapping[BrokerId, Mapping[TopicPartition, ScannedLog]]


def replicas_agree(disks: Disks) -> Iterator[str]:
    """Compare every partition's logs."""
    partitions = {partition for logs in disks.values() for partition in logs}
    for partition in sorted(partitions):
        seen: dict[tuple[bytes, int, int], tuple[int, BrokerId]] = {}
        for broker in sorted(disks):
            log = disks[broker].get(partition)
            for batch in () if log is None or log.interrupted else log.batches:
                header = batch.header
                if _was_compacted(header) or log is None:
                    continue
                name = log.topic_id, header.partition_leader_epoch, header.base_offset
                crc, other = seen.setdefault(name, (header.crc, broker))
                if crc != header.crc:
                    where = f"{partition}@{header.base_offset}, leader epoch {header.partition_leader_epoch}"
                    yield f"{where}: brokers {other} and {broker}"


def members_agree(
    disks: Disks, members: Callable[[TopicPartition], Sequence[BrokerId]], told: Callable[[TopicPartition], int]
) -> Iterator[str]:
    """Compare what the members of each partition have below the high watermark that was told."""
    partitions = {partition for logs in disks.values() for partition in logs}
    for partition in sorted(partitions):
        high = told(partition)
        seen: dict[tuple[bytes, int], tuple[int, int, BrokerId]] = {}
        for broker in sorted(members(partition)):
            log = disks[broker].get(partition)
            for batch in () if log is None or log.interrupted else log.batches:
                header = batch.header
                if log is None or header.next_offset > high or _was_compacted(header):
                    continue
                here = header.partition_leader_epoch, header.crc
                *there, other = seen.setdefault((log.topic_id, header.base_offset), (*here, broker))
                if tuple(there) != here:
                    what = f"of leader epoch {there[0]} on broker {other}, {here[0]} on broker {broker}"
                    yield f"{partition}@{header.base_offset}: {what}; {high} was told"
                    break


def _was_compacted(header: BatchHeader) -> bool:
    return header.record_count <= header.last_offset_delta or header.delete_horizon_ms is not None
