"""Counts the records of an open transaction on its partitions, and finds out what its end sets free.

Rules:

1. Only headers of batches are read: those with the transaction's producer id and epoch count.
2. The work is bounded: ``MOST_BYTES`` in all, ``PARTITION_BYTES`` of a partition and ``MAX_BYTES`` of a broker per
   answer. A partition that is not read to its end is marked, and its counts are lower bounds.
3. A partition that cannot be read has a ``problem`` and no counts; the others are counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from oncelog.admin.transactions.broker_requests import (
    LEADERLESS,
    BrokerRequest,
    Progress,
    Unanswered,
    leaders,
    no_progress,
    send_requests,
)
from oncelog.admin.transactions.fetches import fetch_request, fetched_in
from oncelog.admin.transactions.partition_offsets import Bounds, bounds_of, timestamp_of
from oncelog.admin.transactions.producers import ProducerRow, describe_producers
from oncelog.base.ids import TopicName, TopicPartition, group_by_key
from oncelog.base.units import MIB
from oncelog.client.errors import explain
from oncelog.client.machine.positions import Fetched
from oncelog.client.machine.transaction_values import StoredTransaction
from oncelog.client.programs import Cluster, Program, operation
from oncelog.records.batch import BatchHeader, iter_headers
from oncelog.records.errors import CorruptBatch

MOST_BYTES: Final = 256 * MIB
PARTITION_BYTES: Final = MIB
MAX_BYTES: Final = 8 * MIB


@dataclass(frozen=True, slots=True)
class PartitionContents:
    """A transaction's records on one partition; field names are those of ``--json``.

    ``start_offset`` is None if the leader has no such transaction open. ``records`` and ``bytes`` are lower bounds
    unless ``is_whole``. ``first_ms`` and ``last_ms`` are times of records. ``stable_after`` is where readers of
    committed records stop once the transaction has ended: at ``held_by``, the start of the next open transaction, or at
    the end.
    """

    topic: str
    partition: int
    start_offset: int | None
    records: int = 0
    bytes: int = 0
    first_ms: int | None = None
    last_ms: int | None = None
    is_whole: bool = True
    continues_epoch: bool = False
    """True if its first sequence number is not 0: the epoch has been used on this partition before."""
    last_stable_offset: int | None = None
    end_offset: int | None = None
    stable_after: int | None = None
    held_by: int | None = None
    problem: str | None = None

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(TopicName(self.topic), self.partition)


@dataclass(frozen=True, slots=True)
class Contents:
    """The transaction's partitions in order, and requests without an answer."""

    partitions: tuple[PartitionContents, ...]
    unanswered: tuple[Unanswered, ...] = ()


class _Count:
    """The records of one transaction on one partition, as far as they are read."""

    def __init__(self, start_offset: int, end_offset: int) -> None:
        self.position, self.end_offset = start_offset, end_offset
        self.records = self.bytes = 0
        self.first_ms: int | None = None
        self.last_ms: int | None = None
        self.first_sequence: int | None = None
        self.problem: str | None = None

    @property
    def is_done(self) -> bool:
        return self.problem is not None or self.position >= self.end_offset

    def add(self, header: BatchHeader) -> None:
        if self.first_sequence is None:
            self.first_sequence = header.base_sequence
        self.records += header.record_count
        self.bytes += header.size_bytes
        first_ms = timestamp_of(header)
        if first_ms is not None:
            self.first_ms = first_ms if self.first_ms is None else min(self.first_ms, first_ms)
        if header.max_timestamp >= 0:
            self.last_ms = max(self.last_ms or 0, header.max_timestamp)


@operation
def read_contents(
    cluster: Cluster,
    stored: StoredTransaction,
    partitions: Iterable[TopicPartition],
    *,
    progress: Progress = no_progress,
) -> Program[Contents]:
    """Count the records of a transaction on the partitions that its coordinator lists."""
    listed = sorted(partitions)
    yield from cluster.metadata({partition.topic for partition in listed})
    described = yield from describe_producers(cluster, listed, open_only=True)
    bounds, unanswered = yield from bounds_of(cluster, listed)
    open_by_partition = group_by_key((row.topic_partition, row) for row in described.rows)
    counts = {}
    for partition in listed:
        own = _own(stored, open_by_partition.get(partition, ()))
        if own is not None and own.start_offset is not None and partition in bounds:
            counts[partition] = _Count(own.start_offset, bounds[partition].end_offset)
    yield from _read_all(cluster, stored, counts, progress)
    rows = [
        _contents(partition, stored, open_by_partition.get(partition, []), bounds.get(partition), counts.get(partition))
        for partition in listed
    ]
    return Contents(tuple(rows), tuple(dict.fromkeys([*described.unanswered, *unanswered])))


def _own(stored: StoredTransaction, rows: Iterable[ProducerRow]) -> ProducerRow | None:
    identity = stored[1:]
    return next((row for row in rows if (row.producer_id, row.producer_epoch) == identity), None)


def _contents(
    partition: TopicPartition,
    stored: StoredTransaction,
    rows: list[ProducerRow],
    bounds: Bounds | None,
    count: _Count | None,
) -> PartitionContents:
    topic, index = partition
    own = _own(stored, rows)
    if bounds is None:
        return PartitionContents(topic, index, None, is_whole=False, problem="its leader did not answer")
    stable, end = bounds.last_stable_offset, bounds.end_offset
    if own is None or count is None:
        # It is announced to the coordinator, and nothing was written.
        return PartitionContents(topic, index, None, last_stable_offset=stable, end_offset=end, stable_after=stable)
    held_by = min((row.start_offset for row in rows if row is not own and row.start_offset is not None), default=None)
    return PartitionContents(
        topic,
        index,
        own.start_offset,
        count.records,
        count.bytes,
        count.first_ms,
        count.last_ms,
        count.position >= count.end_offset and count.problem is None,
        bool(count.first_sequence),
        stable,
        end,
        # The marker takes the offset at the end.
        end + 1 if held_by is None else held_by,
        held_by,
        count.problem,
    )


def _read_all(
    cluster: Cluster, stored: StoredTransaction, counts: Mapping[TopicPartition, _Count], progress: Progress
) -> Program[None]:
    total = sum(count.end_offset - count.position for count in counts.values())
    left_bytes = MOST_BYTES
    idle_rounds = 0
    unread = [partition for partition, count in counts.items() if not count.is_done]
    while unread and left_bytes > 0 and idle_rounds <= len(counts):
        size = yield from _round(cluster, stored, unread, counts)
        left_bytes -= size
        # A broker sends the first partition's batch whole, whatever its size; so each is first in turn.
        idle_rounds = 0 if size else idle_rounds + 1
        unread = [partition for partition in (*unread[1:], unread[0]) if not counts[partition].is_done]
        left = sum(max(0, counts[partition].end_offset - counts[partition].position) for partition in unread)
        progress(total - left, total)


def _round(
    cluster: Cluster, stored: StoredTransaction, unread: list[TopicPartition], counts: Mapping[TopicPartition, _Count]
) -> Program[int]:
    """Fetch once from each leader. Returns the bytes read."""
    led, leaderless = leaders(cluster, unread)
    for partition in set(unread).difference(*led.values()) if leaderless else ():
        counts[partition].problem = LEADERLESS
    positions = {partition: counts[partition].position for partition in unread}
    requests = [
        BrokerRequest(
            broker,
            fetch_request(
                cluster.view, {partition: positions[partition] for partition in part}, PARTITION_BYTES, MAX_BYTES
            ),
            f"records of {len(part)} partitions",
        )
        for broker, part in led.items()
    ]
    size = 0
    answers = yield from send_requests(cluster, requests)
    for request, answer in answers:
        if isinstance(answer, Unanswered) or answer.error_code:
            reason = answer.reason if isinstance(answer, Unanswered) else explain(answer.error_code)
            for partition in led[request.broker]:
                counts[partition].problem = reason
            continue
        for fetched in fetched_in(cluster.view, answer, positions):
            _add(stored, fetched, counts[fetched.partition])
            size += len(fetched.records)
    return size


def _add(stored: StoredTransaction, fetched: Fetched, count: _Count) -> None:
    if fetched.error_code:
        count.problem = explain(fetched.error_code) if fetched.error_code > 0 else "its records are damaged"
        return
    identity = stored[1:]
    try:
        for _, header in iter_headers(fetched.records):
            own = (header.producer_id, header.producer_epoch) == identity and header.is_transactional
            if own and not header.is_control and header.base_offset < count.end_offset:
                count.add(header)
    except CorruptBatch as error:
        count.problem = f"its records are damaged: {error}"
        return
    count.position = fetched.next_offset
