"""The network between simulated hosts: connections that are slow, cut one way, half open, reset, or late.

What holds, as with TCP: one direction of one connection keeps its order and loses nothing in the middle. What does not:
two connections have no order between them; what was sent before a connection broke may arrive long after its sender has
given up and connected again (KAFKA-17754), or never; the two ends may learn of the end at different times, one of them
not at all. A lost packet is a retransmission, a longer delay.
"""

from __future__ import annotations

import asyncio
import errno
import struct
import zlib
from collections import deque
from collections.abc import Callable, Iterable
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Final, Protocol

from oncelog.sim.kernel import Kernel

Address = tuple[str, int]
CURRENT_HOST: Final[ContextVar[str]] = ContextVar("oncelog_sim_host", default="client")
"""Name of the host whose code is running."""

UP: Final = "up"
"""From the client to the server."""
DOWN: Final = "down"
RETRANSMISSION_US: Final = 200_000
PRODUCE: Final = 0
FETCH: Final = 1
END_TXN: Final = 26
WRITE_TXN_MARKERS: Final = 27
_END_TXN_WITH_BUMP: Final = 5
_KEY_AND_VERSION: Final = struct.Struct(">hh")


class ServerEnd(Protocol):
    """Who serves a connection."""

    def received(self, data: bytes) -> None:
        """Bytes came."""

    def closed(self) -> None:
        """The client is gone; nothing more comes."""


Acceptor = Callable[["Connection"], ServerEnd]


@dataclass(frozen=True, slots=True)
class NetworkConditions:
    """What the network is like. Delays in microseconds, one way."""

    least_us: int = 100
    most_us: int = 1_000
    lost: float = 0.0
    """How often a packet has to be sent again."""
    split: float = 0.02
    """How often what was written at once arrives in two parts."""
    repeated: float = 0.0
    """How often a request that may be repeated also arrives on a connection of its own, later."""


class Direction:
    """One way of one connection: first in, first out, each with its delay."""

    __slots__ = ("_arrive", "_cut_by", "_held", "_last_us", "_network", "ended", "name")

    def __init__(self, network: Network, name: str, arrive: Callable[[bytes | None], None]) -> None:
        self._network = network
        self.name = name
        self._arrive = arrive
        self._last_us = 0
        self._held: deque[bytes | None] = deque()
        self._cut_by: set[str] = set()
        self.ended = False

    def put(self, data: bytes | None) -> None:
        """Send bytes, or None: the end."""
        if self.ended:
            return
        self.ended = data is None
        if self._cut_by:
            self._held.append(data)
            return
        network = self._network
        if data is not None and len(data) > 1 and network.draw() < network.conditions.split:
            at = network.pick(1, len(data) - 1)
            self._carry(data[:at])
            data = data[at:]
        self._carry(data)

    def cut(self, why: str) -> None:
        """Hold what is sent from now on, until this reason is gone, and every other."""
        self._cut_by.add(why)

    def is_cut(self, why: str) -> bool:
        """Whether it is, for this reason."""
        return why in self._cut_by

    def heal(self, why: str | None = None) -> None:
        """This reason is gone (None: all are); when it was the last, what was held goes on its way."""
        if why is None:
            self._cut_by.clear()
        else:
            self._cut_by.discard(why)
        if self._cut_by:
            return
        while self._held:
            self._carry(self._held.popleft())

    def forget(self) -> None:
        """What is held will not come any more."""
        self._held.clear()

    def _carry(self, data: bytes | None) -> None:
        kernel = self._network.kernel
        at_us = max(self._last_us, kernel.now_us + self._network.delay_us())
        self._last_us = at_us
        kernel.at(at_us, self._arrived, data)

    def _arrived(self, data: bytes | None) -> None:
        what = "end" if data is None else f"{len(data)} {zlib.crc32(data):08x}"
        self._network.kernel.trace(f"{self.name} {what}")
        self._arrive(data)


class Connection:
    """Two directions and their two ends."""

    def __init__(self, network: Network, number: int, client: str, server: Address) -> None:
        self.number = number
        self.client = client
        self.server = server
        self._network = network
        self._server_end: ServerEnd | None = None
        self._server_closed = False
        self.transport: ClientTransport | None = None
        self.up = Direction(network, f"{client}#{number}>", self._at_server)
        self.down = Direction(network, f"{client}#{number}<", self._at_client)

    # The server's side

    def accept(self, acceptor: Acceptor) -> None:
        """The server takes the connection."""
        self._server_end = acceptor(self)

    def send(self, data: bytes) -> None:
        """The server sends."""
        if not self._server_closed:
            self.down.put(data)

    def close(self) -> None:
        """The server closes, after what it has sent."""
        if not self._server_closed:
            self._server_closed = True
            self.down.put(None)
            self._network.gone(self)

    # Trouble

    def reset(self, *, deliver: bool) -> None:
        """Break it for both. With ``deliver`` what the client had sent still arrives first."""
        transport = self.transport
        if transport is not None:
            transport.lose(ConnectionResetError(errno.ECONNRESET, "connection reset by peer"))
        if deliver:
            self.up.put(None)
            self.up.heal()
        else:
            self._server_is_told()

    def server_died(self, *, silent_us: int) -> None:
        """The server is gone at once; the client learns of it after a while."""
        self._server_end = None
        self._server_closed = True
        self._network.gone(self)
        if self.transport is not None:
            error = ConnectionResetError(errno.ECONNRESET, "connection reset by peer")
            self._network.kernel.after(silent_us, self.transport.lose, error)

    def client_died(self, *, silent: bool) -> None:
        """The client is gone; the server hears of it, or waits for ever (half open)."""
        if self.transport is not None:
            self.transport.dead = True
        if not silent:
            self.up.put(None)
        self.down.forget()

    def _at_server(self, data: bytes | None) -> None:
        if self._server_end is None:
            return
        if data is None:
            self._server_is_told()
        else:
            self._server_end.received(data)

    def _server_is_told(self) -> None:
        end, self._server_end = self._server_end, None
        self._server_closed = True
        self._network.gone(self)
        if end is not None:
            end.closed()

    def _at_client(self, data: bytes | None) -> None:
        if self.transport is not None:
            self.transport.arrived(data)


class ClientTransport(asyncio.Transport):
    """The client's end, as asyncio has it."""

    def __init__(self, connection: Connection, protocol: asyncio.Protocol) -> None:
        super().__init__()
        self._connection = connection
        self._protocol = protocol
        self._closing = False
        self._lost = False
        self._paused: list[bytes | None] | None = None
        self.dead = False
        """Its host is gone: nothing is sent or received any more."""

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if not self._closing and not self.dead:
            self._connection.up.put(bytes(data))

    def writelines(self, list_of_data: Iterable[Any]) -> None:
        frame = b"".join(list_of_data)
        self.write(frame)
        if not self.dead:
            self._connection._network.sent(self._connection, frame)

    def close(self) -> None:
        if not self._closing:
            self._closing = True
            if not self.dead:
                self._connection.up.put(None)
            self._connection._network.kernel.soon(self.lose, None)

    def abort(self) -> None:
        self.close()

    def lose(self, error: Exception | None) -> None:
        """Tell the protocol of the end, once."""
        self._closing = True
        if not self._lost:
            self._lost = True
            self._protocol.connection_lost(error)

    def arrived(self, data: bytes | None) -> None:
        """Bytes came from the server, or the end."""
        if self._lost or self.dead:
            return
        if self._paused is not None:
            self._paused.append(data)
        elif data is not None:
            self._protocol.data_received(data)
        elif not self._protocol.eof_received():
            self.close()

    def is_closing(self) -> bool:
        return self._closing or self._connection._network.over

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        assert isinstance(protocol, asyncio.Protocol)
        self._protocol = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        return self._protocol

    def pause_reading(self) -> None:
        if self._paused is None:
            self._paused = []

    def resume_reading(self) -> None:
        waiting, self._paused = self._paused, None
        for data in waiting or ():
            self.arrived(data)

    def is_reading(self) -> bool:
        return self._paused is None

    def can_write_eof(self) -> bool:
        return False

    def get_write_buffer_size(self) -> int:
        return 0


def may_be_repeated(frame: bytes) -> bool:
    """Whether the protocol promises that a second copy changes nothing, however late it comes.

    Produce with sequences is recognised, EndTxn since v5 by its epoch, an administrator's marker by the start offset
    (those without are sent only for producers that are dead). Most others may do harm when they are late, by Kafka's
    design: an offset commit goes back, AddPartitionsToTxn of Transactions V1 opens a transaction again.
    """
    api_key, version = _KEY_AND_VERSION.unpack_from(frame, 4) if len(frame) >= 8 else (-1, -1)
    return api_key in (PRODUCE, FETCH, WRITE_TXN_MARKERS) or (api_key == END_TXN and version >= _END_TXN_WITH_BUMP)


class Network:
    """All connections, and the weather."""

    def __init__(self, kernel: Kernel, usual: NetworkConditions) -> None:
        self.kernel = kernel
        self.usual = usual
        """The weather when nothing is wrong."""
        self.conditions = usual
        self.connections: dict[int, Connection] = {}
        """Those that at least one end believes in, by number."""
        self.dead: set[str] = set()
        """Hosts that are gone for good: nothing comes from them any more."""
        self.over = False
        """The simulation has ended: nobody has a connection to close any more."""
        self._entropy = kernel.entropy("network")
        self._listening: dict[Address, Acceptor] = {}
        self._cuts: set[tuple[str, str]] = set()
        self._silent: set[Address] = set()
        self._count = 0

    def draw(self) -> float:
        """A number in [0, 1)."""
        return self._entropy.random()

    def pick(self, least: int, most: int) -> int:
        """A number in [least, most]."""
        return self._entropy.randint(least, most)

    def delay_us(self) -> int:
        """How long the next packet takes."""
        conditions = self.conditions
        delay = conditions.least_us + int(self._entropy.random() * (conditions.most_us - conditions.least_us))
        while conditions.lost and self._entropy.random() < conditions.lost:
            delay += RETRANSMISSION_US
        return delay

    # Servers

    def listen(self, address: Address, acceptor: Acceptor) -> None:
        """Serve an address."""
        self._listening[address] = acceptor
        self._silent.discard(address)

    def stop_listening(self, address: Address, *, silent: bool) -> None:
        """Nobody listens any more: connecting is refused, or (``silent``) nothing answers at all."""
        self._listening.pop(address, None)
        if silent:
            self._silent.add(address)

    # Clients

    async def connect(
        self, protocol_factory: Callable[[], asyncio.Protocol], host: str, port: int
    ) -> tuple[asyncio.Transport, asyncio.Protocol]:
        """A connection from the host that asks. Raises OSError; hangs where nothing answers."""
        loop = asyncio.get_running_loop()
        client, address = CURRENT_HOST.get(), (host, port)
        if client in self.dead:
            raise OSError(errno.ENETDOWN, "the host is down")
        established = loop.create_future()
        self.kernel.after(2 * self.delay_us(), self._syn, established, client, address)
        connection: Connection = await established
        protocol = protocol_factory()
        transport = ClientTransport(connection, protocol)
        connection.transport = transport
        protocol.connection_made(transport)
        return transport, protocol

    def _syn(self, established: asyncio.Future[Connection], client: str, address: Address) -> None:
        if established.done():
            return
        if address in self._silent or (client, UP) in self._cuts or (client, DOWN) in self._cuts:
            self.kernel.after(RETRANSMISSION_US, self._syn, established, client, address)
            return
        acceptor = self._listening.get(address)
        if acceptor is None:
            established.set_exception(ConnectionRefusedError(errno.ECONNREFUSED, "connection refused"))
            return
        established.set_result(self.shadow(client, address, acceptor))

    def shadow(self, client: str, address: Address, acceptor: Acceptor | None = None) -> Connection:
        """A connection without a client's end: what is put into ``up`` arrives, answers go nowhere."""
        self._count += 1
        connection = Connection(self, self._count, client, address)
        self.connections[connection.number] = connection
        accept = acceptor or self._listening.get(address)
        if accept is not None:
            connection.accept(accept)
        return connection

    def gone(self, connection: Connection) -> None:
        """The server's end of it is closed."""
        self.connections.pop(connection.number, None)

    def sent(self, connection: Connection, frame: bytes) -> None:
        """A client has written one request."""
        if self.conditions.repeated and self.draw() < self.conditions.repeated and may_be_repeated(frame):
            self.kernel.after(self.pick(1, 2_000_000), self._repeat, connection, frame)

    def _repeat(self, connection: Connection, frame: bytes) -> None:
        if connection.server in self._listening:
            self.shadow(connection.client, connection.server).up.put(frame)

    # Trouble

    def of(self, client: str) -> list[Connection]:
        """A host's connections."""
        return [connection for connection in self.connections.values() if connection.client == client]

    def cut(self, client: str, way: str) -> None:
        """Nothing gets through from (or to) a host until :meth:`heal`; what is sent meanwhile comes after it."""
        self._cuts.add((client, way))
        for connection in self.of(client):
            (connection.up if way == UP else connection.down).cut(way)

    def heal(self, client: str, way: str) -> None:
        """The way is free again."""
        self._cuts.discard((client, way))
        for connection in self.of(client):
            (connection.up if way == UP else connection.down).heal(way)

    def heal_all(self) -> None:
        """Every way is free, and the weather good."""
        self.conditions = self.usual
        self._cuts.clear()
        for connection in list(self.connections.values()):
            connection.up.heal()
            connection.down.heal()
