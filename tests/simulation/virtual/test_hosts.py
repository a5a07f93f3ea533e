"""Worlds of several broker hosts: each has a machine of its own, and they can reach each other, or not."""

from __future__ import annotations

import asyncio

import pytest

from oncelog.sim.faults.fault import Fault
from oncelog.sim.faults.plan import ALL_KINDS, BY_NAME, OF_CLUSTERS, carry_out, heal, parse_plan
from oncelog.sim.seeds.simulation import is_excused
from oncelog.sim.virtual.tree_session import TREE
from oncelog.sim.virtual.world import ClientHost, World

TIMEOUT_MS = 6_000


def world_of(brokers: int, session_timeout_ms: int | None = None) -> World:
    world = World(7, {}, brokers=brokers, session_timeout_ms=session_timeout_ms)
    for broker in world.brokers:
        broker.start_until_up()
    return world


def up(world: World) -> list[bool]:
    return [broker.is_up for broker in world.brokers]


def fault(kind: str, broker: int, amount: int = 0, span_ms: int = 1_000) -> Fault:
    """A fault that hits the broker with this id; ``amount`` is the part of the choice that says how much."""
    return Fault(0, kind, span_ms, ((broker - 1) << 24) + amount)


def test_brokers_have_ids_from_one_and_all_register_with_one_tree() -> None:
    world = world_of(3)
    assert [broker.broker_id for broker in world.brokers] == [1, 2, 3]
    assert up(world) == [True] * 3
    assert world.bootstrap == "broker-1:9092,broker-2:9092,broker-3:9092"
    assert world.tree.tree.session().children("/brokers/ids") == ["1", "2", "3"]


def test_a_registration_that_is_left_over_keeps_out_another_disk_only() -> None:
    world = World(7, {}, brokers=2, session_timeout_ms=TIMEOUT_MS)
    world.tree.outlives_processes = True
    first, second = world.brokers
    for broker in (first, second):
        broker.stays_down = True
        assert broker.start()

    async def main() -> None:
        for broker in (first, second):
            broker.kill()
        second.lose_disk()
        assert first.start()
        assert not second.start()

    world.run(main())
    [refusal] = second.deaths
    assert "is already running in this cluster" in refusal
    assert is_excused(second, refusal)
    assert not is_excused(first, refusal)


def test_disk_clock_and_chance_of_a_machine_are_its_own() -> None:
    first, second = world_of(2).brokers
    assert first.files is not second.files
    first.move_clock(5_000)
    assert first.now_ms() - second.now_ms() == 5_000
    assert first.machine.entropy is not second.machine.entropy
    alone = World(7, {})
    assert alone.broker.machine.entropy.getstate() == World(7, {}, brokers=2).broker.machine.entropy.getstate()


@pytest.mark.parametrize("kind", ["kill", "power-cut", "restart"])
def test_a_fault_hits_the_broker_that_it_names(kind: str) -> None:
    world = world_of(3)

    async def main() -> list[bool]:
        happening = asyncio.create_task(carry_out(world, [fault(kind, 2)]))
        await asyncio.sleep(0.9)
        during = up(world)
        await happening
        return during

    assert world.run(main()) == [True, False, True]
    assert up(world) == [True] * 3


def test_one_broker_stands_still_and_one_clock_jumps() -> None:
    world = world_of(3)

    async def main() -> list[bool]:
        happening = asyncio.create_task(carry_out(world, [fault("stall", 3), fault("clock-jump", 2, 400)]))
        await asyncio.sleep(0.5)
        frozen = [broker.machine.frozen for broker in world.brokers]
        await happening
        return frozen

    assert world.run(main()) == [False, False, True]
    assert [broker.machine.clock_ms for broker in world.brokers] == [0, ((1 << 24) + 400) % 20_000, 0]


class Echo(asyncio.Protocol):
    """Writes down what came, and when the connection was lost."""

    def __init__(self) -> None:
        self.seen = b""
        self.is_lost = False

    def data_received(self, data: bytes) -> None:
        self.seen += data

    def connection_lost(self, error: Exception | None) -> None:
        self.is_lost = True


API_VERSIONS = bytes.fromhex("0000000e 0012 0000 00000001 0004") + b"peer"


async def ask(host: ClientHost, port: tuple[str, int]) -> tuple[asyncio.Transport, Echo]:
    """Connect to a broker and send it an ApiVersions request."""
    transport, echo = await asyncio.get_running_loop().create_connection(Echo, *port)
    assert isinstance(transport, asyncio.Transport)
    transport.write(API_VERSIONS)
    return transport, echo


def test_a_program_on_a_broker_reaches_another_broker_unless_that_direction_is_cut() -> None:
    world = world_of(2)
    first, second = world.brokers

    async def program(host: ClientHost) -> tuple[bool, bool, bool]:
        _, echo = await ask(host, second.address)
        await host.sleep(100)
        reached = bool(echo.seen)
        transport, again = await ask(host, second.address)
        await host.sleep(100)
        again.seen = b""
        world.network.cut(second.name, first.name)
        transport.write(API_VERSIONS)
        await host.sleep(3_000)
        unheard = not again.seen
        world.network.heal(second.name, first.name)
        await host.sleep(100)
        return reached, unheard, bool(again.seen)

    assert world.run(world.on_broker(first, program)) == (True, True, True)


def test_a_program_on_a_broker_dies_with_its_process_and_its_peers_hear_of_it() -> None:
    world = world_of(2)
    first, second = world.brokers
    left: list[bool] = []

    async def program(host: ClientHost) -> None:
        await ask(host, second.address)
        await host.sleep(10_000)

    async def main() -> None:
        task = asyncio.create_task(world.on_broker(first, program))
        await asyncio.sleep(1)
        numbers = [connection.number for connection in world.network.connections_of(first.name)]
        first.kill()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.sleep(1)
        left.extend(number in world.network.connections for number in numbers)

    world.run(main())
    assert left, "the program's connection, and the broker's own to the other"
    assert not any(left)
    assert up(world) == [True, True], "it came back by itself"
    world.run(world.on_broker(first, lambda host: ask(host, second.address)))


def test_a_broker_that_is_cut_off_from_the_tree_loses_its_session_and_the_others_do_not() -> None:
    world = world_of(2, TIMEOUT_MS)
    epochs = [broker.node.cluster.broker_epoch for broker in world.brokers]
    ids = world.tree.tree.session()

    async def main() -> list[str]:
        world.network.cut("broker-1", TREE)
        await asyncio.sleep(TIMEOUT_MS / 1000 + 0.1)
        left = ids.children("/brokers/ids")
        heal(world)
        await asyncio.sleep(TIMEOUT_MS / 1000)
        return left

    assert world.run(main()) == ["2"]
    assert ids.children("/brokers/ids") == ["1", "2"]
    assert [broker.node.cluster.broker_epoch for broker in world.brokers] == [max(epochs) + 1, epochs[1]]
    sessions = [
        [report for report in broker.reports if "session of" in report or "session with" in report]
        for broker in world.brokers
    ]
    assert [len(reports) for reports in sessions] == [2, 0], "the first has lost its session and has another"


@pytest.mark.parametrize("kind", sorted({**OF_CLUSTERS, **BY_NAME}))
def test_plans_name_the_faults_of_clusters(kind: str) -> None:
    assert parse_plan(f"1 {kind} 2 3\n") == [Fault(1, kind, 2, 3)]
    world = world_of(2, TIMEOUT_MS)

    async def main() -> None:
        await carry_out(world, [fault(kind, 1, 1, 500), fault(kind, 2, 2, 500)])

    world.run(main())
    heal(world)
    assert not world.network.is_cut((TREE, "broker-2"))
    assert kind in ALL_KINDS
