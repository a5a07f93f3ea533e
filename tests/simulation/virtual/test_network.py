"""The network between simulated hosts: what TCP promises holds, and nothing else does."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TypeVar

import pytest

from oncelog.sim.virtual.kernel import Kernel
from oncelog.sim.virtual.loop import SimulatedLoop
from oncelog.sim.virtual.network.conditions import ANY_HOST, NetworkConditions, may_be_repeated
from oncelog.sim.virtual.network.connection import Connection
from oncelog.sim.virtual.network.network import Network

T = TypeVar("T")
SERVER = ("server", 1)


@dataclass
class Server:
    """Writes down what came, by connection, and sends it back in capitals."""

    seen: list[tuple[int, bytes]] = field(default_factory=list)
    gone: list[int] = field(default_factory=list)
    answers: bool = True

    def accept(self, connection: Connection) -> ServerSide:
        return ServerSide(self, connection)


@dataclass
class ServerSide:
    server: Server
    connection: Connection

    def received(self, data: bytes) -> None:
        self.server.seen.append((self.connection.number, data))
        if self.server.answers:
            self.connection.send(data.upper())

    def closed(self) -> None:
        self.server.gone.append(self.connection.number)


class Client(asyncio.Protocol):
    """Writes down what came."""

    def __init__(self) -> None:
        self.seen = b""
        self.lost: list[Exception | None] = []

    def data_received(self, data: bytes) -> None:
        self.seen += data

    def connection_lost(self, error: Exception | None) -> None:
        self.lost.append(error)


@dataclass
class World:
    """One client host and one server."""

    network: Network
    server: Server

    async def connect(self) -> tuple[asyncio.WriteTransport, Client]:
        transport, client = await self.network.connect(Client, *SERVER)
        assert isinstance(transport, asyncio.WriteTransport)
        assert isinstance(client, Client)
        return transport, client


def run(story: Callable[[World], Awaitable[T]], conditions: NetworkConditions | None = None, seed: int = 1) -> T:
    kernel = Kernel(seed)
    loop = SimulatedLoop(kernel)  # type: ignore[abstract]  # what it lacks it refuses
    network = loop.network = Network(kernel, conditions or NetworkConditions(split=0))
    server = Server()
    network.listen(SERVER, server.accept)

    async def main() -> T:
        return await story(World(network, server))

    return loop.run(main())


def test_one_direction_keeps_its_order_and_loses_nothing() -> None:
    async def story(world: World) -> tuple[bytes, bytes]:
        transport, client = await world.connect()
        for number in range(50):
            transport.write(b"%d," % number)
        await asyncio.sleep(60)
        return b"".join(data for _, data in world.server.seen), client.seen

    expected = b"".join(b"%d," % number for number in range(50))
    assert run(story, NetworkConditions(most_us=50_000, lost=0.3, split=0.5)) == (expected, expected)


def test_two_connections_have_no_order_between_them() -> None:
    async def story(world: World) -> list[int]:
        (first, _), (second, _) = await world.connect(), await world.connect()
        for _ in range(10):
            first.write(b"a")
            second.write(b"b")
        await asyncio.sleep(60)
        return [number for number, _ in world.server.seen]

    numbers = run(story, NetworkConditions(most_us=50_000, split=0))
    assert sorted(numbers) == [1] * 10 + [2] * 10
    assert numbers != [1, 2] * 10


def test_what_is_sent_into_a_cut_arrives_after_it_was_mended() -> None:
    async def story(world: World) -> tuple[list[bytes], list[bytes]]:
        transport, _ = await world.connect()
        world.network.cut("client", ANY_HOST)
        transport.write(b"late")
        await asyncio.sleep(10)
        before = [data for _, data in world.server.seen]
        world.network.heal("client", ANY_HOST)
        await asyncio.sleep(1)
        return before, [data for _, data in world.server.seen]

    assert run(story) == ([], [b"late"])


def test_a_cut_one_way_lets_the_request_through_and_not_its_answer() -> None:
    async def story(world: World) -> tuple[list[bytes], bytes, bytes]:
        transport, client = await world.connect()
        world.network.cut(ANY_HOST, "client")
        transport.write(b"done")
        await asyncio.sleep(5)
        unheard = client.seen
        world.network.heal(ANY_HOST, "client")
        await asyncio.sleep(1)
        return [data for _, data in world.server.seen], unheard, client.seen

    assert run(story) == ([b"done"], b"", b"DONE")


def test_a_request_arrives_after_its_client_has_given_up_and_come_again() -> None:
    async def story(world: World) -> list[bytes]:
        transport, _ = await world.connect()
        [old] = world.network.connections_of("client")
        old.up.cut("test")
        transport.write(b"old")
        transport.close()
        again, _ = await world.connect()
        again.write(b"new")
        await asyncio.sleep(1)
        old.up.heal("test")
        await asyncio.sleep(1)
        return [data for _, data in world.server.seen]

    assert run(story) == [b"new", b"old"]


@pytest.mark.parametrize("deliver", [True, False])
def test_a_reset_breaks_it_for_both_and_may_deliver_what_was_sent(deliver: bool) -> None:
    async def story(world: World) -> tuple[list[bytes], list[int], list[type]]:
        transport, client = await world.connect()
        transport.write(b"last")
        [connection] = world.network.connections_of("client")
        connection.reset(deliver=deliver)
        await asyncio.sleep(1)
        return [data for _, data in world.server.seen], world.server.gone, [type(error) for error in client.lost]

    assert run(story) == ([b"last"] if deliver else [], [1], [ConnectionResetError])


@pytest.mark.parametrize("silent", [True, False])
def test_of_a_client_that_was_killed_the_server_hears_or_does_not(silent: bool) -> None:
    async def story(world: World) -> tuple[list[int], bytes]:
        transport, client = await world.connect()
        [connection] = world.network.connections_of("client")
        world.network.host_died("client", silent=silent)
        transport.write(b"not sent")
        connection.send(b"not received")
        await asyncio.sleep(60)
        assert world.server.seen == []
        with pytest.raises(OSError, match="host is down"):
            await world.connect()
        return world.server.gone, client.seen

    assert run(story) == ([] if silent else [1], b"")


def test_nobody_listens_or_nobody_answers() -> None:
    async def story(world: World) -> None:
        world.network.stop_listening(SERVER, silent=False)
        with pytest.raises(ConnectionRefusedError):
            await world.connect()
        world.network.stop_listening(SERVER, silent=True)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(5):
                await world.connect()
        world.network.listen(SERVER, world.server.accept)
        await world.connect()

    run(story)


def test_what_may_be_repeated_arrives_again_on_another_connection_later() -> None:
    frame = b"\x00\x00\x00\x08" + b"\x00\x00\x00\x0b" + bytes(4)

    async def story(world: World) -> list[int]:
        transport, client = await world.connect()
        transport.writelines([frame])
        await asyncio.sleep(10)
        assert client.seen == frame.upper()
        return [number for number, _ in world.server.seen]

    assert may_be_repeated(frame)
    assert run(story, NetworkConditions(repeated=1.0, split=0)) == [1, 2]


def test_an_end_of_transaction_may_be_repeated_only_with_its_epoch() -> None:
    assert may_be_repeated(b"\x00\x00\x00\x08" + b"\x00\x1a\x00\x05" + bytes(4))
    assert not may_be_repeated(b"\x00\x00\x00\x08" + b"\x00\x1a\x00\x04" + bytes(4))
    assert not may_be_repeated(b"\x00\x00")


OTHER = ("other", 1)


def test_a_cut_between_two_hosts_leaves_the_other_pairs_and_the_other_direction() -> None:
    async def story(world: World) -> tuple[list[bytes], bytes, bytes]:
        other = Server()
        world.network.listen(OTHER, other.accept)
        transport, client = await world.connect()
        beside, heard = await world.network.connect(Client, *OTHER)
        assert isinstance(beside, asyncio.WriteTransport)
        assert isinstance(heard, Client)
        world.network.cut("client", "server")
        transport.write(b"held")
        beside.write(b"through")
        [connection] = [
            connection for connection in world.network.connections_of("client") if connection.server == SERVER
        ]
        connection.send(b"down")
        await asyncio.sleep(5)
        return [data for _, data in world.server.seen], client.seen, heard.seen

    assert run(story) == ([], b"down", b"THROUGH")


def test_each_directed_pair_has_conditions_of_its_own() -> None:
    async def story(world: World) -> tuple[int, int]:
        network = world.network
        network.set_conditions("client", "server", NetworkConditions(5_000_000, 5_000_000, split=0))
        present, back = network.delay_us(("client", "server")), network.delay_us(("server", "client"))
        network.set_conditions("client", "server", None)
        assert network.delay_us(("client", "server")) < 2_000
        return present, back

    present, back = run(story)
    assert present == 5_000_000
    assert back < 2_000


def test_conditions_and_cuts_of_any_host_hold_for_all_pairs_with_it() -> None:
    async def story(world: World) -> None:
        network, slow = world.network, NetworkConditions(9, 9)
        network.set_conditions(ANY_HOST, "server", slow)
        assert network.conditions_of(("client", "server")) is network.conditions_of(("x", "server")) is slow
        assert network.conditions_of(("server", "client")) is network.usual
        network.cut("server", ANY_HOST)
        assert network.is_cut(("server", "client"))
        assert not network.is_cut(("client", "server"))
        network.heal_all()
        assert network.conditions_of(("client", "server")) is network.usual
        assert not network.is_cut(("server", "client"))

    run(story)
