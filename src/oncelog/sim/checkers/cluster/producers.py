"""R13: replicas whose logs are the same know the same of each producer: its last batch, epoch and open transaction.

A leader that is elected refuses, repeats and holds back by what it knew as a follower. What only one replica knows is
passed over, for producers expire by each broker's clock; so are compacted logs, where a replica that has copied late
has never seen some batches.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import combinations
from typing import Final, NamedTuple

from oncelog.base.ids import BrokerId, TopicPartition
from oncelog.core.producers.entry import ProducerEntry
from oncelog.storage.log.partition_log import PartitionLog

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
