"""A disk that is full refuses an append whole, wherever in the append it fills up: nothing has changed, and the same
append succeeds when there is room. Found by ``oncelog sim`` (full-disk): an abort marker without its index entry."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import pytest

from oncelog.sim.checkers.disk.observer import check_disk
from oncelog.storage.log.partition_log import PartitionLog
from oncelog.storage.log_config import LogConfig
from tests.unit.storage.support import World, batch

CONFIG = LogConfig(segment_bytes=400, index_interval_bytes=50)


def _appends(world: World) -> Iterator[Callable[[], object]]:
    """Transactions of two producers, every second one aborted, over several segments."""
    for number in range(8):
        producer, sequence = 7 + number % 2, number // 2
        yield partial(_write, world, producer, sequence)
        yield partial(world.mark, producer, committed=number % 4 < 2)


def _write(world: World, producer: int, sequence: int) -> None:
    world.append(batch(producer=producer, epoch=0, sequence=sequence, transactional=True), verified=True)


def _state(log: PartitionLog) -> tuple[object, ...]:
    segments = [
        (segment.base_offset, segment.size_bytes, list(segment.aborted))
        for segment in log.segments
        if segment.size_bytes
    ]
    return log.log_end_offset, dict(log.producers.entries), dict(log.producers.ongoing), segments


def _run(spare: int) -> tuple[World, int]:
    """All appends on a disk with ``spare`` bytes, each again with room when it was refused; how many were."""
    world = World(CONFIG)
    world.memory.capacity = world.memory.used + spare
    refused = 0
    for append in _appends(world):
        before = _state(world.log)
        try:
            append()
        except OSError:
            refused += 1
            assert _state(world.log) == before, f"{spare} bytes: something has changed"
            world.memory.capacity = None
            append()
    return world, refused


@pytest.mark.parametrize("ending", ["clean", "power cut"])
def test_a_full_disk_refuses_an_append_whole(ending: str) -> None:
    endings = []
    for spare in range(0, 2200, 29):
        world, refused = _run(spare)
        endings.append(refused)
        world.memory.disarm()
        if ending == "clean":
            world.directory.close()
        else:
            world.sync()
            world.memory.crash(spare)
        assert check_disk(world.files, torn=ending != "clean", settled=True) == {}, f"{spare} bytes to spare"
    assert endings[0] == 1
    assert endings[-1] == 0
