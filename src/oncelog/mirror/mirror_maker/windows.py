"""Reads windows of a source and its copy, and keeps the last pair of windows: most groups stand near each other."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final

from oncelog.base.ids import TopicPartition
from oncelog.client.aio.client import AsyncClient
from oncelog.client.aio.consumer import AsyncConsumer
from oncelog.client.errors import BrokerRefused
from oncelog.client.machine.positions import FetchSettings
from oncelog.client.machine.requests import LATEST
from oncelog.client.programs.log_offsets import offsets_at
from oncelog.mirror.framing import visible_records
from oncelog.mirror.mirror_maker.alignment import Fingerprint, Pair, align
from oncelog.mirror.mirror_maker.findings import CopyFacts

_TIME: Final = struct.Struct(">q")
_MARGIN: Final = 1000
"""Offsets read beyond the last one of interest: the copy of a record may be followed by markers."""


async def read_fingerprints(
    client: AsyncClient, partition: TopicPartition, start: int, end: int, *, read_committed: bool, with_time: bool
) -> list[Fingerprint]:
    """Digests of key, value, headers and (``with_time``) timestamp of the records from ``start`` to before ``end``."""
    records: list[Fingerprint] = []
    if read_committed and start < end:
        # Records of an open transaction are not readable yet.
        end = min(end, (await offsets_at(client, {partition: LATEST}, read_committed=True))[partition])
    if start >= end:
        return records
    async with AsyncConsumer(client, FetchSettings(read_committed=read_committed, old_formats=True)) as consumer:
        await consumer.assign({partition: start}, until={partition: end})
        while len(consumer.positions):
            for fetched in await consumer.poll():
                if fetched.error_code:
                    raise BrokerRefused(fetched.error_code, f"fetch from {partition} at {fetched.position}")
                for raw in visible_records(fetched, read_committed=read_committed):
                    if start <= raw.offset < end:
                        time = _TIME.pack(raw.timestamp) if with_time else b""
                        records.append(Fingerprint(raw.offset, blake2b(time + raw.rest, digest_size=12).digest()))
    return records


@dataclass(frozen=True, slots=True)
class _Window:
    copy: CopyFacts
    source: tuple[int, int]
    target: tuple[int, int]
    pairs: list[Pair]

    def covers(self, copy: CopyFacts, source: tuple[int, int], target: tuple[int, int]) -> bool:
        inside = self.source[0] <= source[0] and source[1] <= self.source[1]
        return self.copy is copy and inside and self.target[0] <= target[0] and target[1] <= self.target[1]


class Windows:
    def __init__(self, source: AsyncClient, target: AsyncClient, most_records: int) -> None:
        self._source, self._target, self._most = source, target, most_records
        self._kept: _Window | None = None

    async def pairs(self, copy: CopyFacts, upstream: int, downstream: int, *, with_time: bool) -> list[Pair] | None:
        """The pairs around a translation, from the nearest sync before both offsets on. None if it is too far to read.

        Both sides are read from there to past the offsets. The source is read uncommitted, as MirrorMaker may do.
        """
        base = copy.history.nearest(upstream, downstream)
        low = (base.upstream, base.downstream) if base else (copy.source_bounds.start, copy.target_bounds.start)
        reach = max(upstream - low[0], downstream - low[1], 0) + _MARGIN
        source = max(low[0], copy.source_bounds.start), min(low[0] + reach, copy.source_bounds.end)
        target = max(low[1], copy.target_bounds.start), min(low[1] + reach, copy.target_bounds.end)
        if reach - _MARGIN > self._most:
            return None
        if self._kept is None or not self._kept.covers(copy, source, target):
            originals = await read_fingerprints(
                self._source, copy.source, *source, read_committed=False, with_time=with_time
            )
            copies = await read_fingerprints(
                self._target, copy.target, *target, read_committed=True, with_time=with_time
            )
            self._kept = _Window(copy, source, target, align(originals, copies))
        return self._kept.pairs
