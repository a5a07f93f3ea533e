"""Faults of one broker: its process, power, disk and clock."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from oncelog.sim.faults.fault import Fault, Kind, broker_of, down_for, span
from oncelog.sim.virtual.broker_host import BrokerHost
from oncelog.sim.virtual.network.conditions import END_TXN
from oncelog.sim.virtual.world import World


async def _kill(world: World, fault: Fault) -> None:
    await down_for(world, fault, BrokerHost.kill)


async def _power_cut(world: World, fault: Fault) -> None:
    await down_for(world, fault, BrokerHost.lose_power)


async def _power_cut_while_writing(world: World, fault: Fault) -> None:
    # The machine loses power within an event, perhaps during recovery or compaction.
    broker_of(world, fault).files.lose_power_after(fault.choice % 200)


async def _power_cut_at_sync(world: World, fault: Fault) -> None:
    # The machine loses power between a write and its sync: records acknowledged too early are gone.
    broker_of(world, fault).files.lose_power_at_sync(fault.choice % 8)


async def _kill_while_writing(world: World, fault: Fault) -> None:
    # The process is killed within an event. Its writes survive, its memory does not.
    broker_of(world, fault).files.lose_power_after(fault.choice % 200, only_process=True)


async def _damaged_files(world: World, fault: Fault) -> None:
    # The process is killed, and files that can be rebuilt (indexes, snapshots) are damaged before it restarts.
    def end(broker: BrokerHost) -> None:
        broker.kill()
        entropy = random.Random(fault.choice)
        paths = broker.files.paths(".index", ".timeindex", ".snapshot")
        for path in entropy.sample(paths, min(len(paths), 1 + fault.choice % 4)):
            broker.files.flip_bit(path, entropy.randrange(8 * (broker.files.size(path) or 0)))

    await down_for(world, fault, end)


async def _kill_at_end_txn(world: World, fault: Fault) -> None:
    # kill -9 at the moment an EndTxn response leaves. After the restart, the disk is slow for the span.
    killed = asyncio.Event()
    broker_of(world, fault).kill_at_response(END_TXN, killed.set)
    await killed.wait()
    await slower(world, fault, sync_us=(1_000, 1_000 * (1 + fault.choice % 2_000)))


async def _restart(world: World, fault: Fault) -> None:
    await down_for(world, fault, BrokerHost.shut_down)


async def _stall(world: World, fault: Fault) -> None:
    # The process freezes (SIGSTOP, garbage collection, a suspended machine) and continues.
    broker = broker_of(world, fault)
    broker.freeze()
    await span(fault)
    broker.thaw()


async def slower(world: World, fault: Fault, **spans_us: tuple[int, int]) -> None:
    """The broker's machine has other latencies (fields of ``Latencies``) for the span."""
    machine = broker_of(world, fault).machine
    machine.latencies = replace(machine.latencies, **spans_us)
    await span(fault)
    machine.latencies = machine.usual_latencies


async def _slow_disk(world: World, fault: Fault) -> None:
    most_us = 1_000 * (1 + fault.choice % 3_000)
    await slower(world, fault, sync_us=(most_us // 2, most_us), slice_us=(1_000, 200_000))


async def _slow_metadata(world: World, fault: Fault) -> None:
    most_us = 1_000 * (1 + fault.choice % 4_000)
    await slower(world, fault, metadata_us=(most_us // 2, most_us))


async def _failing_sync(world: World, fault: Fault) -> None:
    # One sync fails: the broker must stop.
    broker_of(world, fault).files.fail_syncs(1)


async def _failing_sync_then_power_cut(world: World, fault: Fault) -> None:
    # A sync fails, and one of the next loses power: the records were in the page cache only (fsyncgate).
    files = broker_of(world, fault).files
    files.fail_syncs(1)
    files.lose_power_at_sync(1 + fault.choice % 3)


async def _full_disk(world: World, fault: Fault) -> None:
    await _little_space(world, fault, fault.choice % 20_000)


async def _tight_disk(world: World, fault: Fault) -> None:
    # Leave a little space: perhaps enough for a decision, but not for its markers.
    await _little_space(world, fault, fault.choice % 1_500)


async def _little_space(world: World, fault: Fault, left_bytes: int) -> None:
    files = broker_of(world, fault).files
    files.capacity = files.used + left_bytes
    await span(fault)
    files.capacity = None


async def _clock_jump(world: World, fault: Fault) -> None:
    broker_of(world, fault).move_clock(fault.choice % 20_000)


async def _clock_set_back(world: World, fault: Fault) -> None:
    broker_of(world, fault).move_clock(-(fault.choice % 2_000))


PROCESS: Final[Mapping[str, Kind]] = {
    "damaged-files": _damaged_files,
    "kill": _kill,
    "kill-while-writing": _kill_while_writing,
    "restart": _restart,
}
POWER: Final[Mapping[str, Kind]] = {
    "power-cut": _power_cut,
    "power-cut-at-sync": _power_cut_at_sync,
    "power-cut-while-writing": _power_cut_while_writing,
}
DISK: Final[Mapping[str, Kind]] = {
    "failing-sync": _failing_sync,
    "failing-sync-power-cut": _failing_sync_then_power_cut,
    "full-disk": _full_disk,
    "slow-disk": _slow_disk,
    "slow-facts": _slow_metadata,
}
TIME: Final[Mapping[str, Kind]] = {
    "clock-jump": _clock_jump,
    "clock-set-back": _clock_set_back,
    "stall": _stall,
}
# Drawn by the workload that needs it.
BY_WORKLOADS: Final[Mapping[str, Kind]] = {"tight-disk": _tight_disk}
# Drawn for old clients.
AT_ANSWERS: Final[Mapping[str, Kind]] = {"kill-at-end-txn": _kill_at_end_txn}
