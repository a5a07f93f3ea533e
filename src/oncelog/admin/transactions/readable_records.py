"""Counts the records left for readers of committed records: offsets also number markers, aborted records and holes.

Fetches use read_committed, and aborted records are left out. Batches count by their headers; only those at the ends of
the range are decoded. The work is bounded: ``MOST_OFFSETS`` of a partition, ``PARTITION_BYTES`` per answer, ``ROUNDS``
answers. A partition that does not reach the last stable offset within these bounds, or cannot be read, is left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from oncelog.admin.transactions.broker_requests import BrokerRequest, Unanswered, leaders, send_requests
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
"""Bytes requested of a broker in a round."""
ROUNDS: Final = 4
"""Several, because a broker answers from one segment at a time."""
_LARGEST_BATCH: Final = 4 * MIB


@operation
def count_records(
    cluster: Cluster, positions: Mapping[TopicPartition, int], stable: Mapping[TopicPartition, int]
) -> Program[dict[TopicPartition, int]]:
    """The records between each position and its last stable offset, for partitions that could be counted."""
    gaps = {partition: stable[partition] - position for partition, position in positions.items() if partition in stable}
    counts = {partition: 0 for partition, gap in gaps.items() if gap <= MOST_OFFSETS}
    done = {partition for partition in counts if gaps[partition] <= 0}
    at = {partition: positions[partition] for partition in counts if partition not in done}
    for _ in range(ROUNDS):
        if not at:
            break
        at = yield from _round(cluster, at, stable, counts, done)
    return {partition: count for partition, count in counts.items() if partition in done}


def _round(
    cluster: Cluster,
    at: Mapping[TopicPartition, int],
    stable: Mapping[TopicPartition, int],
    counts: dict[TopicPartition, int],
    done: set[TopicPartition],
) -> Program[dict[TopicPartition, int]]:
    """Fetch once from all. Returns the partitions to fetch again, with their positions."""
    led, _ = leaders(cluster, at)
    requests = [
        BrokerRequest(
            broker,
            fetch_request(
                cluster.view,
                {partition: at[partition] for partition in part},
                PARTITION_BYTES,
                MAX_BYTES,
                read_committed=True,
            ),
            f"records of {len(part)} partitions",
        )
        for broker, part in led.items()
    ]
    left = {}
    answers = yield from send_requests(cluster, requests)
    for _, answer in answers:
        if isinstance(answer, Unanswered) or answer.error_code:
            continue
        results = fetched_in(cluster.view, answer, at)
        # A full answer may leave partitions out; an empty partition otherwise has nothing left.
        is_full = sum(len(fetched.records) for fetched in results) > MAX_BYTES // 2
        for fetched in results:
            partition = fetched.partition
            counted = None if fetched.error_code else _count(fetched, stable[partition])
            if counted is None:
                continue
            counts[partition] += counted
            if fetched.next_offset >= stable[partition] or not (fetched.records or is_full):
                done.add(partition)
            else:
                left[partition] = fetched.next_offset
    return left


def _count(fetched: Fetched, until: int) -> int | None:
    count, position, records = 0, fetched.position, fetched.records
    try:
        for at, header in visible_batches(fetched, read_committed=True):
            if header.base_offset >= until:
                break
            if header.base_offset >= position and header.last_offset < until:
                count += header.record_count
            else:
                inside = read_records(records, at, header, _LARGEST_BATCH)
                count += sum(position <= record.offset < until for record in inside)
    except CorruptBatch:
        return None
    return count
