"""Offsets and times that partition leaders tell: how far partitions may be read, and when their transactions began.

*Bounds* are the last stable offset and the high watermark (ListOffsets, both isolations). The *start* of an open
transaction is read at its start offset (Fetch, read_uncommitted): a producer's state has the time of its last write,
which says nothing of how long a transaction is open, since one that goes on writing looks young for ever.

Rules:

1. A partition that cannot be asked is left out of bounds, and reported; the others are answered all the same.
2. Starts are asked for with many partitions a request and little of each; a batch that is larger than what was asked
   for comes as nothing, and is asked for again with more, in the end alone, when a broker sends it whatever its size.
3. Only headers of batches are read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from oncelog.admin.transactions.broker_requests import (
    LEADERLESS,
    Question,
    Unanswered,
    ask,
    leaders,
    refusals,
    slices_of,
)
from oncelog.admin.transactions.fetches import fetch_request, partitions_in
from oncelog.base.errors import ErrorCode
from oncelog.base.ids import TopicName, TopicPartition
from oncelog.base.units import KIB, MIB
from oncelog.client.errors import ClientError, explain
from oncelog.client.machine.requests import LATEST, list_offsets_request
from oncelog.client.programs import Cluster, Program, Sleep, operation
from oncelog.records.batch import BatchHeader, read_header
from oncelog.records.errors import CorruptBatch, TruncatedBatch
from oncelog.wire.messages.fetch import FetchResponse, PartitionData
from oncelog.wire.messages.list_offsets import ListOffsetsResponse

_PAUSE_MS: Final = 20
_LONGEST_PAUSE_MS: Final = 500
ROUNDS_BYTES: Final = (2 * KIB, 64 * KIB, MIB)
"""Bytes asked of each partition, in turn; after that, each is asked alone."""
PARTITIONS_A_REQUEST: Final = 1000
MAX_BYTES: Final = 64 * MIB

Begin = tuple[TopicPartition, int]
"""A partition and the offset where a transaction in it begins."""
_LOOK_BYTES: Final = 64 * KIB


@dataclass(frozen=True, slots=True)
class Bounds:
    """``last_stable_offset``: where readers of committed records stop. ``end_offset``: the high watermark."""

    last_stable_offset: int
    end_offset: int

    @property
    def held(self) -> int:
        """Offsets that a reader of committed records may not see yet."""
        return max(0, self.end_offset - self.last_stable_offset)


@operation
def bounds_of(
    cluster: Cluster, partitions: Iterable[TopicPartition]
) -> Program[tuple[dict[TopicPartition, Bounds], list[Unanswered]]]:
    """Bounds of partitions that the client's view has. The stable offset is asked first: it never seems ahead."""
    wanted = list(dict.fromkeys(partitions))
    led, unanswered = leaders(cluster, wanted)
    questions, isolations = [], []
    for broker, part in led.items():
        for committed in (True, False):
            message = list_offsets_request(cluster.view, dict.fromkeys(part, LATEST), part, committed)
            questions.append(Question(broker, message, f"offsets of {len(part)} partitions"))
            isolations.append(committed)
    found: dict[bool, dict[TopicPartition, int]] = {True: {}, False: {}}
    answers = yield from ask(cluster, questions)
    for (question, answer), committed in zip(answers, isolations, strict=True):
        if isinstance(answer, Unanswered):
            unanswered.append(answer)
        else:
            offsets, refused = offsets_in(answer)
            found[committed] |= offsets
            unanswered += refusals(refused, question.broker)
    both = {
        partition: Bounds(found[True][partition], found[False][partition])
        for partition in wanted
        if partition in found[True] and partition in found[False]
    }
    return both, list(dict.fromkeys(unanswered))


def offsets_in(answer: ListOffsetsResponse) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
    """Offsets, and error codes of refusals."""
    offsets, refused = {}, {}
    for topic in answer.topics:
        for one in topic.partitions:
            partition = TopicPartition(TopicName(topic.name), one.partition_index)
            if one.error_code:
                refused[partition] = one.error_code
            else:
                offsets[partition] = one.offset
    return offsets, refused


@operation
def wait_for_bounds(
    cluster: Cluster, partition: TopicPartition, until: Callable[[Bounds], bool], timeout_ms: int
) -> Program[Bounds | None]:
    """A partition's bounds once ``until`` holds of them, or as they are when the time is up; None if unanswered."""
    deadline = cluster.now_ms() + timeout_ms
    pause_ms = _PAUSE_MS
    while True:
        found, _ = yield from bounds_of(cluster, [partition])
        bounds = found.get(partition)
        if (bounds is not None and until(bounds)) or cluster.now_ms() >= deadline:
            return bounds
        yield Sleep(pause_ms)
        pause_ms = min(pause_ms * 2, _LONGEST_PAUSE_MS)


@dataclass(frozen=True, slots=True)
class Start:
    """The first record of a transaction, and its partition's bounds.

    Offsets are None where the partition could not be read.
    ``timestamp_ms`` is that of the first record, by the producer's clock or, where the topic says so, the broker's;
    None when the record is gone (deleted records, retention) or unreadable, with ``problem`` saying why.
    """

    timestamp_ms: int | None
    last_stable_offset: int | None = None
    end_offset: int | None = None
    problem: str | None = None


@operation
def read_starts(cluster: Cluster, begins: Iterable[Begin]) -> Program[dict[Begin, Start]]:
    """The start of each transaction. Every one of ``begins`` is in the result."""
    left = list(dict.fromkeys(begins))
    found: dict[Begin, Start] = {}
    for partition_bytes in ROUNDS_BYTES:
        if not left:
            return found
        left = yield from _round(cluster, left, partition_bytes, PARTITIONS_A_REQUEST, found)
    yield from _round(cluster, left, MAX_BYTES, 1, found)
    for one in left:
        found.setdefault(one, Start(None, problem="its first record could not be read"))
    return found


def _round(
    cluster: Cluster, begins: Sequence[Begin], partition_bytes: int, at_most: int, found: dict[Begin, Start]
) -> Program[list[Begin]]:
    """Ask once for all; those whose batch did not fit are returned."""
    unfit: list[Begin] = []
    questions, asked = _questions(cluster, begins, partition_bytes, at_most, found)
    answers = yield from ask(cluster, questions)
    for (_, answer), part in zip(answers, asked, strict=True):
        if isinstance(answer, Unanswered):
            found.update((one, Start(None, problem=answer.reason)) for one in part.values())
            continue
        if answer.error_code:
            found.update((one, Start(None, problem=explain(answer.error_code))) for one in part.values())
            continue
        for partition, data in partitions_in(cluster.view, answer, part):
            begin = part[partition]
            start = _start(begin[1], data)
            if start is not None:
                found[begin] = start
        unfit += [one for one in part.values() if one not in found]
    return unfit


def _questions(
    cluster: Cluster, begins: Sequence[Begin], partition_bytes: int, at_most: int, found: dict[Begin, Start]
) -> tuple[list[Question[FetchResponse]], list[dict[TopicPartition, Begin]]]:
    """Requests in which each partition appears once, and what each asks for."""
    layers: list[dict[TopicPartition, Begin]] = []
    for begin in begins:
        layer = next((layer for layer in layers if begin[0] not in layer), None)
        if layer is None:
            layers.append(layer := {})
        layer[begin[0]] = begin
    questions, asked = [], []
    for layer in layers:
        led, leaderless = leaders(cluster, layer)
        for partition in set(layer).difference(*led.values()) if leaderless else ():
            found[layer[partition]] = Start(None, problem=LEADERLESS)
        for broker, partitions in led.items():
            for part in slices_of(partitions, at_most):
                wanted = {partition: layer[partition] for partition in part}
                offsets = dict(wanted.values())
                questions.append(
                    Question(
                        broker,
                        fetch_request(cluster.view, offsets, partition_bytes, MAX_BYTES),
                        "starts of transactions",
                    )
                )
                asked.append(wanted)
    return questions, asked


def _start(offset: int, data: PartitionData) -> Start | None:
    """The start that an answer tells; None when the batch did not fit."""
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
    """The time of a batch's first record in milliseconds; None where it has none."""
    if header.is_log_append_time:
        return header.max_timestamp if header.max_timestamp >= 0 else None
    return header.base_timestamp if header.base_timestamp >= 0 else None


def read_at(cluster: Cluster, where: TopicPartition, position: int) -> Program[memoryview]:
    """The batches at ``position``, a little of them or the first one whole; asked for once. Raises ClientError."""
    leader = yield from cluster.leader(where)
    answer = yield from cluster.request(fetch_request(cluster.view, {where: position}, _LOOK_BYTES), broker=leader)
    answered = [data for _, data in partitions_in(cluster.view, answer, [where])]
    return memoryview(answered[0].records or b"" if answered else b"")  # type: ignore[arg-type]  # a buffer


@operation
def readable_before(cluster: Cluster, where: TopicPartition, position: int, stable: int) -> Program[bool]:
    """True if there are data batches from ``position`` to the last stable offset, or it cannot be told.

    Markers alone do not count: a consumer's position does not always count them either.
    """
    try:
        records = yield from read_at(cluster, where, position)
        at = 0
        while at < len(records):
            header = read_header(records, at)
            if header.base_offset >= stable:
                return False
            if not header.is_control and header.last_offset >= position:
                return True
            if header.next_offset >= stable:
                return False
            at += header.size_bytes
    except (ClientError, CorruptBatch):
        return True
    return True
