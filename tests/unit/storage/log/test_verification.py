"""Damaged batches are found where they lie."""

from __future__ import annotations

import pytest

from oncelog.base.ids import Offset
from oncelog.storage.log.read import first_damaged
from tests.unit.storage.support import World, batch

PATH = "t-0/00000000000000000000.log"
HEADER = 61


def three() -> tuple[World, int]:
    """Three batches of three records each, and the size of one."""
    world = World()
    for _ in range(3):
        world.append(batch([b"a", b"b", b"c"]))
    return world, (world.memory.size(PATH) or 0) // 3


def test_sound_batches_are_sound() -> None:
    world, _ = three()
    assert first_damaged(world.log, Offset(0), 1 << 20) is None
    assert first_damaged(world.log, Offset(9), 1 << 20) is None


@pytest.mark.parametrize("number", [0, 1, 2])
def test_the_first_damaged_batch_is_found_by_its_checksum(number: int) -> None:
    world, size = three()
    world.memory.flip_bit(PATH, 8 * (number * size + HEADER + 3))
    assert first_damaged(world.log, Offset(0), 1 << 20) == 3 * number


def test_what_does_not_fit_is_not_looked_at() -> None:
    world, size = three()
    world.memory.flip_bit(PATH, 8 * (2 * size + HEADER + 3))
    assert first_damaged(world.log, Offset(0), 2 * size + 10) is None
    assert first_damaged(world.log, Offset(6), 1) == 6


def test_another_format_is_damage() -> None:
    world, size = three()
    world.memory.flip_bit(PATH, 8 * (size + 16))
    assert first_damaged(world.log, Offset(0), 1 << 20) == 3
