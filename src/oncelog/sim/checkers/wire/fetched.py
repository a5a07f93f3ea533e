"""W7 to W11 of docs/internals/simulation.md: every Fetch shows the same log: only its readable part, without fenced
producers, and with aborted data listed.

Compacted batches may differ (W8). Batches of one response do not overlap.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from oncelog.base.ids import INTERNAL_TOPICS
from oncelog.records.batch import BatchHeader, Buffer, CorruptBatch, iter_headers
from oncelog.records.control import EndTransactionMarker, end_transaction_marker_of
from oncelog.records.record import read_records
from oncelog.sim.checkers.wire.appends import Appends
from oncelog.sim.checkers.wire.exchange import Exchange, PartitionKey, Report, Topics
from oncelog.sim.checkers.wire.outcomes import Outcomes
from oncelog.wire.messages.fetch import AbortedTransaction, FetchResponse, PartitionData

UNREADABLE: Final = "W7 unreadable records were returned"
CHANGED: Final = "W8 log changed"
EPOCH_FELL: Final = "W9 epoch fell in the log"
ABORTED: Final = "W10 aborted list is wrong"
_MARKER_BYTES: Final = 1 << 16
Batch = tuple[BatchHeader, EndTransactionMarker | None]


def batches_of(records: Buffer) -> Iterator[Batch]:
    """The complete batches of a response, control batches with their markers. A truncated last batch is left out."""
    try:
        for position, header in iter_headers(records):
            marker = None
            if header.is_control:
                for record in read_records(records, position, header, _MARKER_BYTES):
                    marker = end_transaction_marker_of(record)
            yield header, marker
    except CorruptBatch:
        return


class FetchedLogs:
    """Every partition's log as far as it was fetched."""

    def __init__(self, topics: Topics, report: Report, appends: Appends, outcomes: Outcomes) -> None:
        self._topics = topics
        self._report = report
        self._appends = appends
        self._outcomes = outcomes
        # Base offset → (last offset, CRC).
        self._batches: dict[PartitionKey, dict[int, tuple[int, int]]] = {}
        # Producer → its last fetched batch: (offset, producer epoch).
        self._epochs: dict[tuple[PartitionKey, int], tuple[int, int]] = {}
        # Producer → its last fetched marker: (offset, coordinator epoch).
        self._coordinator_epochs: dict[tuple[PartitionKey, int], tuple[int, int]] = {}

    def restarted(self, *, keeps_all: bool) -> None:
        # Keep all batches that were readable: they are durable, unless the broker does not sync.
        if not keeps_all:
            self._batches.clear()
            self._epochs.clear()
            self._coordinator_epochs.clear()

    def fetched(self, exchange: Exchange, response: FetchResponse) -> None:
        read_committed = exchange.request.isolation_level == 1
        for topic in response.responses:
            for data in topic.partitions:
                if data.error_code or not isinstance(data.records, (bytes, bytearray, memoryview)):
                    continue
                key = self._topics.key(topic.topic, topic.topic_id, data.partition_index)
                if key is not None and len(data.records):
                    self._partition(key, data, list(batches_of(data.records)), read_committed=read_committed)

    def _partition(self, key: PartitionKey, data: PartitionData, batches: list[Batch], *, read_committed: bool) -> None:
        end = data.last_stable_offset if read_committed else data.high_watermark
        batches_known = self._batches.setdefault(key, {})
        next_offset = -1
        for header, marker in batches:
            if header.last_offset >= end >= 0:
                self._report_partition(UNREADABLE, key, f"{header.last_offset} read, readable below {end}")
            if header.base_offset < next_offset:
                self._report_partition(CHANGED, key, f"{header.base_offset} after {next_offset - 1}")
            next_offset = header.next_offset
            if header.base_offset in batches_known and batches_known[header.base_offset] == (
                header.last_offset,
                header.crc,
            ):
                continue
            if not was_compacted(header):
                self._add_batch(key, batches_known, header)
            if header.producer_id >= 0:
                self._producer(key, header, marker)
        if read_committed:
            self._check_aborted(key, data.aborted_transactions or [], batches)

    def _add_batch(self, key: PartitionKey, batches_known: dict[int, tuple[int, int]], header: BatchHeader) -> None:
        earlier = batches_known.get(header.base_offset)
        if earlier is not None:
            self._report_partition(CHANGED, key, f"another batch at {header.base_offset} than before")
        batches_known[header.base_offset] = header.last_offset, header.crc
        # Offsets of a transaction are all written with sequence 0, as Apache Kafka's coordinator does.
        if not header.is_control and self._topics.place(key, None)[0] not in INTERNAL_TOPICS:
            self._appends.placed(key, header, header.base_offset, certain=True)

    def _producer(self, key: PartitionKey, header: BatchHeader, marker: EndTransactionMarker | None) -> None:
        offset, producer = header.base_offset, (key, header.producer_id)
        self._epochs[producer] = self._check_rising(
            key, self._epochs.get(producer), (offset, header.producer_epoch), f"producer {header.producer_id}"
        )
        if marker is None:
            return
        self._outcomes.marked(header.producer_id, header.producer_epoch, marker.committed, self._topics.describe(key))
        if marker.coordinator_epoch >= 0:
            self._coordinator_epochs[producer] = self._check_rising(
                key,
                self._coordinator_epochs.get(producer),
                (offset, marker.coordinator_epoch),
                f"coordinator of {producer[1]}",
            )

    def _check_rising(
        self, key: PartitionKey, last: tuple[int, int] | None, current: tuple[int, int], owner: str
    ) -> tuple[int, int]:
        if last is None or last == current:
            return current
        low, high = sorted((last, current))
        if high[1] < low[1]:
            self._report_partition(EPOCH_FELL, key, f"{owner}: epoch {low[1]} at {low[0]}, {high[1]} at {high[0]}")
        return high

    def _check_aborted(self, key: PartitionKey, aborted: list[AbortedTransaction], batches: list[Batch]) -> None:
        # Read the response as a consumer does: data that it drops must end in an abort, data that it keeps in a commit.
        pending = sorted((entry.first_offset, entry.producer_id) for entry in aborted)
        dropping: set[int] = set()
        kept: dict[int, int] = {}
        for header, marker in batches:
            while pending and pending[0][0] <= header.last_offset:
                dropping.add(pending.pop(0)[1])
            producer = header.producer_id
            if marker is None:
                if header.is_transactional and producer not in dropping:
                    kept.setdefault(producer, header.base_offset)
            elif marker.committed and producer in dropping:
                self._report_partition(
                    ABORTED, key, f"producer {producer} listed, its marker at {header.base_offset} commits"
                )
            elif not marker.committed and producer in kept:
                self._report_partition(ABORTED, key, f"producer {producer} at {kept[producer]} aborted and not listed")
            if marker is not None:
                dropping.discard(producer)
                kept.pop(producer, None)

    def _report_partition(self, rule: str, key: PartitionKey, detail: str) -> None:
        self._report(rule, f"{self._topics.describe(key)}: {detail}")


def was_compacted(header: BatchHeader) -> bool:
    return header.record_count <= header.last_offset_delta or header.delete_horizon_ms is not None
