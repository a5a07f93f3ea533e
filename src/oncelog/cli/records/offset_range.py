"""The offset range that a command reads: from its start to the end or to a time."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from oncelog.base.ids import TopicPartition
from oncelog.cli.support.offset_or_time import Start

if TYPE_CHECKING:
    from oncelog.client.blocking.client import Client


def start_offsets(
    client: Client, partitions: Iterable[TopicPartition], start: Start, read_committed: bool
) -> dict[TopicPartition, int]:
    from oncelog.client.blocking.client import EARLIEST, LATEST
    from oncelog.client.machine.requests import offset_query

    chosen = list(partitions)
    if start.offset is not None:
        return dict.fromkeys(chosen, start.offset)

    def listed(timestamp: int) -> dict[TopicPartition, int]:
        listed_offsets = client.list_offsets(dict.fromkeys(chosen, timestamp), read_committed=read_committed)
        return {partition: answer.offset for partition, answer in listed_offsets.items()}

    if start.keyword == "beginning":
        return listed(EARLIEST)
    latest = listed(LATEST)
    if start.timestamp_ms is not None:
        at_time = listed(offset_query(start.timestamp_ms))
        return {p: latest[p] if offset < 0 else offset for p, offset in at_time.items()}
    if start.before_end is not None:
        return {p: max(first, latest[p] - start.before_end) for p, first in listed(EARLIEST).items()}
    return latest


def stop_offsets(
    client: Client,
    partitions: Iterable[TopicPartition],
    until_ms: int | None,
    stop_at_end: bool,
    read_committed: bool,
) -> dict[TopicPartition, int] | None:
    """The offset to stop before in each partition; None to read for ever."""
    from oncelog.client.blocking.client import LATEST
    from oncelog.client.machine.requests import offset_query

    chosen = list(partitions)
    if until_ms is None and not stop_at_end:
        return None
    ends = client.list_offsets(dict.fromkeys(chosen, LATEST), read_committed=read_committed)
    stops = {partition: answer.offset for partition, answer in ends.items()}
    if until_ms is not None:
        timed = client.list_offsets(dict.fromkeys(chosen, offset_query(until_ms)), read_committed=read_committed)
        stops |= {partition: answer.offset for partition, answer in timed.items() if answer.offset >= 0}
    return stops
