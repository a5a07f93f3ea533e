"""Processes that stand still, for long and for short, alone and together, in a cluster that is written to."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest

from oncelog.client.config import ClientConfig
from oncelog.sim.virtual.broker_host import BrokerHost
from tests.simulation.frozen.world import FrozenWorld

GOAL_S = 2.5
"""The longest pause of acknowledgements after a leader freezes."""
PAUSE_S = 1.0
"""The longest pause of a process that has no consequence."""


def run(frozen: FrozenWorld, steps: Callable[[], Awaitable[None]]) -> None:
    frozen.run(steps)
    assert frozen.violations == []


async def freeze(hosts: list[BrokerHost], seconds: float) -> None:
    for host in hosts:
        host.freeze()
    await asyncio.sleep(seconds)
    for host in hosts:
        host.thaw()


def epochs(frozen: FrozenWorld) -> dict[int, int]:
    """The registrations, by broker."""
    return {broker_id: broker.epoch for broker_id, broker in frozen.observer.journal.image.brokers.items()}


@pytest.mark.parametrize("seed", [1, 2])
def test_another_broker_leads_soon_after_the_leader_freezes_and_the_thawed_one_follows_it(seed: int) -> None:
    frozen = FrozenWorld(seed)

    async def steps() -> None:
        leader, began_s = frozen.leader(), frozen.now_s
        await freeze([leader], 4)
        assert frozen.pause_s(began_s) <= GOAL_S
        await frozen.in_sync()
        assert frozen.leader() is not leader
        assert any("agrees" in report for report in frozen.reports())

    run(frozen, steps)


@pytest.mark.parametrize("seed", [5, 6])
def test_clients_with_default_settings_find_the_new_leader_soon(seed: int) -> None:
    frozen = FrozenWorld(seed, client=ClientConfig())

    async def steps() -> None:
        leader, began_s = frozen.leader(), frozen.now_s
        await freeze([leader], 4)
        assert frozen.pause_s(began_s) <= GOAL_S
        assert frozen.pause_of_reader_s(began_s) <= GOAL_S + 0.5, "half a second may be left of the fetch's own wait"

    run(frozen, steps)


def test_a_frozen_controller_that_leads_is_replaced_as_both() -> None:
    frozen = FrozenWorld(3)

    async def steps() -> None:
        controller = next(broker for broker in frozen.world.brokers if broker.node.controller.is_controller)
        began_s = frozen.now_s
        await freeze([controller], 4)
        assert frozen.pause_s(began_s) <= GOAL_S
        await frozen.in_sync()
        assert not controller.node.controller.is_controller

    run(frozen, steps)


def test_pauses_of_a_second_have_no_consequence() -> None:
    frozen = FrozenWorld(4)

    async def steps() -> None:
        before = epochs(frozen)
        for round_ in range(6):
            await freeze([frozen.world.brokers[round_ % 3]], PAUSE_S)
            await asyncio.sleep(0.3)
        assert epochs(frozen) == before

    run(frozen, steps)


def test_a_suspended_machine_with_all_brokers_has_no_consequence() -> None:
    frozen = FrozenWorld(5)

    async def steps() -> None:
        before = epochs(frozen)
        for broker in frozen.world.brokers:
            broker.freeze()
        await asyncio.sleep(4)
        for broker in frozen.world.brokers:
            broker.thaw()
            broker.move_clock(4_000)
        await asyncio.sleep(2)
        assert epochs(frozen) == before

    run(frozen, steps)


def test_stalled_observers_do_not_end_the_leadership_of_a_sound_leader() -> None:
    frozen = FrozenWorld(6)

    async def steps() -> None:
        leader = frozen.leader()
        before = epochs(frozen)[leader.broker_id]
        others = [broker for broker in frozen.world.brokers if broker is not leader]
        for _ in range(3):
            await freeze(others, 3)
            await asyncio.sleep(0.2)
        await freeze(others[:1], 4)
        await asyncio.sleep(1)
        assert epochs(frozen)[leader.broker_id] == before

    run(frozen, steps)


def test_a_leader_that_is_cut_off_from_the_others_is_not_frozen() -> None:
    frozen = FrozenWorld(7)

    async def steps() -> None:
        leader, before = frozen.leader(), epochs(frozen)
        network = frozen.world.network
        for other in frozen.world.brokers:
            if other is not leader:
                network.cut(leader.name, other.name)
                network.cut(other.name, leader.name)
        await asyncio.sleep(10)
        network.heal_all()
        await asyncio.sleep(2)
        assert epochs(frozen) == before

    run(frozen, steps)


def test_a_leader_with_a_slow_disk_is_not_frozen() -> None:
    frozen = FrozenWorld(8, config={"log.sync.policy": "commit"})

    async def steps() -> None:
        leader, before = frozen.leader(), epochs(frozen)
        leader.machine.latencies = replace(leader.machine.latencies, sync_us=(2_000_000, 3_000_000))
        await asyncio.sleep(10)
        leader.machine.latencies = leader.machine.usual_latencies
        assert epochs(frozen) == before

    run(frozen, steps)


def test_of_two_brokers_the_other_waits_twice_as_long() -> None:
    frozen = FrozenWorld(9, brokers=2)

    async def steps() -> None:
        leader, began_s = frozen.leader(), frozen.now_s
        await freeze([leader], 5)
        assert 3.0 <= frozen.pause_s(began_s) <= 4.0
        await frozen.in_sync()
        assert any("no other broker could agree" in report for report in frozen.reports())

    run(frozen, steps)


def test_two_frozen_brokers_of_three_are_found_by_the_third() -> None:
    frozen = FrozenWorld(10)

    async def steps() -> None:
        leader = frozen.leader()
        sound = next(broker for broker in frozen.world.brokers if broker is not leader)
        others = [broker for broker in frozen.world.brokers if broker is not sound]
        for broker in others:
            broker.freeze()
        await asyncio.sleep(4)
        assert set(epochs(frozen)) == {sound.broker_id}
        for broker in others:
            broker.thaw()
        began_s = frozen.now_s
        await frozen.in_sync()
        assert frozen.now_s - began_s < GOAL_S

    run(frozen, steps)


def test_a_broker_with_nothing_to_take_over_keeps_its_registration() -> None:
    frozen = FrozenWorld(11, factor=1)

    async def steps() -> None:
        before = epochs(frozen)
        others = [broker for broker in frozen.world.brokers if not broker.node.controller.is_controller]
        await freeze(others[:1], 4)
        assert epochs(frozen) == before

    run(frozen, steps)


def test_it_can_be_turned_off() -> None:
    frozen = FrozenWorld(12, config={"oncelog.broker.freeze.timeout.ms": "0"})

    async def steps() -> None:
        before = epochs(frozen)
        await freeze([frozen.leader()], 4)
        assert epochs(frozen) == before
        assert frozen.broker(1).node.liveness.freezes is None

    run(frozen, steps)


def test_a_broker_that_does_not_take_part_keeps_its_registration() -> None:
    # After the pause it would answer requests before it reads that others lead: it counts on its session.
    frozen = FrozenWorld(13, turned_off=[1])

    async def steps() -> None:
        before = epochs(frozen)
        await freeze([frozen.broker(1)], 4)
        assert epochs(frozen) == before

    run(frozen, steps)
