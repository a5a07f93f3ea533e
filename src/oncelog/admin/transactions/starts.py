"""When an open transaction began, and what waits behind it: read at its start offset (Fetch, read_uncommitted).

A producer's state has the time of its last write, which says nothing of how long a transaction is open: one that goes
on writing looks young for ever. So the first batch is read, and with it come the partition's bounds.

The rules: many partitions a request, little of each; a batch that is larger than what was asked for comes as nothing,
and is asked for again with more, in the end alone, when a broker sends it whatever its size. Only headers are read.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from oncelog.admin.transactions.asking import LEADERLESS, Question, Told, Unanswered, ask, leaders, parted, silent
from oncelog.base.errors import ErrorCode
from oncelog.base.ids import TopicName, TopicPartition
from oncelog.base.units import KIB, MIB
from oncelog.client.blocking.client import Client
from oncelog.client.errors import explain
from oncelog.records.batch import BatchHeader, read_header
from oncelog.records.errors import CorruptBatch, TruncatedBatch
from oncelog.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData

ROUNDS_BYTES: Final = (2 * KIB, 64 * KIB, MIB)
"""What is asked of each partition, in turn; after that, each alone."""
PARTITIONS_A_REQUEST: Final = 1000
MAX_BYTES: Final = 64 * MIB

Begin = tuple[TopicPartition, int]
"""A partition and the offset where a transaction in it begins."""


@dataclass(frozen=True, slots=True)
class Start:
    """What stands at a transaction's start offset. Offsets are None where the partition could not be read.

    ``timestamp_ms`` is that of the first record, by the producer's clock or, where the topic says so, the broker's;
    None when the record is gone (deleted records, retention) or unreadable, with ``problem`` saying why.
    """

    timestamp_ms: int | None
    last_stable_offset: int | None = None
    end_offset: int | None = None
    problem: str | None = None


def read_starts(client: Client, begins: Iterable[Begin], told: Told = silent) -> dict[Begin, Start]:
    """The start of each transaction. Every one of ``begins`` is in the result."""
    left = list(dict.fromkeys(begins))
    found: dict[Begin, Start] = {}
    for partition_bytes in ROUNDS_BYTES:
        if not left:
            return found
        left = _round(client, left, partition_bytes, PARTITIONS_A_REQUEST, found, told)
    _round(client, left, MAX_BYTES, 1, found, told)
    for one in left:
        found.setdefault(one, Start(None, problem="its first record could not be read"))
    return found


def _round(
    client: Client, begins: Sequence[Begin], partition_bytes: int, at_most: int, found: dict[Begin, Start], told: Told
) -> list[Begin]:
    """Ask once for all; those whose batch did not fit are returned."""
    unfit: list[Begin] = []
    questions, asked = _questions(client, begins, partition_bytes, at_most, found)
    for (_, answer), part in zip(ask(client, questions, told), asked, strict=True):
        if isinstance(answer, Unanswered):
            found.update((one, Start(None, problem=answer.reason)) for one in part.values())
            continue
        if answer.error_code:
            found.update((one, Start(None, problem=explain(answer.error_code))) for one in part.values())
            continue
        names = client.view.topic_ids({partition.topic for partition in part}) or {}
        for topic in answer.responses:
            name = TopicName(topic.topic) if topic.topic else names.get(bytes(topic.topic_id))
            for data in topic.partitions:
                one = None if name is None else part.get(TopicPartition(name, data.partition_index))
                if one is None:
                    continue
                start = _start(one[1], data)
                if start is not None:
                    found[one] = start
        unfit += [one for one in part.values() if one not in found]
    return unfit


def _questions(
    client: Client, begins: Sequence[Begin], partition_bytes: int, at_most: int, found: dict[Begin, Start]
) -> tuple[list[Question[FetchResponse]], list[dict[TopicPartition, Begin]]]:
    """Requests in which each partition appears once, and what each asks for."""
    layers: list[dict[TopicPartition, Begin]] = []
    for one in begins:
        layer = next((layer for layer in layers if one[0] not in layer), None)
        if layer is None:
            layers.append(layer := {})
        layer[one[0]] = one
    questions, asked = [], []
    for layer in layers:
        led, leaderless = leaders(client, layer)
        for partition in set(layer).difference(*led.values()) if leaderless else ():
            found[layer[partition]] = Start(None, problem=LEADERLESS)
        for broker, partitions in led.items():
            for part in parted(partitions, at_most):
                wanted = {partition: layer[partition] for partition in part}
                questions.append(Question(broker, _request(client, wanted, partition_bytes), "starts of transactions"))
                asked.append(wanted)
    return questions, asked


def _request(client: Client, wanted: dict[TopicPartition, Begin], partition_bytes: int) -> FetchRequest:
    topics: dict[TopicName, FetchTopic] = {}
    for partition, offset in wanted.values():
        topic = topics.get(partition.topic)
        if topic is None:
            topic_id = bytes(client.view.topic_id(partition.topic))
            topic = topics[partition.topic] = FetchTopic(topic=partition.topic, topic_id=topic_id)
        topic.partitions.append(
            FetchPartition(partition=partition.partition, fetch_offset=offset, partition_max_bytes=partition_bytes)
        )
    return FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=MAX_BYTES, topics=list(topics.values()))


def _start(offset: int, data: PartitionData) -> Start | None:
    """What an answer says; None when the batch did not fit."""
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
