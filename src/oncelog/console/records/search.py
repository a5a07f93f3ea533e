"""A search through all records of some partitions, as a stream of hits, their outcomes and progress."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

from oncelog.admin.transactions.partition_offsets import Bounds
from oncelog.base.ids import TopicPartition
from oncelog.base.units import MIB
from oncelog.client.blocking.client import Client
from oncelog.client.blocking.fetcher import Fetcher
from oncelog.client.errors import BrokerRefused
from oncelog.client.machine.positions import Fetched, FetchSettings
from oncelog.console.records.matching import matching_records
from oncelog.console.records.read_lock import ANSWER_MS, held
from oncelog.console.records.record_filter import RecordFilter
from oncelog.console.records.record_states import MARKER, PLAIN, UNDECIDED, UNREADABLE, StoredRecord, decided_states
from oncelog.console.records.transaction_outcomes import Outcomes, Settled
from oncelog.records.batch import BatchHeader, iter_headers
from oncelog.records.errors import CorruptBatch

# "Nothing found" is reported only after everything up to the initial end was read; a search that stops earlier gives
# the offsets at which it continues. A hit above the last stable offset may get its state later (`Settled`), when the
# search has read on to the marker.

MAX_HITS: Final = 200
FETCH_BYTES: Final = 4 * MIB
PARTITION_BYTES: Final = 2 * MIB
_POLL_MS: Final = 300
_PROGRESS_MS: Final = 200
STEP_MS: Final = 1000  # Of a response that takes longer the rest is dropped, and read again after other readers.
_MAX_UNREADABLE: Final = 20


class ShownHit(NamedTuple):
    """A hit as a page shows it; a large record is cut."""

    partition: TopicPartition
    offset: int
    row: Mapping[str, Any]


class Hit(NamedTuple):
    """A matching record. Its state may be ``undecided``; a Settled follows then."""

    partition: TopicPartition
    record: StoredRecord


@dataclass(frozen=True, slots=True)
class Progress:
    """``done`` of ``total`` offsets are read; ``positions`` are the next ones by partition. ``complete``: everything
    was read. ``unreadable`` describes batches that could not be searched."""

    done: int
    total: int
    positions: Mapping[TopicPartition, int]
    hits: int
    complete: bool = False
    unreadable: tuple[str, ...] = ()


SearchEvent = Hit | ShownHit | Settled | Progress


def search(
    client: Client,
    record_filter: RecordFilter,
    positions: Mapping[TopicPartition, int],
    bounds: Mapping[TopicPartition, Bounds],
    stopped: Callable[[], bool],
    shown: Callable[[Hit], SearchEvent] = lambda hit: hit,
) -> Iterator[SearchEvent]:
    """Yield hits, their states, and a Progress now and then; the last one says whether the search is complete.

    ``shown`` converts a hit under the read lock. Raises ClientError.
    """
    run = _Search(client, record_filter, positions, bounds, stopped, shown)
    yield from run.part(
        {partition: partition_bounds.last_stable_offset for partition, partition_bounds in bounds.items()}, decided=True
    )
    yield from run.part(
        {partition: partition_bounds.end_offset for partition, partition_bounds in bounds.items()}, decided=False
    )
    yield from run.outcomes.ask_leaders(client)
    yield run.progress()


class _Search:
    def __init__(
        self,
        client: Client,
        record_filter: RecordFilter,
        positions: Mapping[TopicPartition, int],
        bounds: Mapping[TopicPartition, Bounds],
        stopped: Callable[[], bool],
        shown: Callable[[Hit], SearchEvent],
    ) -> None:
        self._shown = shown
        self._client = client
        self._filter = record_filter
        self._stopped = stopped
        self._ends = {partition: partition_bounds.end_offset for partition, partition_bounds in bounds.items()}
        self._at = {partition: min(position, self._ends[partition]) for partition, position in positions.items()}
        self._total = self._left()
        self._hits = 0
        self._unreadable: list[str] = []
        self._step_until_ms = 0
        self._has_begun = False  # The step has searched a batch.
        self._is_cut = False  # The last step dropped a part of its responses.
        self.outcomes = Outcomes()

    def part(self, until: Mapping[TopicPartition, int], *, decided: bool) -> Iterator[SearchEvent]:
        """Search up to ``until``; ``decided``: all transactions below it are decided, and leaders list the aborted
        ones."""
        at = {partition: position for partition, position in self._at.items() if position < until[partition]}
        if not at or self._is_over():
            return
        settings = FetchSettings(_POLL_MS, 1, FETCH_BYTES, PARTITION_BYTES, read_committed=decided)
        fetcher = Fetcher(self._client, settings)
        reported_ms = 0
        try:
            fetcher.assign(at, until)
            while len(fetcher) and not self._is_over():
                fetcher.wait(_POLL_MS)
                yield from self._step(fetcher, until, decided)
                if self._is_cut:
                    fetcher.assign({partition: self._at[partition] for partition in at}, until)
                if (now_ms := self._client.system.now_ms()) - reported_ms >= _PROGRESS_MS:
                    reported_ms = now_ms
                    yield self.progress()
        finally:
            fetcher.close()

    def _step(self, fetcher: Fetcher, until: Mapping[TopicPartition, int], decided: bool) -> list[SearchEvent]:
        events: list[SearchEvent] = []
        self._is_cut = False
        # Keep no record of a response after the lock is released.
        with held():
            self._has_begun = False
            self._step_until_ms = self._client.system.now_ms() + STEP_MS
            for fetched in fetcher.arrived(ANSWER_MS):
                if fetched.error_code:
                    raise BrokerRefused(fetched.error_code, f"records of {fetched.partition}")
                scanned_now = self._scan(fetched, until[fetched.partition], decided)
                events += (self._shown(event) if isinstance(event, Hit) else event for event in scanned_now)
                if self._is_cut or self._is_over():
                    break
        return events

    def progress(self) -> Progress:
        remaining = self._left()
        unreadable = tuple(self._unreadable)
        return Progress(self._total - remaining, self._total, dict(self._at), self._hits, not remaining, unreadable)

    def _left(self) -> int:
        return sum(self._ends[partition] - position for partition, position in self._at.items())

    def _is_over(self) -> bool:
        return self._hits >= MAX_HITS or self._stopped()

    def _scan(self, fetched: Fetched, until: int, decided: bool) -> Iterator[SearchEvent]:
        partition = fetched.partition

        def goes_on(header: BatchHeader) -> bool:
            # A batch may expand to many times its bytes: at least one is searched.
            is_late = self._client.system.now_ms() >= self._step_until_ms or self._stopped()
            self._is_cut = self._has_begun and is_late
            self._at[partition] = max(fetched.position, header.base_offset)
            self._has_begun = True
            return not self._is_cut

        for event in scanned(fetched, self._filter, until, None if decided else {}, self.outcomes, goes_on):
            if isinstance(event, str):
                if len(self._unreadable) < _MAX_UNREADABLE:
                    self._unreadable.append(event)
                continue
            yield event
            if isinstance(event, Hit):
                self._hits += 1
                if self._hits >= MAX_HITS:
                    self._at[partition] = min(event.record.offset + 1, until)
                    return
        if not self._is_cut:
            self._at[partition] = min(fetched.next_offset, until)


def scanned(
    fetched: Fetched,
    record_filter: RecordFilter,
    until: int,
    states: Mapping[int, str] | None,
    outcomes: Outcomes,
    goes_on: Callable[[BatchHeader], bool] = lambda header: True,  # Asked before each batch.
) -> Iterator[Hit | Settled | str]:
    """The matching records of a response below ``until``, and a sentence for each batch that cannot be read.

    ``states`` are those of its transactional batches by position; None: they are decided, and read from the response
    when a record matches. One that is missing is undecided.
    """
    for at, header in iter_headers(fetched.records):
        if header.next_offset <= fetched.position or header.base_offset >= until:
            continue
        if not goes_on(header):
            return
        try:
            if header.is_control:
                yield from outcomes.settled_by(fetched, at, header)
                if MARKER not in record_filter.states:
                    continue
            if record_filter.states and not header.is_control:
                states = decided_states(fetched) if states is None else states
                if not record_filter.allows(states.get(at, UNDECIDED) if header.is_transactional else PLAIN):
                    continue
            for record in matching_records(fetched, at, header, UNDECIDED, record_filter):
                if record.state == UNREADABLE:
                    yield f"{fetched.partition}, the batch at offset {header.base_offset}: {record.note}"
                    continue
                if not fetched.position <= record.offset < until:
                    continue
                if record.state == UNDECIDED:
                    states = decided_states(fetched) if states is None else states
                    record = replace(record, state=states.get(at, UNDECIDED))
                if not record_filter.allows(record.state):
                    continue
                if record.state == UNDECIDED:
                    outcomes.wait_for(fetched.partition, header.producer_id, record.offset)
                yield Hit(fetched.partition, record)
        except CorruptBatch as error:
            yield f"{fetched.partition}, the batch at offset {header.base_offset}: {error}"
