"""R2, R10, R13 and R14 of docs/internals/simulation.md: the replicas of a partition agree.

R2: compacted batches are exempt, because each replica compacts at its own time.

R13: a new leader rejects, repeats and delays by its knowledge as a follower. Producers known to one replica only are
exempt, because they expire by each broker's clock; so are compacted logs, since a late replica never saw some batches.

R14: DeleteRecords waits for the live replicas, and each makes its new log start durable before it replies, so the start
also survives a restart.
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
                batch = topic_id, header.partition_leader_epoch, header.base_offset
                crc, other = seen.setdefault(batch, (header.crc, broker))
                if crc != header.crc:
                    location = f"{partition}@{header.base_offset}, leader epoch {header.partition_leader_epoch}"
                    yield f"{location}: brokers {other} and {broker}"


def members_agree(
    disks: Disks,
    members: Callable[[TopicPartition], Sequence[BrokerId]],
    high_watermark: Callable[[TopicPartition], int],
) -> Iterator[str]:
    partitions = {partition for logs in disks.values() for partition in logs}
    for partition in sorted(partitions):
        shown = high_watermark(partition)
        seen: dict[tuple[bytes, int], tuple[int, int, BrokerId]] = {}
        for broker in sorted(members(partition)):
            for topic_id, header in _written(disks, broker, partition):
                if header.next_offset > shown:
                    continue
                own = header.partition_leader_epoch, header.crc
                *others, other = seen.setdefault((topic_id, header.base_offset), (*own, broker))
                if tuple(others) != own:
                    detail = f"of leader epoch {others[0]} on broker {other}, {own[0]} on broker {broker}"
                    yield f"{partition}@{header.base_offset}: {detail}; {shown} was shown"
                    break


def _written(disks: Disks, broker: BrokerId, partition: TopicPartition) -> Iterator[tuple[bytes, BatchHeader]]:
    # The batches of a partition on a disk with its topic id, without compacted ones.
    log = disks[broker].get(partition)
    if log is not None and not log.interrupted:
        yield from ((log.topic_id, batch.header) for batch in log.batches if not was_compacted(batch.header))


PRODUCERS_DIFFER: Final = "R13 replicas differ in a producer"


class _ProducerFacts(NamedTuple):
    """Facts of a producer that all replicas share."""

    epoch: int
    last_sequence: int
    last_offset: int
    first_open_offset: int | None


def producers_agree(partition: TopicPartition, logs: Mapping[BrokerId, PartitionLog]) -> Iterator[str]:
    """Compare equally long replicas with the same last leader epoch: such logs are identical."""
    for (broker, log), (other_broker, other_log) in combinations(sorted(logs.items(), key=lambda item: item[0]), 2):
        if log.config.compact or log.topic_id != other_log.topic_id or _last_written(log) != _last_written(other_log):
            continue
        since = max(log.log_start_offset, other_log.log_start_offset)
        for producer_id in log.producers.entries.keys() & other_log.producers.entries.keys():
            entry, other_entry = log.producers.entries[producer_id], other_log.producers.entries[producer_id]
            facts, other_facts = _facts_of(entry, since), _facts_of(other_entry, since)
            if facts != other_facts and max(facts.last_offset, other_facts.last_offset) >= since:
                yield (
                    f"{partition}, producer {producer_id}: broker {broker} {facts}, broker {other_broker} {other_facts}"
                )


def _last_written(log: PartitionLog) -> tuple[int, int, int]:
    # The log end offset, and the leader epoch of the last record with its first offset.
    end = log.log_end_offset
    entries = [entry for entry in log.leader_epochs.entries if entry.start_offset < end]
    return (end, *entries[-1]) if entries else (end, -1, -1)


def _facts_of(entry: ProducerEntry, since: int) -> _ProducerFacts:
    first = entry.transaction_first_offset
    return _ProducerFacts(
        entry.epoch,
        entry.last_sequence,
        entry.last_data_offset,
        first if first is not None and first >= since else None,
    )


NOT_FULL: Final = "R10 replica not in sync after the healing"
UNEQUAL: Final = "R10 replicas are not equally long"
STRAY: Final = "R10 stray log"
MOVING: Final = "R10 reassignment not finished"

# Log end offsets of every broker's logs.
Ends = Mapping[BrokerId, Mapping[TopicPartition, int]]


def differences_at_rest(journal: TreeJournal, ends: Ends) -> Iterator[tuple[str, str]]:
    """Yield (rule, instance) for each state that is wrong at rest."""
    assigned: dict[TopicPartition, tuple[BrokerId, ...]] = {}
    for partition, state in journal.partitions():
        assigned[partition] = state.replicas
        if set(state.isr) != set(state.replicas) or state.leader not in state.isr:
            detail = f"leader {state.leader}, in sync {list(state.isr)} of {list(state.replicas)}"
            yield NOT_FULL, f"{partition}: {detail}"
        if state.adding or state.removing:
            yield MOVING, f"{partition}: adding {list(state.adding)}, removing {list(state.removing)}"
        ends_found = {replica: ends.get(replica, {}).get(partition) for replica in state.replicas}
        if len(set(ends_found.values())) > 1:
            yield UNEQUAL, f"{partition}: {ends_found}"
    for broker, logs in sorted(ends.items()):
        for partition in sorted(logs):
            if broker not in assigned.get(partition, ()):
                yield STRAY, f"{partition} on broker {broker}"


STILL_THERE: Final = "R14 deleted records are there"


class LogStarts:
    def __init__(self, report: Report) -> None:
        self._report = report
        self._deleted: dict[BrokerId, dict[tuple[TopicPartition, TopicId], int]] = {}

    def deleted(
        self, partition: TopicPartition, topic_id: TopicId, before: int, starts: Mapping[BrokerId, int]
    ) -> None:
        """DeleteRecords was answered: records before an offset are gone. ``starts``: log starts of live members."""
        for broker, start in starts.items():
            if start < before:
                self._report(STILL_THERE, f"{partition} was deleted up to {before}, broker {broker} begins at {start}")
            deleted = self._deleted.setdefault(broker, {})
            deleted[partition, topic_id] = max(before, deleted.get((partition, topic_id), 0))

    def lost_disk(self, broker: BrokerId) -> None:
        self._deleted.pop(broker, None)

    def started(self, broker: BrokerId, starts: Mapping[tuple[TopicPartition, TopicId], int]) -> None:
        """A broker has restarted. ``starts``: log starts of the partitions it is a member of."""
        for key, before in self._deleted.get(broker, {}).items():
            start = starts.get(key, before)
            if start < before:
                detail = f"broker {broker} begins at {start} after its start"
                self._report(STILL_THERE, f"{key[0]} was deleted up to {before}, {detail}")
