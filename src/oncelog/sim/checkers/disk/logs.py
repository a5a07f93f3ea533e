"""D1 to D5: each log is sound and complete, and has every batch once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Final, NamedTuple

from oncelog.base.ids import INTERNAL_TOPICS, NO_TOPIC_ID, TopicId, TopicPartition
from oncelog.sim.checkers.disk.scan import ScannedLog
from oncelog.sim.checkers.wire.appends import AcknowledgedBatch

UNSOUND: Final = "D1 unsound log"
OFFSETS: Final = "D2 offsets not contiguous"
LOST: Final = "D3 acknowledged batch lost or changed"
TWICE: Final = "D4 batch written twice"
EPOCHS: Final = "D5 epoch fell on the disk"
Finding = tuple[str, str]


class ChangingTopics(NamedTuple):
    """Topics whose batches may be missing or changed, by reason."""

    compacted: frozenset[str] = frozenset()
    # The broker sets timestamps or recompresses: batches differ from those sent.
    rewritten: frozenset[str] = frozenset()
    # Retention may delete segments.
    expiring: frozenset[str] = frozenset()
    # Deleted at least once.
    recreated: frozenset[str] = frozenset()


def check_log(log: ScannedLog, kept: ChangingTopics, *, torn: bool) -> Iterator[Finding]:
    """D1, D2, D4 and D5. ``torn``: after a power cut, the log may end in garbage."""
    if log.unsound is not None and not torn:
        yield UNSOUND, log.unsound
    if log.interrupted:
        return
    dense = log.partition.topic not in kept.compacted
    leader = -1
    for before, after in pairwise(batch.header for batch in log.batches):
        if after.base_offset < before.next_offset or (dense and after.base_offset != before.next_offset):
            yield OFFSETS, f"{log.partition}: {after.base_offset} follows {before.last_offset}"
    sequences: dict[tuple[int, int, int], int] = {}
    epochs: dict[int, int] = {}
    for batch in log.batches:
        header = batch.header
        if header.partition_leader_epoch < leader:
            yield (
                EPOCHS,
                f"{log.partition}@{header.base_offset}: leader epoch {header.partition_leader_epoch} < {leader}",
            )
        leader = header.partition_leader_epoch
        if header.producer_id < 0:
            continue
        if header.producer_epoch < epochs.get(header.producer_id, -1):
            yield (
                EPOCHS,
                f"{log.partition}@{header.base_offset}: producer {header.producer_id} at {header.producer_epoch}",
            )
        epochs[header.producer_id] = header.producer_epoch
        if not header.is_control and header.base_sequence >= 0 and log.partition.topic not in INTERNAL_TOPICS:
            # Offsets of a transaction are all written with sequence 0, as Apache Kafka's coordinator does.
            name = header.producer_id, header.producer_epoch, header.base_sequence
            other = sequences.setdefault(name, header.base_offset)
            if other != header.base_offset:
                yield TWICE, f"{log.partition}: producer, epoch, sequence {name} at {other} and {header.base_offset}"


def acknowledged(
    logs: dict[TopicPartition, ScannedLog], batches: Iterable[AcknowledgedBatch], kept: ChangingTopics
) -> Iterator[Finding]:
    """D3: every acknowledged batch is in its log once, as it was sent."""
    indexed = {
        partition: {batch.header.base_offset: (batch.header.crc, batch.header.batch_length) for batch in log.batches}
        for partition, log in logs.items()
    }
    for sent in batches:
        topic = sent.partition.topic
        log = logs.get(sent.partition)
        if topic in kept.compacted or (topic in kept.recreated and not _is_same_topic(log, sent.topic_id)):
            continue
        if log is None:
            yield LOST, f"{sent.partition}: no log"
            continue
        if log.interrupted or sent.offset < log.start:
            if sent.offset < log.start and topic not in kept.expiring and sent.offset >= sent.deleted_before:
                yield LOST, f"{sent.partition}@{sent.offset} is below the log start {log.start}"
            continue
        stored = indexed[sent.partition].get(sent.offset)
        if stored is None:
            yield LOST, f"{sent.partition}@{sent.offset} is not there, the log ends at {log.end}"
        elif topic not in kept.rewritten and stored != (sent.crc, sent.batch_length):
            yield LOST, f"{sent.partition}@{sent.offset} is another batch"


def _is_same_topic(log: ScannedLog | None, topic_id: TopicId) -> bool:
    return log is not None and topic_id not in (NO_TOPIC_ID,) and log.topic_id == topic_id
