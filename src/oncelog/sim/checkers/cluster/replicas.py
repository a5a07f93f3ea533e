"""Replicas of a partition, compared: R2, R10, R13, R14.

R2: a leader epoch and an offset name the same batch on every disk, whoever wrote it and whatever has become of it.
Below a high watermark that a client was told, the offset alone does, on the disks of all replicas that may be elected.
Compaction writes batches anew, each replica in its own time: its batches are left out.

R10: when all is mended, every replica is in sync and as long as its leader, and no broker has a log that is not its
own.

R13: replicas with the same log know the same of each producer: its last batch, epoch and open transaction. A leader
that is elected refuses, repeats and holds back by what it knew as a follower. Producers that only one replica knows are
left out, because they expire by each broker's clock; so are compacted logs, where a late replica has never seen some
batches.

R14: records that DeleteRecords has removed are on no live member of the in-sync set, and stay away. The answer waits
for the live replicas; each has written down where its log begins before it answers, so it begins there after a restart,
too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import combinations
from typing import Final, NamedTuple

from oncelog.base.ids import BrokerId, TopicId, TopicPartition
from oncelog.core.producers.entry import ProducerEntry
from oncelog.records.batch import BatchHeader
from oncelog.sim.checkers.cluster.tree_journal import Report, TreeJournal
from oncelog.sim.checkers.disk.scan import ScannedLog
from oncelog.sim.checkers.wire.fetched import was_compacted
from oncelog.storage.log.partition_log import PartitionLog

DIFFERS: Final = "R2 replicas differ"

Disks = Mapping[BrokerId, Mapping[TopicPartition, ScannedLog]]


def replicas_agree(disks: Disks) -> Iterator[str]:
    partitions = {partition for logs in disks.values() for partition in logs}
    for partition in sorted(partitions):
        seen: dict[tuple[bytes, int, int], tuple[int, BrokerId]] = {}
        for broker in sorted(disks):
            for topic_id, header in _written(disks, broker, partition):
                name = topic_id, header.partition_leader_epoch, header.base_offset
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
            for topic_id, header in _written(disks, broker, partition):
                if header.next_offset > high:
                    continue
                here = header.partition_leader_epoch, header.crc
                *there, other = seen.setdefault((topic_id, header.base_offset), (*here, broker))
                if tuple(there) != here:
                    what = f"of leader epoch {there[0]} on broker {other}, {here[0]} on broker {broker}"
                    yield f"{partition}@{header.base_offset}: {what}; {high} was told"
                    break


def _written(disks: Disks, broker: BrokerId, partition: TopicPartition) -> Iterator[tuple[bytes, BatchHeader]]:
    """The batches of a partition on a disk as they were written: with the topic's id, without what compaction made."""
    log = disks[broker].get(partition)
    if log is not None and not log.interrupted:
        yield from ((log.topic_id, batch.header) for batch in log.batches if not was_compacted(batch.header))


PRODUCERS_DIFFER: Final = "R13 replicas differ in a producer"


class _Known(NamedTuple):
    """The facts of a producer that every replica has."""

    epoch: int
    last_sequence: int
    last_offset: int
    first_open_offset: int | None


def producers_agree(partition: TopicPartition, logs: Mapping[BrokerId, PartitionLog]) -> Iterator[str]:
    """Compare the replicas of a partition that are equally long and were last written in the same leader epoch: their
    logs are the same then."""
    for (one, log), (other, its_log) in combinations(sorted(logs.items(), key=lambda item: item[0]), 2):
        if log.config.compact or log.topic_id != its_log.topic_id or _last_written(log) != _last_written(its_log):
            continue
        since = max(log.log_start_offset, its_log.log_start_offset)
        for producer_id in log.producers.entries.keys() & its_log.producers.entries.keys():
            here, there = log.producers.entries[producer_id], its_log.producers.entries[producer_id]
            known, its_known = _known(here, since), _known(there, since)
            if known != its_known and max(known.last_offset, its_known.last_offset) >= since:
                yield f"{partition}, producer {producer_id}: broker {one} {known}, broker {other} {its_known}"


def _last_written(log: PartitionLog) -> tuple[int, int, int]:
    """The log's end, and the leader epoch of the record before it with its first offset."""
    end = log.log_end_offset
    entries = [entry for entry in log.leader_epochs.entries if entry.start_offset < end]
    return (end, *entries[-1]) if entries else (end, -1, -1)


def _known(entry: ProducerEntry, since: int) -> _Known:
    first = entry.transaction_first_offset
    return _Known(
        entry.epoch,
        entry.last_sequence,
        entry.last_data_offset,
        first if first is not None and first >= since else None,
    )


NOT_FULL: Final = "R10 replica not in sync after the healing"
UNEQUAL: Final = "R10 replicas are not equally long"
STRAY: Final = "R10 stray log"
MOVING: Final = "R10 reassignment not finished"

Ends = Mapping[BrokerId, Mapping[TopicPartition, int]]
"""Log end offsets of every broker's logs."""


def unlike(journal: TreeJournal, ends: Ends) -> Iterator[tuple[str, str]]:
    """(rule, instance): what is not as it has to be at rest."""
    assigned: dict[TopicPartition, tuple[BrokerId, ...]] = {}
    for partition, state in journal.partitions():
        assigned[partition] = state.replicas
        if set(state.isr) != set(state.replicas) or state.leader not in state.isr:
            what = f"leader {state.leader}, in sync {list(state.isr)} of {list(state.replicas)}"
            yield NOT_FULL, f"{partition}: {what}"
        if state.adding or state.removing:
            yield MOVING, f"{partition}: adding {list(state.adding)}, removing {list(state.removing)}"
        found = {replica: ends.get(replica, {}).get(partition) for replica in state.replicas}
        if len(set(found.values())) > 1:
            yield UNEQUAL, f"{partition}: {found}"
    for broker, logs in sorted(ends.items()):
        for partition in sorted(logs):
            if broker not in assigned.get(partition, ()):
                yield STRAY, f"{partition} on broker {broker}"


STILL_THERE: Final = "R14 deleted records are there"


class LogStarts:
    """The offsets up to which records were deleted, and the replicas whose logs begin there or later."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self._deleted: dict[BrokerId, dict[tuple[TopicPartition, TopicId], int]] = {}

    def deleted(
        self, partition: TopicPartition, topic_id: TopicId, before: int, starts: Mapping[BrokerId, int]
    ) -> None:
        """DeleteRecords was answered: nothing before an offset is there. ``starts``: of the logs of live members."""
        for broker, start in starts.items():
            if start < before:
                self._report(STILL_THERE, f"{partition} was deleted up to {before}, broker {broker} begins at {start}")
            known = self._deleted.setdefault(broker, {})
            known[partition, topic_id] = max(before, known.get((partition, topic_id), 0))

    def lost_disk(self, broker: BrokerId) -> None:
        self._deleted.pop(broker, None)

    def started(self, broker: BrokerId, starts: Mapping[tuple[TopicPartition, TopicId], int]) -> None:
        """A broker has started. ``starts``: of the logs of which it is a member."""
        for key, before in self._deleted.get(broker, {}).items():
            start = starts.get(key, before)
            if start < before:
                what = f"broker {broker} begins at {start} after its start"
                self._report(STILL_THERE, f"{key[0]} was deleted up to {before}, {what}")
