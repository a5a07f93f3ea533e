"""The offsets between which a command reads: from where it was told to, up to the end or a time."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from oncelog.base.ids import TopicPartition
from oncelog.cli.support.offset_or_time import Start

if TYPE_CHECKING:
    from oncelog.client.blocking.client import Client


def start_offsets(
    client: Client, partitions: Iterable[TopicPartition], where: Start, read_committed: bool
) -> dict[TopicPartition, int]:
    """The offset to begin at in each partition."""
    from oncelog.client.blocking.client import EARLIEST, LATEST
    from oncelog.client.machine.requests import offset_query

    wanted = list(partitions)
    if where.offset is not None:
        return dict.fromkeys(wanted, where.offset)

    def listed(timestamp: int) -> dict[TopicPartition, int]:
        found = client.list_offsets(dict.fromkeys(wanted, timestamp), read_committed=read_committed)
        return {partition: one.offset for partition, one in found.items()}

    if where.keyword == "beginning":
        return listed(EARLIEST)
    latest = listed(LATEST)
    if where.timestamp_ms is not None:
        at_time = listed(offset_query(where.timestamp_ms))
        return {p: latest[p] if offset < 0 else offset for p, offset in at_time.items()}
    if where.before_end is not None:
        return {p: max(first, latest[p] - where.before_end) for p, first in listed(EARLIEST).items()}
    return latest


def stop_offsets(
    client: Client,
    partitions: Iterable[TopicPartition],
    until_ms: int | None,
    stop_at_end: bool,
    read_committed: bool,
) -> dict[TopicPartition, int] | None:
    """The offset to stop before in each partition; None to go on for ever."""
    from oncelog.client.blocking.client import LATEST
    from oncelog.client.machine.requests import offset_query

    wanted = list(partitions)
    if until_ms is None and not stop_at_end:
        return None
    ends = client.list_offsets(dict.fromkeys(wanted, LATEST), read_committed=read_committed)
    stops = {partition: one.offset for partition, one in ends.items()}
    if until_ms is not None:
        timed = client.list_offsets(dict.fromkeys(wanted, offset_query(until_ms)), read_committed=read_committed)
        stops |= {partition: one.offset for partition, one in timed.items() if one.offset >= 0}
    return stops
