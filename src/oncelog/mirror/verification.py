"""Compares source and target: every record that both still have, by ranges of the mirror's maps.

A source record is compared with the record at its mapped target offset. The checksum covers time, key, value and
headers as stored in the batch: equal sums mean equal records in equal order. Records before either log's start are left
out, and of compacted topics those that one side has lost.
"""

from __future__ import annotations

import re
import struct
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final

from oncelog.base.ids import TopicName, TopicPartition
from oncelog.client.aio.client import AsyncClient
from oncelog.client.aio.consumer import AsyncConsumer
from oncelog.client.errors import BrokerRefused
from oncelog.client.machine.positions import FetchSettings
from oncelog.client.machine.requests import EARLIEST
from oncelog.client.programs.log_offsets import offsets_at
from oncelog.mirror.framing import visible_records
from oncelog.mirror.offset_map import MappedRun
from oncelog.mirror.positions_topic import CopiedPartition
from oncelog.mirror.settings import Cluster
from oncelog.mirror.stored_positions import stored_positions
from oncelog.mirror.topic_sync import topic_configs

_TIME: Final = struct.Struct(">q")
_FETCH: Final = FetchSettings(
    max_bytes=8 * 1024 * 1024, partition_max_bytes=4 * 1024 * 1024, read_committed=True, old_formats=True
)


@dataclass(frozen=True, slots=True)
class RangeRow:
    """One range of one partition; ends are exclusive."""

    source: str
    topic: str
    partition: int
    source_first: int
    source_end: int
    target: str
    target_first: int
    target_end: int
    source_records: int
    target_records: int
    source_checksum: str
    target_checksum: str
    is_right: bool
    first_difference: int | None
    """The first source offset whose record differs at the target, or is missing on one side."""

    @property
    def verdict(self) -> str:
        """The checksum, or where the sides differ."""
        return self.source_checksum if self.is_right else f"differs from {self.first_difference}"


async def verify_copies(
    source: Cluster, target: Cluster, topics: re.Pattern[str], range_records: int
) -> AsyncIterator[RangeRow]:
    """Compare every partition mirrored from ``source``, range by range. Raises ClientError."""
    async with (
        AsyncClient(source.bootstrap_servers, config=source.config) as at_source,
        AsyncClient(target.bootstrap_servers, config=target.config) as at_target,
    ):
        positions = await stored_positions(at_target, source.alias)
        for partition in sorted(positions.partitions):
            if topics.fullmatch(partition.topic):
                async for row in _verify(
                    source.alias, at_source, at_target, positions.partitions[partition], range_records
                ):
                    yield row


async def _verify(
    alias: str, source: AsyncClient, target: AsyncClient, copied: CopiedPartition, range_records: int
) -> AsyncIterator[RangeRow]:
    source_partition = copied.partition
    target_partition = TopicPartition(TopicName(copied.target), source_partition.partition)
    starts = (
        await offsets_at(source, {source_partition: EARLIEST}),
        await offsets_at(target, {target_partition: EARLIEST}),
    )
    compacted = await _is_compacted(source, source_partition.topic) or await _is_compacted(
        target, target_partition.topic
    )
    left, right = _Reader(source, source_partition), _Reader(target, target_partition)
    try:
        for runs in _ranges(copied, starts[0][source_partition], starts[1][target_partition], range_records):
            first, last = runs[0], runs[-1]
            at_source = await left.read(first.source, last.source + last.records)
            at_target = await right.read(first.target, last.target + last.records)
            yield _compare(alias, copied, runs, at_source, at_target, compacted)
    finally:
        await left.close()
        await right.close()


def _ranges(copied: CopiedPartition, source_start: int, target_start: int, most: int) -> Iterator[list[MappedRun]]:
    """The runs that both logs still have, cut at the later start, in ranges of about ``most`` records."""
    waiting: list[MappedRun] = []
    size = 0
    for run in copied.offsets.runs():
        gone = min(run.records, max(0, source_start - run.source, target_start - run.target))
        rest = MappedRun(run.source + gone, run.target + gone, run.records - gone)
        while rest.records:
            taken = min(rest.records, most - size)
            waiting.append(MappedRun(rest.source, rest.target, taken))
            rest = MappedRun(rest.source + taken, rest.target + taken, rest.records - taken)
            size += taken
            if size >= most:
                yield waiting
                waiting, size = [], 0
    if waiting:
        yield waiting


def _compare(
    alias: str,
    copied: CopiedPartition,
    runs: list[MappedRun],
    at_source: Mapping[int, bytes],
    at_target: Mapping[int, bytes],
    compacted: bool,
) -> RangeRow:
    sums, counts = (blake2b(digest_size=8), blake2b(digest_size=8)), [0, 0]
    difference: int | None = None
    mapped = set()
    for run in runs:
        for index in range(run.records):
            source_sum, target_sum = at_source.get(run.source + index), at_target.get(run.target + index)
            mapped.add(run.source + index)
            if compacted and (source_sum is None or target_sum is None):
                continue
            for side, checksum in enumerate((source_sum, target_sum)):
                if checksum is not None:
                    sums[side].update(checksum)
                    counts[side] += 1
            if source_sum != target_sum and difference is None:
                difference = run.source + index
    extra = [offset for offset in at_source if offset not in mapped]
    if extra:
        counts[0] += len(extra)
        difference = min(extra) if difference is None else min(difference, *extra)
    first, last = runs[0], runs[-1]
    return RangeRow(
        alias,
        copied.partition.topic,
        copied.partition.partition,
        first.source,
        last.source + last.records,
        copied.target,
        first.target,
        last.target + last.records,
        counts[0],
        counts[1],
        sums[0].hexdigest(),
        sums[1].hexdigest(),
        difference is None,
        difference,
    )


class _Reader:
    def __init__(self, client: AsyncClient, partition: TopicPartition) -> None:
        self._client = client
        self._partition = partition
        self._consumer: AsyncConsumer | None = None
        self._ahead: dict[int, bytes] = {}
        self._next = -1

    async def read(self, first: int, end: int) -> dict[int, bytes]:
        """Checksums by offset, from ``first`` to before ``end``."""
        if self._consumer is None:
            self._consumer = AsyncConsumer(self._client, _FETCH)
            await self._consumer.assign({self._partition: first})
            self._next = first
        while self._next < end:
            for fetched in await self._consumer.poll():
                if fetched.error_code:
                    raise BrokerRefused(fetched.error_code, f"fetch from {fetched.partition} at {fetched.position}")
                for raw in visible_records(fetched):
                    self._ahead[raw.offset] = blake2b(_TIME.pack(raw.timestamp) + raw.rest, digest_size=8).digest()
                self._next = fetched.next_offset
        taken = {offset: checksum for offset, checksum in self._ahead.items() if first <= offset < end}
        self._ahead = {offset: checksum for offset, checksum in self._ahead.items() if offset >= end}
        return taken

    async def close(self) -> None:
        if self._consumer is not None:
            await self._consumer.close()


async def _is_compacted(client: AsyncClient, topic: str) -> bool:
    policy = (await topic_configs(client, [topic])).get(topic, {}).get("cleanup.policy")
    return policy is not None and "compact" in (policy.value or "")
