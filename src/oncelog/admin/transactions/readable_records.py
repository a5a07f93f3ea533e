"""Records that readers of committed records still get, counted: offsets also number markers, aborted records and holes.

Rules:

1. It is asked with read_committed, as a consumer asks, and what is aborted is left out as a consumer leaves it out.
2. Batches count by their headers; those at both ends of the range alone are decoded.
3. It is bounded: ``MOST_OFFSETS`` of a partition, ``PARTITION_BYTES`` an answer, ``ROUNDS`` answers. A partition where
   that does not reach the last stable offset is left out; so is one that cannot be asked or read.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from oncelog.admin.transactions.broker_requests import Question, Unanswered, ask, leaders
from oncelog.admin.transactions.fetches import fetch_request, fetched_in
from oncelog.base.ids import TopicPartition
from oncelog.base.units import KIB, MIB
from oncelog.client.machine.consumed_records import visible_batches
from oncelog.client.machine.positions import Fetched
from oncelog.client.programs import Cluster, Program, operation
from oncelog.records.errors import CorruptBatch
from oncelog.records.record import read_records

MOST_OFFSETS: Final = 5_000
PARTITION_BYTES: Final = 256 * KIB
MAX_BYTES: Final = 2 * MIB
"""Bytes asked of a broker in a round."""
ROUNDS: Final = 4
"""A broker answers from one segment at a time."""
_LARGEST_BATCH: Final = 4 * MIB


@operation
def count_records(
    cluster: Cluster, positions: Mapping[TopicPartition, int], stable: Mapping[TopicPartition, int]
) -> Program[dict[TopicPartition, int]]:
    """The records from each position to its last stable offset, of the partitions where they could be counted."""
    gaps = {where: stable[where] - position for where, position in positions.items() if where in stable}
    counts = {where: 0 for where, gap in gaps.items() if gap <= MOST_OFFSETS}
    done = {where for where in counts if gaps[where] <= 0}
    at = {where: positions[where] for where in counts if where not in done}
    for _ in range(ROUNDS):
        if not at:
            break
        at = yield from _round(cluster, at, stable, counts, done)
    return {where: count for where, count in counts.items() if where in done}


def _round(
    cluster: Cluster,
    at: Mapping[TopicPartition, int],
    stable: Mapping[TopicPartition, int],
    counts: dict[TopicPartition, int],
    done: set[TopicPartition],
) -> Program[dict[TopicPartition, int]]:
    """Ask once for all; the partitions to ask again, with their positions."""
    led, _ = leaders(cluster, at)
    questions = [
        Question(
            broker,
            fetch_request(
                cluster.view, {where: at[where] for where in part}, PARTITION_BYTES, MAX_BYTES, read_committed=True
            ),
            f"records of {len(part)} partitions",
        )
        for broker, part in led.items()
    ]
    left = {}
    answers = yield from ask(cluster, questions)
    for _, answer in answers:
        if isinstance(answer, Unanswered) or answer.error_code:
            continue
        found = fetched_in(cluster.view, answer, at)
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
