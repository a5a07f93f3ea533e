"""Outcomes of transactions that are undecided when their records are read; reported at their marker, or at the end.

An outcome comes from a producer's first marker after the record or, at the end, from a leader that has the transaction
open (DescribeProducers). Otherwise the state is ``ended``: the marker lies beyond the part that was read.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from contextlib import suppress
from typing import Final, NamedTuple

from oncelog.admin.transactions.producers import describe_producers
from oncelog.base.ids import TopicPartition
from oncelog.base.units import MIB
from oncelog.client.blocking.client import Client
from oncelog.client.blocking.fetcher import Fetcher
from oncelog.client.errors import BrokerRefused
from oncelog.client.machine.positions import Fetched, FetchSettings
from oncelog.console.records.read_lock import read_locked
from oncelog.console.records.record_states import ENDED, OPEN, marker_outcome
from oncelog.records.batch import BatchHeader, iter_headers
from oncelog.records.errors import CorruptBatch

MAX_WAITING: Final = 4000  # Undecided records; beyond that the oldest are given up.
LOOK_AHEAD_BYTES: Final = 8 * MIB  # Read at most this much in search of markers.
_POLL_MS: Final = 100


class Settled(NamedTuple):
    """The outcome of a record that was reported before."""

    partition: TopicPartition
    offset: int
    state: str


class Outcomes:
    """The undecided records so far, by partition and producer."""

    def __init__(self) -> None:
        self._waiting: OrderedDict[tuple[TopicPartition, int], list[int]] = OrderedDict()
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def wait_for(self, partition: TopicPartition, producer_id: int, offset: int) -> None:
        self._waiting.setdefault((partition, producer_id), []).append(offset)
        self._count += 1
        # The oldest are dropped: their state stays undecided on the page.
        while self._count > MAX_WAITING:
            self._count -= len(self._waiting.popitem(last=False)[1])

    def settled_by(self, fetched: Fetched, at: int, header: BatchHeader) -> list[Settled]:
        """The records that a control batch decides. Raises CorruptBatch."""
        key = (fetched.partition, header.producer_id)
        if key not in self._waiting or (outcome := marker_outcome(fetched, at, header)) is None:
            return []
        offsets = self._waiting.pop(key)
        if later := [offset for offset in offsets if offset > header.base_offset]:
            self._waiting[key] = later  # Of the producer's next transactions.
        self._count -= len(offsets) - len(later)
        return [Settled(fetched.partition, offset, outcome) for offset in offsets if offset < header.base_offset]

    def first_offsets(self) -> dict[TopicPartition, int]:
        """The first undecided offset of each partition."""
        firsts: dict[TopicPartition, int] = {}
        for (partition, _), offsets in self._waiting.items():
            firsts[partition] = min(firsts.get(partition, offsets[0]), *offsets)
        return firsts

    def ask_leaders(self, client: Client) -> list[Settled]:
        """The remaining outcomes: open if the leader says so, else ended. Raises ClientError."""
        if not self._waiting:
            return []
        producers = describe_producers(client, sorted({partition for partition, _ in self._waiting}), open_only=True)
        opened = {(row.topic_partition, row.producer_id): row.start_offset for row in producers.rows}
        settled = []
        for (partition, producer_id), offsets in self._waiting.items():
            if partition in producers.failed:
                continue  # Without an answer from the leader they stay undecided.
            begins = opened.get((partition, producer_id))
            for offset in offsets:
                is_open = begins is not None and offset >= begins
                settled.append(Settled(partition, offset, OPEN if is_open else ENDED))
        self._waiting.clear()
        self._count = 0
        return settled


def look_ahead(client: Client, outcomes: Outcomes, ends: Mapping[TopicPartition, int]) -> list[Settled]:
    """Read on from the undecided records in search of their markers, then ask the leaders. Raises ClientError."""
    starts = outcomes.first_offsets()
    settled: list[Settled] = []
    read_bytes = 0

    def take(fetched: Fetched) -> bool:
        nonlocal read_bytes
        if fetched.error_code:
            raise BrokerRefused(fetched.error_code, f"records of {fetched.partition} from offset {fetched.position}")
        for at, header in iter_headers(fetched.records):
            if header.is_control:
                with suppress(CorruptBatch):  # Its transaction stays undecided.
                    settled.extend(outcomes.settled_by(fetched, at, header))
        read_bytes += len(fetched.records)
        return bool(outcomes) and read_bytes <= LOOK_AHEAD_BYTES

    if starts:
        fetcher = Fetcher(client, FetchSettings(_POLL_MS, max_bytes=4 * MIB, partition_max_bytes=MIB))
        try:
            fetcher.assign(starts, {partition: ends[partition] for partition in starts})
            read_locked(fetcher, _POLL_MS, take)
        finally:
            fetcher.close()
    return settled + outcomes.ask_leaders(client)
