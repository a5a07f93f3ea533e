"""A live tail: the records appended to partitions from a moment on, with the outcomes of their transactions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Final, TypeVar

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import TopicPartition
from oncelog.base.units import MIB
from oncelog.client.blocking.client import LATEST, Client
from oncelog.client.blocking.fetcher import Fetcher
from oncelog.client.errors import BrokerRefused, ClientError
from oncelog.client.machine.positions import Fetched, FetchSettings
from oncelog.console.records.matching import matching_records
from oncelog.console.records.read_lock import ANSWER_MS, held
from oncelog.console.records.record_filter import RecordFilter
from oncelog.console.records.record_states import UNDECIDED, UNREADABLE, StoredRecord, decided_states
from oncelog.console.records.search import Hit
from oncelog.console.records.transaction_outcomes import Outcomes, Settled
from oncelog.records.batch import iter_headers

# It keeps its positions while the cluster does not answer, and goes on there. Where the log has gone back behind them,
# or its records were deleted, it goes on at the end and says so.

T = TypeVar("T")
TAIL_ROWS: Final = 100  # At most this many records of one response are shown; the others are counted.
_POLL_MS: Final = 500


class Tail:
    def __init__(
        self, client: Client, partitions: Sequence[TopicPartition], record_filter: RecordFilter, committed: bool
    ) -> None:
        """Begin at the ends of the partitions; ``committed``: read committed records alone. Raises ClientError."""
        self._client, self._filter, self._committed = client, record_filter, committed
        self._positions = self._ends(partitions)
        self._fetcher: Fetcher | None = None
        self._outcomes = Outcomes()
        self._lost: list[TopicPartition] = []  # Their positions are no longer in the log.
        self.has_resumed = False  # The last step was the first one after a failure.
        self._has_failed = False

    def __enter__(self) -> Tail:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._drop_fetcher()

    def step(self, show: Callable[[Hit], T]) -> list[T | Settled | str]:
        """The events of a moment: hits as ``show`` returns them, outcomes of earlier ones, and sentences. Raises
        ClientError; another step may succeed then."""
        try:
            if self._fetcher is None:
                settings = FetchSettings(_POLL_MS, 1, 4 * MIB, MIB, read_committed=self._committed)
                self._fetcher = Fetcher(self._client, settings)
                self._fetcher.assign(self._positions)
            if self._lost:
                ends = self._ends(self._lost)
                self._positions |= ends
                self._fetcher.add(ends)
                self._lost = []
            self._fetcher.wait(_POLL_MS)
            # Keep no record of a response after the lock is released.
            with held():
                events = [event for fetched in self._fetcher.arrived(ANSWER_MS) for event in self._take(fetched, show)]
        except ClientError:
            self._has_failed = True
            self._drop_fetcher()
            raise
        self.has_resumed, self._has_failed = self._has_failed, False
        return events

    def _take(self, fetched: Fetched, show: Callable[[Hit], T]) -> list[T | Settled | str]:
        partition = fetched.partition
        if fetched.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            self._lost.append(partition)
            return [f"{partition} no longer has offset {fetched.position}; the tail goes on at its end"]
        if fetched.error_code:
            raise BrokerRefused(fetched.error_code, f"records of {partition}")
        rows, settled, left_out = self._scan(fetched)
        self._positions[partition] = fetched.next_offset
        events: list[T | Settled | str] = [show(Hit(partition, row)) for row in rows]
        if left_out:
            events.append(f"{left_out} more records of {partition} are not shown")
        return events + settled

    def _scan(self, fetched: Fetched) -> tuple[list[StoredRecord], list[Settled], int]:
        """The records to show, the outcomes of earlier ones, and the number of records left out."""
        rows: dict[int, StoredRecord] = {}
        settled: list[Settled] = []
        left_out = 0
        states = decided_states(fetched) if self._committed else {}
        for at, header in iter_headers(fetched.records):
            if header.next_offset <= fetched.position:
                continue
            if header.is_control:
                for outcome in self._outcomes.settled_by(fetched, at, header):
                    if outcome.offset in rows:
                        rows[outcome.offset] = replace(rows[outcome.offset], state=outcome.state)
                    else:
                        settled.append(outcome)
                continue
            if len(rows) >= TAIL_ROWS and not self._filter.conditions:
                left_out += max(header.record_count, 0)  # The count is the producer's claim and is only shown.
                continue
            for row in matching_records(fetched, at, header, states.get(at, UNDECIDED), self._filter):
                if (row.offset < fetched.position and row.state != UNREADABLE) or not self._filter.allows(row.state):
                    continue
                if len(rows) >= TAIL_ROWS:
                    left_out += 1
                    continue
                rows[row.offset] = row
                if row.state == UNDECIDED:
                    self._outcomes.wait_for(fetched.partition, header.producer_id, row.offset)
        return [row for row in rows.values() if self._filter.allows(row.state)], settled, left_out

    def _ends(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        listed = self._client.list_offsets(dict.fromkeys(partitions, LATEST), read_committed=self._committed)
        return {partition: at.offset for partition, at in listed.items()}

    def _drop_fetcher(self) -> None:
        if self._fetcher is not None:
            self._fetcher.close()
            self._fetcher = None
