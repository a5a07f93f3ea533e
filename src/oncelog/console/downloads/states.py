"""States of all transactional batches of a selection, before they are read: a file cannot be corrected later.

Below the last stable offset each answer of a leader says them. Above it the markers are read first, batch headers and
the few bytes of markers, and leaders are asked what is open. What neither tells is ``ended``, or ``undecided`` where
not all of the markers could be looked through.
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
from oncelog.console.records.read_lock import read_in_turns
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

MOST_MARKERS: Final = 200_000
_POLL_MS: Final = 300
_Producer = tuple[TopicPartition, int]


class States:
    """The outcomes of the transactions whose batches a selection has."""

    def __init__(self) -> None:
        self._markers: dict[_Producer, list[tuple[int, str]]] = {}
        self._opened: dict[_Producer, int] = {}
        self._without: dict[TopicPartition, str] = {}

    def look_ahead(self, client: Client, selection: Selection, stopped: Stopped) -> None:
        """Read the markers above the last stable offsets. Raises ClientError."""
        after = {
            where: max(selection.start[where], stable)
            for where, stable in selection.stable.items()
            if max(selection.start[where], stable) < selection.until[where]
        }
        if selection.committed or not after:
            return
        until = {where: selection.until[where] for where in after}
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
            return read <= selection.most_bytes and markers <= MOST_MARKERS and not stopped()

        fetcher = Fetcher(client, settings)
        try:
            fetcher.assign(after, until)
            read_in_turns(fetcher, _POLL_MS, take)
        finally:
            fetcher.close()
        found = describe_producers(client, sorted(after), open_only=True)
        self._opened = {
            (row.where, row.producer_id): row.start_offset for row in found.rows if row.start_offset is not None
        }
        unsure = found.failed | {where for where, position in at.items() if position < until[where]}
        self._without = dict.fromkeys(unsure, UNDECIDED)

    def of(self, fetched: Fetched, decided: bool) -> dict[int, str]:
        """The state of each batch of an answer, by its position in it; markers among them mean nothing."""
        known = decided_states(fetched) if decided else {}
        return {
            at: (known[at] if decided else self._above(fetched.partition, header)) if header.is_transactional else PLAIN
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
                continue  # The transaction stays without an outcome; the download names the batch.
            if outcome is not None:
                self._markers.setdefault((fetched.partition, header.producer_id), []).append(
                    (header.base_offset, outcome)
                )
                count += 1
        return count

    def _above(self, where: TopicPartition, header: BatchHeader) -> str:
        """The state of a batch above the last stable offset: by the next marker of its producer, else by its leader."""
        key = (where, header.producer_id)
        markers = self._markers.get(key, [])
        at = bisect_right(markers, (header.base_offset, COMMITTED))
        if at < len(markers):
            return markers[at][1]
        begins = self._opened.get(key)
        return OPEN if begins is not None and header.base_offset >= begins else self._without.get(where, ENDED)
