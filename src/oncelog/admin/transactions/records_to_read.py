"""Records that readers of committed records still get, counted: offsets also number markers, aborted records and holes.

Rules:

1. It is asked with read_committed, as a consumer asks, and what is aborted is left out as a consumer leaves it out.
2. Batches count by their headers; those at both ends of the range alone are decoded.
3. It is bounded: ``MOST_OFFSETS`` of a partition, ``PARTITION_BYTES`` an answer, ``ROUNDS`` answers. A partition where
   that does not reach the last stable offset is left out; so is one that cannot be asked or read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from oncelog.admin.transactions.broker_requests import Question, Unanswered, ask, leaders
from oncelog.base.errors import PeerError
from oncelog.base.ids import TopicName, TopicPartition
from oncelog.base.units import KIB, MIB
from oncelog.client.blocking.client import Client
from oncelog.client.machine.consumed_records import visible_batches
from oncelog.client.machine.positions import Fetched
from oncelog.client.machine.whole_batches import whole_batches
from oncelog.records.errors import CorruptBatch
from oncelog.records.record import read_records
from oncelog.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData

MOST_OFFSETS: Final = 5_000
PARTITION_BYTES: Final = 256 * KIB
MAX_BYTES: Final = 2 * MIB
"""Bytes asked of a broker in a round."""
ROUNDS: Final = 4
"""A broker answers from one segment at a time."""
_READ_COMMITTED: Final = 1
_LARGEST_BATCH: Final = 4 * MIB


def count_records(
    client: Client, positions: Mapping[TopicPartition, int], stable: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """The records from each position to its last stable offset, of the partitions where they could be counted."""
    gaps = {where: stable[where] - position for where, position in positions.items() if where in stable}
    counts = {where: 0 for where, gap in gaps.items() if gap <= MOST_OFFSETS}
    done = {where for where in counts if gaps[where] <= 0}
    at = {where: positions[where] for where in counts if where not in done}
    for _ in range(ROUNDS):
        if not at:
            break
        at = _round(client, at, stable, counts, done)
    return {where: count for where, count in counts.items() if where in done}


def _round(
    client: Client,
    at: Mapping[TopicPartition, int],
    stable: Mapping[TopicPartition, int],
    counts: dict[TopicPartition, int],
    done: set[TopicPartition],
) -> dict[TopicPartition, int]:
    """Ask once for all; the partitions to ask again, with their positions."""
    led, _ = leaders(client, at)
    questions = [
        Question(broker, _request(client, part, at), f"records of {len(part)} partitions")
        for broker, part in led.items()
    ]
    left = {}
    for _, answer in ask(client, questions):
        if isinstance(answer, Unanswered) or answer.error_code:
            continue
        found = _fetched(client, answer, at)
        is_full = sum(len(one.records) for one in found) > MAX_BYTES // 2
        for one in found:
            where = one.partition
            counted = None if one.error_code else _count(one, stable[where])
            if counted is None:
                continue
            counts[where] += counted
            if one.next_offset >= stable[where] or not (one.records or is_full):
                done.add(where)
            else:
                left[where] = one.next_offset
    return left


def _request(client: Client, part: Sequence[TopicPartition], at: Mapping[TopicPartition, int]) -> FetchRequest:
    topics: dict[TopicName, FetchTopic] = {}
    for where in part:
        topic = topics.get(where.topic)
        if topic is None:
            topic = topics[where.topic] = FetchTopic(
                topic=where.topic, topic_id=bytes(client.view.topic_id(where.topic))
            )
        topic.partitions.append(
            FetchPartition(partition=where.partition, fetch_offset=at[where], partition_max_bytes=PARTITION_BYTES)
        )
    return FetchRequest(max_bytes=MAX_BYTES, isolation_level=_READ_COMMITTED, topics=list(topics.values()))


def _fetched(client: Client, answer: FetchResponse, at: Mapping[TopicPartition, int]) -> list[Fetched]:
    names = client.view.topic_ids({where.topic for where in at}) or {}
    found = []
    for topic in answer.responses:
        name = TopicName(topic.topic) if topic.topic else names.get(bytes(topic.topic_id))
        for data in topic.partitions:
            where = None if name is None else TopicPartition(name, data.partition_index)
            if where is not None and where in at:
                found.append(_whole(where, at[where], data))
    return found


def _whole(where: TopicPartition, position: int, data: PartitionData) -> Fetched:
    records = memoryview(data.records or b"")  # type: ignore[arg-type]  # decoded ones are buffers
    error_code, size, following = data.error_code, 0, position
    try:
        size, following = whole_batches(records, position)
    except PeerError:
        error_code = error_code or -1
    aborted = [(one.producer_id, one.first_offset) for one in data.aborted_transactions or ()]
    bounds = data.high_watermark, data.last_stable_offset, data.log_start_offset
    return Fetched(where, records[:size], *bounds, aborted, error_code, position, following)


def _count(fetched: Fetched, until: int) -> int | None:
    """The records of an answer before an offset; None where they cannot be read."""
    count, position, records = 0, fetched.position, fetched.records
    try:
        for at, header in visible_batches(fetched, read_committed=True):
            if header.base_offset >= until:
                break
            if header.base_offset >= position and header.last_offset < until:
                count += header.record_count
            else:
                inside = read_records(records, at, header, _LARGEST_BATCH)
                count += sum(position <= one.offset < until for one in inside)
    except CorruptBatch:
        return None
    return count
