"""Reads share partitions for a ShareFetch within its limits, and acquires what it read for the member.

Reading a share partition and acquiring from it are one step: no other request comes in between, so nothing has to be
locked for it. A waiting request takes its step in ``ready``: requests are asked in order of arrival, and each record
goes to the first. Many partitions are examined and acquired from in slices.

Records are located, never read: the response holds ranges of files. The headers of their batches are read, because a
share partition acquires whole batches.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import MemberId, Offset, TopicPartition
from oncelog.core.share.model import Refusal
from oncelog.core.share.sessions import PartitionKey
from oncelog.core.share_state.model import ShareKey
from oncelog.handlers.broker.ports import LeaderLog
from oncelog.handlers.broker.shares import LedSharePartition, Shares
from oncelog.handlers.share.acknowledgements import PARTITIONS_PER_SLICE
from oncelog.storage.errors import OffsetOutOfRange
from oncelog.storage.file_range import FileRange
from oncelog.storage.log.read import read_batches
from oncelog.storage.segment.batch_scan import iter_batches
from oncelog.wire.messages.share_fetch import AcquiredRecords, PartitionData

if TYPE_CHECKING:
    from oncelog.core.share.partition import SharePartition
    from oncelog.handlers.broker.context import Context
    from oncelog.handlers.broker.waits import FetchKey
    from oncelog.records.batch import BatchHeader
    from oncelog.storage.log.partition_log import PartitionLog
    from oncelog.storage.log.read import Read

NO_RECORDS: Final = b""
_STORAGE_ERROR: Final = Refusal(ErrorCode.KAFKA_STORAGE_ERROR, "")


@dataclass(slots=True)
class ShareFetchParams:
    member_id: MemberId
    min_bytes: int
    """Bytes that a waiting request waits for; ``max_bytes`` at most."""
    max_bytes: int
    """Bytes of the whole response."""
    max_records: int
    """Acquired in the whole response; whole batches may exceed it, unless ``record_limit``."""
    batch_size: int
    record_limit: bool
    read_committed: bool


class Fetched(NamedTuple):
    partition: TopicPartition
    led: LedSharePartition


class _Readable(NamedTuple):
    """A share partition that can acquire records now."""

    key: PartitionKey
    machine: SharePartition
    leader: LeaderLog
    offset: Offset
    """The first of its next records."""


class ShareReads:
    """One request's share partitions, in the order in which they are read."""

    def __init__(self, context: Context, shares: Shares, params: ShareFetchParams) -> None:
        self._context = context
        self._shares = shares
        self._params = params
        self.fetched: dict[PartitionKey, Fetched] = {}
        self.answers: dict[PartitionKey, PartitionData] = {}
        self._keys: dict[FetchKey, PartitionKey] = {}
        self._candidates: dict[PartitionKey, None] = {}
        """The partitions that may have records to acquire."""
        self.is_done = False
        """True once records were acquired, or nothing is left to wait for."""
        self._left: deque[_Readable] = deque()
        """Readable partitions that later slices acquire from."""
        self._bytes_left, self._records_left = params.max_bytes, params.max_records
        self._share = 0
        """The bytes that each partition may return."""

    def add(self, key: PartitionKey, share_key: ShareKey, partition: TopicPartition) -> None:
        led = self._shares.led(share_key, partition)
        if isinstance(led, Refusal):
            self.fail(key, led)
        elif led is not None:
            self.fetched[key] = Fetched(partition, led)
            self._keys[partition] = self._keys[share_key] = key
            self._examine(key)

    def fail(self, key: PartitionKey, refusal: Refusal) -> None:
        self.answers[key] = PartitionData(partition_index=key[1], error_code=refusal.error_code, records=NO_RECORDS)

    @property
    def wait_keys(self) -> Sequence[FetchKey]:
        return list(self._keys)

    def searches(self) -> list[Fetched]:
        """Share partitions whose beginning has to be searched by time."""
        return [fetched for fetched in self.fetched.values() if fetched.led.search_from_ms is not None]

    def ready(self, changed: Iterable[FetchKey]) -> bool:
        """Acquire records if there are enough; True if the request need not wait any longer.

        Partitions that have not ``changed`` since the last call have nothing new: they are read only with those.
        """
        if self.is_done:
            return True
        keys = {self._keys[key] for key in changed}
        if any(self.fetched[key].led.search_from_ms is not None for key in keys):
            return True
        news = [self._examine(key) for key in keys]  # all: each may become a candidate
        return any(news) and self.try_to_acquire()

    def catch_up(self, changed: Iterable[FetchKey] | None) -> None:
        """Take notice of what has changed while partitions were added; None: it may be anything."""
        keys = self.fetched if changed is None else {self._keys[key] for key in changed if key in self._keys}
        for key in list(keys):
            self._examine(key)

    def _examine(self, key: PartitionKey) -> bool:
        """Find out whether a partition is a candidate. True if there is something to tell about it."""
        fetched = self.fetched[key]
        if fetched.led.refusal is not None:
            self.fail(key, fetched.led.refusal)
            return True
        machine = self._shares.machine_of(fetched.led)
        if machine is not None and machine.may_acquire():
            self.answers.setdefault(key, PartitionData(partition_index=key[1], records=NO_RECORDS))
        if self._readable(key, fetched) is None:
            self._candidates.pop(key, None)
            return False
        self._candidates[key] = None
        return True

    def try_to_acquire(self) -> bool:
        """Acquire if at least ``min_bytes`` can be returned, or all partitions have failed; True if so."""
        if self.is_done:
            return True
        readable, least = self._all_readable(), self._params.min_bytes
        if all(fetched.led.refusal is not None for fetched in self.fetched.values()):
            self.is_done = bool(self.answers)
        elif self._available_bytes(readable) >= least if readable else least <= 0 and bool(self.answers):
            self._acquire(readable)
        return self.is_done

    def acquire_what_there_is(self) -> None:
        """The end of the wait: acquire however few records there are."""
        if not self.is_done:
            self._acquire(self._all_readable())

    def _all_readable(self) -> list[_Readable]:
        candidates = (
            [key for key in self.fetched if key in self._candidates]
            if len(self._candidates) > 1
            else [*self._candidates]
        )
        found = (self._readable(key, self.fetched[key]) for key in candidates)
        return [readable for readable in found if readable is not None]

    def _readable(self, key: PartitionKey, fetched: Fetched) -> _Readable | None:
        machine = self._shares.machine_of(fetched.led)
        if machine is None or not machine.may_acquire():
            return None
        leader = self._context.partitions.leader_log(fetched.partition, fetched.led.leader_epoch)
        if isinstance(leader, ErrorCode):
            return None
        offset = machine.next_fetch_offset()
        if offset < leader.log.log_start_offset:
            machine.log_start_moved(leader.log.log_start_offset)
            offset = machine.next_fetch_offset()
        return _Readable(key, machine, leader, offset) if offset < self._end(leader.log) else None

    def _end(self, log: PartitionLog) -> int:
        return log.last_stable_offset if self._params.read_committed else log.high_watermark

    def _available_bytes(self, readable: Sequence[_Readable]) -> int:
        """Bytes that could be returned; ``min_bytes`` if waiting adds none."""
        least = self._params.min_bytes
        if least <= 1:
            return 1
        share, total = self._params.max_bytes // len(readable), 0
        for entry in readable:
            # A read ends with its segment, and an older segment never grows.
            if entry.offset < entry.leader.log.segments.active.base_offset:
                return least
            try:
                total += self._locate(entry, share, minimum_one=False).size_bytes
            except (OffsetOutOfRange, OSError):
                return least
        return total

    def _acquire(self, readable: Sequence[_Readable]) -> None:
        """Acquire from each partition in order: each may return an equal share of the bytes, and the first one at least
        a batch, however large."""
        self.is_done = True
        self._share = self._params.max_bytes // len(readable) if readable else 0
        self._left.extend(readable)
        self.acquires_more()

    def acquires_more(self) -> bool:
        """Acquire from the next partitions. Returns True if more are left, for after other events."""
        for _ in range(min(len(self._left), PARTITIONS_PER_SLICE)):
            if self._records_left <= 0:
                self._left.clear()
                break
            known = self._left.popleft()
            # Anything may have changed since the slice before.
            entry = self._readable(known.key, self.fetched[known.key])
            if entry is None:
                continue
            is_first = self._bytes_left == self._params.max_bytes
            most = min(self._share, self._bytes_left)
            size, count = self._acquire_from(entry, most, self._records_left, minimum_one=is_first)
            self._bytes_left = max(0, self._bytes_left - size)
            self._records_left -= count
        return bool(self._left)

    def _acquire_from(
        self, entry: _Readable, max_bytes: int, max_records: int, *, minimum_one: bool
    ) -> tuple[int, int]:
        """Acquire from one partition; the bytes and records that it returns."""
        led = self.fetched[entry.key].led
        try:
            read = self._locate(entry, max_bytes, minimum_one=minimum_one)
            # A client may ask for any number of records; the window takes so many at most.
            most = min(max_records, entry.machine.settings.max_in_flight)
            batches = _whole_batches(read.chunks, max(entry.machine.end_offset, entry.offset) + most)
        except OffsetOutOfRange:
            return 0, 0  # truncated below what the group has seen: it waits for the log to grow
        except OSError:
            self.fail(entry.key, _STORAGE_ERROR)
            return 0, 0
        if not batches:
            return 0, 0
        acquired = entry.machine.acquire(
            self._params.member_id,
            [header for _, header in batches],
            read.aborted if self._params.read_committed else (),
            fetch_offset=entry.offset,
            record_limit=self._params.record_limit,
            batch_size=self._params.batch_size,
            max_records=max_records,
            now_ms=self._shares.now_ms,
        )
        self._shares.acquired(led)
        if not acquired:
            return 0, 0
        records = _slice(read.chunks[0], batches, acquired[0].first_offset, acquired[-1].last_offset)
        self.answers[entry.key] = PartitionData(
            partition_index=entry.key[1],
            records=[records],
            acquired_records=[
                AcquiredRecords(first_offset=first, last_offset=last, delivery_count=count)
                for first, last, count in acquired
            ],
        )
        return records.size_bytes, sum(batch.record_count for batch in acquired)

    def _locate(self, entry: _Readable, max_bytes: int, *, minimum_one: bool) -> Read:
        """Raises OffsetOutOfRange, OSError."""
        return read_batches(
            entry.leader.log,
            entry.offset,
            max_bytes=max_bytes,
            isolation_read_committed=self._params.read_committed,
            minimum_one=minimum_one,
        )


def _whole_batches(chunks: Sequence[FileRange], enough: int) -> list[tuple[int, BatchHeader]]:
    """Positions and headers of the whole batches in a read, up to the one that reaches the offset ``enough``."""
    batches: list[tuple[int, BatchHeader]] = []
    for file, position, size in chunks:
        for batch in iter_batches(file, position, position + size):
            batches.append(batch)
            if batch[1].last_offset >= enough:
                return batches
    return batches


def _slice(
    chunk: FileRange, batches: Sequence[tuple[int, BatchHeader]], first_offset: int, last_offset: int
) -> FileRange:
    """The batches from the one with ``first_offset`` to the one with ``last_offset``."""
    start, end = batches[0][0], batches[0][0]
    for position, header in batches:
        if header.base_offset <= first_offset:
            start = position
        elif header.base_offset > last_offset:
            break
        end = position + header.size_bytes
    return FileRange(chunk.file, start, end - start)
