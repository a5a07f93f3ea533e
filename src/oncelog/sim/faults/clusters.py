"""Faults of whole brokers and of their connections."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from itertools import chain
from typing import Final

from oncelog.sim.faults.fault import (
    Fault,
    Kind,
    bring_back,
    broker_of,
    cut,
    down_for,
    end_txn_answered,
    other_brokers,
    span,
    take_down,
    under_conditions,
)
from oncelog.sim.virtual.broker_host import BrokerHost
from oncelog.sim.virtual.network.conditions import NetworkConditions
from oncelog.sim.virtual.tree_session import TREE
from oncelog.sim.virtual.world import World

LONGEST_START_MS: Final = 10_000
_STEP_MS: Final = 100


async def _power_cut_of_all(world: World, fault: Fault) -> None:
    # All machines lose power at once, and come back one after another.
    struck = [broker for broker in world.brokers if take_down(broker, BrokerHost.lose_power)]
    await span(fault)
    first = fault.choice % max(len(struck), 1)
    for broker in (*struck[first:], *struck[:first]):
        bring_back(broker)
        await asyncio.sleep((fault.choice >> 8) % 2_000 / 1_000)


async def _kill_of_all(world: World, fault: Fault) -> None:
    struck = [broker for broker in world.brokers if take_down(broker)]
    await span(fault)
    for broker in struck:
        bring_back(broker)


async def _rolling_restart(world: World, fault: Fault) -> None:
    # Each broker in turn stops cleanly and starts again, as in an upgrade.
    for broker in world.brokers:
        if take_down(broker, BrokerHost.shut_down):
            await _wait_until_up(broker, up=False)
            bring_back(broker)
            await _wait_until_up(broker, up=True)
            await asyncio.sleep(fault.choice % 4_000 / 1_000)


async def _wait_until_up(broker: BrokerHost, *, up: bool) -> None:
    for _ in range(LONGEST_START_MS // _STEP_MS):
        if broker.is_up is up:
            return
        await asyncio.sleep(_STEP_MS / 1_000)


async def _frozen_past_session(world: World, fault: Fault) -> None:
    # A process freezes until its session has expired, and continues without knowing.
    broker = broker_of(world, fault)
    broker.freeze()
    await asyncio.sleep((world.tree.timeout_ms or 0) / 1_000)
    await span(fault)
    broker.thaw()


async def _frozen_at_end_txn(world: World, fault: Fault) -> None:
    # The same at the moment an EndTxn response leaves: a replaced coordinator sends the markers when it continues.
    broker = broker_of(world, fault)
    if not broker.is_up or broker.records.response_trigger is not None:
        return  # another fault waits for a response
    if not await end_txn_answered([broker], broker.freeze):
        return
    await asyncio.sleep((world.tree.timeout_ms or 0) / 1_000)
    await span(fault)
    broker.thaw()


async def _tree_isolated(world: World, fault: Fault) -> None:
    # A broker and the tree cannot reach each other, usually for longer than the session timeout.
    name = broker_of(world, fault).name
    if fault.choice & 3:
        fault = Fault(fault.at_ms, fault.kind, fault.span_ms + (world.tree.timeout_ms or 0), fault.choice)
    await cut(world, fault, (name, TREE), (TREE, name))


async def _broker_isolated(world: World, fault: Fault) -> None:
    # A broker and the other brokers cannot reach each other. Clients and the tree reach all of them.
    broker = broker_of(world, fault)
    both_ways = (((broker.name, other.name), (other.name, broker.name)) for other in other_brokers(world, broker))
    await cut(world, fault, *chain.from_iterable(both_ways))


async def _slow_follower(world: World, fault: Fault) -> None:
    # Bytes from the other brokers to one broker take up to a second.
    broker = broker_of(world, fault)
    most_us = 1_000 * (50 + fault.choice % 1_000)
    pairs = [(other.name, broker.name) for other in other_brokers(world, broker)]
    with under_conditions(world, pairs, NetworkConditions(most_us // 2, most_us)):
        await span(fault)


async def _late_changes(world: World, fault: Fault) -> None:
    # A broker learns of commits seconds late: its watches fire late, or are read late.
    machine = broker_of(world, fault).machine
    machine.changes_late_us = 1_000 * (fault.choice % 5_000)
    await span(fault)
    machine.changes_late_us = 0


async def _lose_disk(world: World, fault: Fault) -> None:
    def end(broker: BrokerHost) -> None:
        if broker.is_up:
            broker.kill()
        broker.lose_disk()

    await down_for(world, fault, end)


async def _lose_disk_with_late_fetches(world: World, fault: Fault) -> None:
    # The same, while fetches of the process are in flight.
    broker = broker_of(world, fault)
    # Fetches of the empty replica arrive after its return, before it has copied anything.
    late = NetworkConditions(500_000, 3_000_000)
    others = [other.name for other in other_brokers(world, broker)]
    with under_conditions(world, [(broker.name, other) for other in others], late):
        await asyncio.sleep((500 + fault.choice % 2_000) / 1_000)
    with under_conditions(world, [(other, broker.name) for other in others], late):
        await _lose_disk(world, Fault(fault.at_ms, fault.kind, 1, fault.choice))
        await span(fault)


ALL_BROKERS: Final[Mapping[str, Kind]] = {
    "kill-of-all": _kill_of_all,
    "power-cut-of-all": _power_cut_of_all,
    "rolling-restart": _rolling_restart,
}
PATHS: Final[Mapping[str, Kind]] = {"broker-isolated": _broker_isolated, "slow-follower": _slow_follower}
SESSIONS: Final[Mapping[str, Kind]] = {
    "frozen-past-session": _frozen_past_session,
    "late-changes": _late_changes,
    "tree-isolated": _tree_isolated,
}
# Runs by name only: seeds do not draw it.
FROZEN_AT_END_TXN: Final[Mapping[str, Kind]] = {"frozen-at-end-txn": _frozen_at_end_txn}
# A run draws one of them at most once, and only if every record is on two disks by then.
LOST_DISK: Final[Mapping[str, Kind]] = {"lose-disk": _lose_disk, "lose-disk-unheard": _lose_disk_with_late_fetches}
