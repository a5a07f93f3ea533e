"""Reads offsets and times from partition leaders: how far partitions may be read, and when transactions began.

*Bounds* are the last stable offset and the high watermark (ListOffsets at both isolation levels). The *start* of an
open transaction is read at its start offset (Fetch, read_uncommitted): a producer's state has only the time of its last
write, which makes a transaction that goes on writing look young for ever. Only headers of batches are read.

A partition that cannot be queried is left out of bounds and reported; the others are answered. Starts are requested for
many partitions at once, with little of each; a batch larger than the limit comes back empty, and is requested again
with more, at last alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from oncelog.admin.transactions.broker_requests import (
    LEADERLESS,
    BrokerRequest,
    Unanswered,
    leaders,
    refusals,
    send_requests,
    slices_of,
)
from oncelog.admin.transactions.fetches import fetch_request, fetched_in, partitions_in
from oncelog.base.errors import ErrorCode
from oncelog.base.ids import TopicName, TopicPartition
from oncelog.base.units import KIB, MIB
from oncelog.client.errors import ClientError, explain
from oncelog.client.machine.consumed_records import visible_batches
from oncelog.client.machine.requests import LATEST, list_offsets_request
from oncelog.client.programs import Cluster, Program, Sleep, operation
from oncelog.records.batch import BatchHeader, read_header
from oncelog.records.errors import CorruptBatch, TruncatedBatch
from oncelog.wire.messages.fetch import FetchResponse, PartitionData
from oncelog.wire.messages.list_offsets import ListOffsetsResponse

_PAUSE_MS: Final = 20
_LONGEST_PAUSE_MS: Final = 500
ROUNDS_BYTES: Final = (2 * KIB, 64 * KIB, MIB)
"""Bytes requested of each partition, round by round; after that, each is requested alone."""
PARTITIONS_PER_REQUEST: Final = 1000
MAX_BYTES: Final = 64 * MIB

Begin = tuple[TopicPartition, int]
"""A partition, and the start offset of a transaction in it."""
_PEEK_BYTES: Final = 64 * KIB
_PEEKS: Final = 4


@dataclass(frozen=True, slots=True)
class Bounds:
    """``last_stable_offset`` is where readers of committed records stop, ``end_offset`` the high watermark."""

    last_stable_offset: int
    end_offset: int

    @property
    def held(self) -> int:
        """Offsets that readers of committed records may not see yet."""
        return max(0, self.end_offset - self.last_stable_offset)


@operation
def bounds_of(
    cluster: Cluster, partitions: Iterable[TopicPartition]
) -> Program[tuple[dict[TopicPartition, Bounds], list[Unanswered]]]:
    """The bounds of partitions in the client's view."""
    selected = list(dict.fromkeys(partitions))
    led, unanswered = leaders(cluster, selected)
    requests, isolations = [], []
    for broker, part in led.items():
        # The stable offset first: read last, it could seem to be ahead of the end.
        for committed in (True, False):
            message = list_offsets_request(cluster.view, dict.fromkeys(part, LATEST), part, committed)
            requests.append(BrokerRequest(broker, message, f"offsets of {len(part)} partitions"))
            isolations.append(committed)
    offsets_by_isolation: dict[bool, dict[TopicPartition, int]] = {True: {}, False: {}}
    answers = yield from send_requests(cluster, requests)
    for (request, answer), committed in zip(answers, isolations, strict=True):
        if isinstance(answer, Unanswered):
            unanswered.append(answer)
        else:
            offsets, refused = offsets_in(answer)
            offsets_by_isolation[committed] |= offsets
            unanswered += refusals(refused, request.broker)
    both = {
        partition: Bounds(offsets_by_isolation[True][partition], offsets_by_isolation[False][partition])
        for partition in selected
        if partition in offsets_by_isolation[True] and partition in offsets_by_isolation[False]
    }
    return both, list(dict.fromkeys(unanswered))


def offsets_in(answer: ListOffsetsResponse) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
    offsets, refused = {}, {}
    for topic in answer.topics:
        for result in topic.partitions:
            partition = TopicPartition(TopicName(topic.name), result.partition_index)
            if result.error_code:
                refused[partition] = result.error_code
            else:
                offsets[partition] = result.offset
    return offsets, refused


@operation
def wait_for_bounds(
    cluster: Cluster, partition: TopicPartition, until: Callable[[Bounds], bool], timeout_ms: int
) -> Program[Bounds | None]:
    """A partition's bounds once ``until`` holds of them, or as they are after ``timeout_ms``; None if unanswered."""
    deadline = cluster.now_ms() + timeout_ms
    pause_ms = _PAUSE_MS
    while True:
        bounds_found, _ = yield from bounds_of(cluster, [partition])
        bounds = bounds_found.get(partition)
        if (bounds is not None and until(bounds)) or cluster.now_ms() >= deadline:
            return bounds
        yield Sleep(pause_ms)
        pause_ms = min(pause_ms * 2, _LONGEST_PAUSE_MS)


@dataclass(frozen=True, slots=True)
class Start:
    """The first record of a transaction, and its partition's bounds (None: unreadable).

    ``timestamp_ms`` is the first record's time, on the producer's clock or, depending on the topic, the broker's; None
    if it is deleted or unreadable: ``problem`` says why.
    """

    timestamp_ms: int | None
    last_stable_offset: int | None = None
    end_offset: int | None = None
    problem: str | None = None


@operation
def read_starts(cluster: Cluster, begins: Iterable[Begin]) -> Program[dict[Begin, Start]]:
    """The start of each transaction; the result has every one of ``begins``."""
    left = list(dict.fromkeys(begins))
    starts: dict[Begin, Start] = {}
    for partition_bytes in ROUNDS_BYTES:
        if not left:
            return starts
        left = yield from _round(cluster, left, partition_bytes, PARTITIONS_PER_REQUEST, starts)
    yield from _round(cluster, left, MAX_BYTES, 1, starts)
    for begin in left:
        starts.setdefault(begin, Start(None, problem="its first record could not be read"))
    return starts


def _round(
    cluster: Cluster, begins: Sequence[Begin], partition_bytes: int, at_most: int, starts: dict[Begin, Start]
) -> Program[list[Begin]]:
    """Request all of ``begins`` once. Returns those whose batch did not fit."""
    unfit: list[Begin] = []
    requests, begins_by_request = _start_requests(cluster, begins, partition_bytes, at_most, starts)
    answers = yield from send_requests(cluster, requests)
    for (_, answer), part in zip(answers, begins_by_request, strict=True):
        if isinstance(answer, Unanswered):
            starts.update((begin, Start(None, problem=answer.reason)) for begin in part.values())
            continue
        if answer.error_code:
            starts.update((begin, Start(None, problem=explain(answer.error_code))) for begin in part.values())
            continue
        for partition, data in partitions_in(cluster.view, answer, part):
            begin = part[partition]
            start = _start(begin[1], data)
            if start is not None:
                starts[begin] = start
        unfit += [begin for begin in part.values() if begin not in starts]
    return unfit


def _start_requests(
    cluster: Cluster, begins: Sequence[Begin], partition_bytes: int, at_most: int, starts: dict[Begin, Start]
) -> tuple[list[BrokerRequest[FetchResponse]], list[dict[TopicPartition, Begin]]]:
    layers: list[dict[TopicPartition, Begin]] = []
    for begin in begins:
        # Two transactions of one partition need two requests.
        layer = next((layer for layer in layers if begin[0] not in layer), None)
        if layer is None:
            layers.append(layer := {})
        layer[begin[0]] = begin
    requests, begins_by_request = [], []
    for layer in layers:
        led, leaderless = leaders(cluster, layer)
        for partition in set(layer).difference(*led.values()) if leaderless else ():
            starts[layer[partition]] = Start(None, problem=LEADERLESS)
        for broker, partitions in led.items():
            for part in slices_of(partitions, at_most):
                begins_of_request = {partition: layer[partition] for partition in part}
                offsets = dict(begins_of_request.values())
                requests.append(
                    BrokerRequest(
                        broker,
                        fetch_request(cluster.view, offsets, partition_bytes, MAX_BYTES),
                        "starts of transactions",
                    )
                )
                begins_by_request.append(begins_of_request)
    return requests, begins_by_request


def _start(offset: int, data: PartitionData) -> Start | None:
    if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
        return Start(None, problem="its first record is not in the log any more")
    if data.error_code:
        return Start(None, problem=explain(data.error_code))
    bounds = (data.last_stable_offset, data.high_watermark)
    if not data.records:
        if offset >= data.high_watermark:
            return Start(None, *bounds, problem="its first record is not replicated yet")
        return None
    try:
        header = read_header(memoryview(data.records))  # type: ignore[arg-type]  # decoded ones are buffers
    except TruncatedBatch:
        return None
    except CorruptBatch as error:
        return Start(None, *bounds, problem=f"its first record cannot be read: {error}")
    timestamp = timestamp_of(header)
    return Start(timestamp, *bounds, problem=None if timestamp is not None else "its first record has no time")


def timestamp_of(header: BatchHeader) -> int | None:
    if header.is_log_append_time:
        return header.max_timestamp if header.max_timestamp >= 0 else None
    return header.base_timestamp if header.base_timestamp >= 0 else None


def read_at(cluster: Cluster, partition: TopicPartition, position: int) -> Program[memoryview]:
    """The batches at ``position``: a few, or the first one whole. Not retried. Raises ClientError."""
    leader = yield from cluster.leader(partition)
    answer = yield from cluster.request(fetch_request(cluster.view, {partition: position}, _PEEK_BYTES), broker=leader)
    answered = [data for _, data in partitions_in(cluster.view, answer, [partition])]
    return memoryview(answered[0].records or b"" if answered else b"")  # type: ignore[arg-type]  # a buffer


@operation
def readable_before(cluster: Cluster, partition: TopicPartition, position: int, stable: int) -> Program[bool]:
    """True if readers of committed records find any from ``position`` to the last stable offset, or that is unknown."""
    try:
        leader = yield from cluster.leader(partition)
        for _ in range(_PEEKS):
            request = fetch_request(cluster.view, {partition: position}, _PEEK_BYTES, read_committed=True)
            answer = yield from cluster.request(request, broker=leader)
            for fetched in fetched_in(cluster.view, answer, {partition: position}):
                for _, header in visible_batches(fetched, read_committed=True):
                    if header.base_offset < stable and header.last_offset >= position:
                        return True
                if fetched.error_code or fetched.next_offset == position:
                    return True
                position = fetched.next_offset
            if position >= stable:
                return False
    except (ClientError, CorruptBatch):
        return True
    return True
