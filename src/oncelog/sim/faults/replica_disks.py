"""Faults that other replicas make up for: a disk that fails for good, and power that fails where nobody syncs."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final

from oncelog.core.controller.replicas.leadership import is_settled
from oncelog.sim.faults.brokers import POWER
from oncelog.sim.faults.fault import Fault, Kind, broker_of, image_of, span
from oncelog.sim.virtual.world import World

LONGEST_WAIT_MS: Final = 10_000
"""The longest wait for all in-sync sets to be full."""
_STEP_MS: Final = 100


async def _failing_disk(world: World, fault: Fault) -> None:
    """Every read and every write fails with EIO, until the disk is mended: the broker ends with the first."""
    files = broker_of(world, fault).files
    files.is_failing = True
    await span(fault)
    files.is_failing = False


async def _power_cut_in_full_sets(world: World, fault: Fault) -> None:
    """A machine loses power while every replica is in sync: what it has not synced, others have in memory. Where sets
    are not full for long there is no such moment, and nothing happens; nor is it one while the tree has yet to take
    those out of their sets that have come back from a death."""
    for _ in range(LONGEST_WAIT_MS // _STEP_MS):
        if _all_in_sync(world):
            await POWER["power-cut"](world, fault)
            return
        await asyncio.sleep(_STEP_MS / 1_000)


def _all_in_sync(world: World) -> bool:
    image = image_of(world)
    partitions = [partition for topic in image.topics.values() for partition in topic.partitions]
    full = all(
        len(partition.isr) == len(partition.replicas) and is_settled(partition, image.brokers)
        for partition in partitions
    )
    return full and all(broker.is_up for broker in world.brokers)


REPLICA_DISKS: Final[Mapping[str, Kind]] = {
    "failing-disk": _failing_disk,
    "power-cut-in-full-sets": _power_cut_in_full_sets,
}
