"""States of all transactional batches of a selection, found before they are read: a file cannot be corrected later.

Below the last stable offset every fetch response lists the aborted transactions. Above it the markers are read first
(batch headers and the few bytes of markers), and leaders are asked for open transactions. Else the state is ``ended``,
or ``undecided`` if not all markers could be read.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Final

from oncelog.admin.transactions.producers import describe_producers
from oncelog.base.ids import TopicPartition
from oncelog.client.blocking.client import Client
from oncelog.client.blocking.fetcher import Fetcher
from oncelog.client.errors import BrokerRefused
from oncelog.client.machine.positions import Fetched, FetchSettings
from oncelog.console.downloads.selection import Selection
from oncelog.console.records.read_lock import read_locked
from oncelog.console.records.record_states import (
    COMMITTED,
    ENDED,
    OPEN,
    PLAIN,
    UNDECIDED,
    decided_states,
    marker_outcome,
)
from oncelog.console.records.search import FETCH_BYTES, PARTITION_BYTES
from oncelog.console.streaming.pump import Stopped
from oncelog.records.batch import BatchHeader, iter_headers
from oncelog.records.errors import CorruptBatch

MAX_MARKERS: Final = 200_000
_POLL_MS: Final = 300
_Producer = tuple[TopicPartition, int]


class States:
    def __init__(self) -> None:
        self._markers: dict[_Producer, list[tuple[int, str]]] = {}
        self._opened: dict[_Producer, int] = {}
        self._undecided: dict[TopicPartition, str] = {}

    def read_markers(self, client: Client, selection: Selection, stopped: Stopped) -> None:
        """Read the markers above the last stable offsets. Raises ClientError."""
        after = {
            partition: max(selection.start[partition], stable)
            for partition, stable in selection.stable.items()
            if max(selection.start[partition], stable) < selection.until[partition]
        }
        if selection.committed or not after:
            return
        until = {partition: selection.until[partition] for partition in after}
        settings = FetchSettings(_POLL_MS, 1, FETCH_BYTES, PARTITION_BYTES)
        read, markers = 0, 0
        at = dict(after)

        def take(fetched: Fetched) -> bool:
            nonlocal markers, read
            if fetched.error_code:
                raise BrokerRefused(fetched.error_code, f"records of {fetched.partition}")
            markers += self._take(fetched)
            at[fetched.partition] = fetched.next_offset
            read += len(fetched.records)
            return read <= selection.most_bytes and markers <= MAX_MARKERS and not stopped()

        fetcher = Fetcher(client, settings)
        try:
            fetcher.assign(after, until)
            read_locked(fetcher, _POLL_MS, take)
        finally:
            fetcher.close()
        producers = describe_producers(client, sorted(after), open_only=True)
        self._opened = {
            (row.topic_partition, row.producer_id): row.start_offset
            for row in producers.rows
            if row.start_offset is not None
        }
        unsure = producers.failed | {partition for partition, position in at.items() if position < until[partition]}
        self._undecided = dict.fromkeys(unsure, UNDECIDED)

    def of(self, fetched: Fetched, decided: bool) -> dict[int, str]:
        """The state of each batch of a response, by its position; no meaning for markers."""
        states = decided_states(fetched) if decided else {}
        return {
            at: (states[at] if decided else self._above(fetched.partition, header))
            if header.is_transactional
            else PLAIN
            for at, header in iter_headers(fetched.records)
        }

    def _take(self, fetched: Fetched) -> int:
        count = 0
        for at, header in iter_headers(fetched.records):
            if not header.is_control:
                continue
            try:
                outcome = marker_outcome(fetched, at, header)
            except CorruptBatch:
                continue  # The transaction stays undecided; the download reports the batch as unreadable.
            if outcome is not None:
                self._markers.setdefault((fetched.partition, header.producer_id), []).append(
                    (header.base_offset, outcome)
                )
                count += 1
        return count

    def _above(self, partition: TopicPartition, header: BatchHeader) -> str:
        """The state of a batch above the last stable offset: by its producer's next marker, else by its leader."""
        key = (partition, header.producer_id)
        markers = self._markers.get(key, [])
        at = bisect_right(markers, (header.base_offset, COMMITTED))
        if at < len(markers):
            return markers[at][1]
        begins = self._opened.get(key)
        return OPEN if begins is not None and header.base_offset >= begins else self._undecided.get(partition, ENDED)
