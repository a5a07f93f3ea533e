"""The network between simulated hosts: listeners, connections, and the conditions of every directed pair.

A host is a name: of a client (``produce0-0.1``), a broker (``broker-1``) or the coordination tree. Any host may connect
to any listener. A directed pair (from, to), with :data:`ANY_HOST` as a wildcard, may have its own conditions, and cuts,
which block one way.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Final

from oncelog.sim.virtual.kernel import Kernel
from oncelog.sim.virtual.network.conditions import (
    ANY_HOST,
    RETRANSMISSION_US,
    HostPair,
    NetworkConditions,
    may_be_repeated,
)
from oncelog.sim.virtual.network.connection import Acceptor, Address, Connection, Direction
from oncelog.sim.virtual.network.transport import ClientTransport

# The host whose code is running.
CURRENT_HOST: Final[ContextVar[str]] = ContextVar("oncelog_sim_host", default="client")


@dataclass(frozen=True, slots=True)
class ConnectionAttempt:
    """An attempt to connect: calls ``established`` or ``refused`` once, unless ``is_wanted`` has become false."""

    client: str
    address: Address
    established: Callable[[Connection], object]
    refused: Callable[[OSError], object]
    is_wanted: Callable[[], bool]


class Network:
    def __init__(self, kernel: Kernel, usual: NetworkConditions) -> None:
        self.kernel = kernel
        # The conditions without faults.
        self.usual = usual
        # Conditions of every pair without its own.
        self.conditions = usual
        # Connections that are open for at least one end, by number.
        self.connections: dict[int, Connection] = {}
        # Hosts that are down: no bytes come from them.
        self.dead: set[str] = set()
        # The simulation has ended: all connections count as closed.
        self.over = False
        self._entropy = kernel.entropy("network")
        self._listening: dict[Address, Acceptor] = {}
        self._pairs: dict[HostPair, NetworkConditions] = {}
        self._cuts: set[HostPair] = set()
        self._silent: set[Address] = set()
        self._count = 0

    def draw(self) -> float:
        return self._entropy.random()

    def pick(self, least: int, most: int) -> int:
        return self._entropy.randint(least, most)

    def delay_us(self, pair: HostPair) -> int:
        conditions = self.conditions_of(pair) if self._pairs else self.conditions
        delay = conditions.least_us + int(self._entropy.random() * (conditions.most_us - conditions.least_us))
        while conditions.lost and self._entropy.random() < conditions.lost:
            delay += RETRANSMISSION_US
        return delay

    def conditions_of(self, pair: HostPair) -> NetworkConditions:
        # The conditions from one host to another: those of the pair, of a pair with a wildcard, or of the network.
        if self._pairs:
            for candidate in (pair, (pair[0], ANY_HOST), (ANY_HOST, pair[1])):
                if candidate in self._pairs:
                    return self._pairs[candidate]
        return self.conditions

    def set_conditions(self, source: str, target: str, conditions: NetworkConditions | None) -> None:
        """Give a directed pair its own conditions; None: those of the network again."""
        if conditions is None:
            self._pairs.pop((source, target), None)
        else:
            self._pairs[source, target] = conditions

    def is_cut(self, pair: HostPair) -> bool:
        cuts = self._cuts
        return bool(cuts) and (pair in cuts or (pair[0], ANY_HOST) in cuts or (ANY_HOST, pair[1]) in cuts)

    def cut(self, source: str, target: str) -> None:
        """Block traffic from ``source`` to ``target`` until :meth:`heal`, which delivers it. New connections wait,
        whichever direction is cut.
        """
        self._cuts.add((source, target))
        for direction in self._directions(source, target):
            direction.cut((source, target))

    def heal(self, source: str, target: str) -> None:
        self._cuts.discard((source, target))
        for direction in self._directions(source, target):
            direction.heal((source, target))

    def heal_all(self) -> None:
        """End every cut, also of single connections, and restore the usual conditions."""
        self.conditions = self.usual
        self._pairs.clear()
        self._cuts.clear()
        for connection in list(self.connections.values()):
            connection.up.heal()
            connection.down.heal()

    def _directions(self, source: str, target: str) -> list[Direction]:
        return [
            direction
            for connection in self.connections.values()
            for direction in (connection.up, connection.down)
            if source in (direction.pair[0], ANY_HOST) and target in (direction.pair[1], ANY_HOST)
        ]

    def listen(self, address: Address, acceptor: Acceptor) -> None:
        self._listening[address] = acceptor
        self._silent.discard(address)

    def stop_listening(self, address: Address, *, silent: bool) -> None:
        """Close a listener: connections are refused, or (``silent``) get no response."""
        self._listening.pop(address, None)
        if silent:
            self._silent.add(address)

    def forget(self, connection: Connection) -> None:
        self.connections.pop(connection.number, None)

    def connections_of(self, client: str) -> list[Connection]:
        return [connection for connection in self.connections.values() if connection.client == client]

    def host_died(self, name: str, *, silent: bool) -> None:
        """A host is down: its connections close at the servers, unless ``silent``."""
        self.dead.add(name)
        for connection in self.connections_of(name):
            connection.client_died(silent=silent)

    def host_started(self, name: str) -> None:
        self.dead.discard(name)

    async def connect(
        self, protocol_factory: Callable[[], asyncio.Protocol], host: str, port: int
    ) -> tuple[asyncio.Transport, asyncio.Protocol]:
        """Connect from the current host, as asyncio does. Raises OSError; waits forever without a response."""
        client = CURRENT_HOST.get()
        if client in self.dead:
            raise OSError(errno.ENETDOWN, "the host is down")
        established = asyncio.get_running_loop().create_future()
        self.open(
            ConnectionAttempt(
                client, (host, port), established.set_result, established.set_exception, lambda: not established.done()
            )
        )
        connection: Connection = await established
        protocol = protocol_factory()
        transport = ClientTransport(self, connection, protocol)
        connection.client_end = transport
        protocol.connection_made(transport)
        return transport, protocol

    def open(self, attempt: ConnectionAttempt) -> None:
        """Start to connect. The callback must set the connection's ``client_end`` before time advances."""
        self.kernel.after(2 * self.delay_us((attempt.client, attempt.address[0])), self._handshake, attempt)

    def _handshake(self, attempt: ConnectionAttempt) -> None:
        if not attempt.is_wanted():
            return
        client, address = attempt.client, attempt.address
        if address in self._silent or self.is_cut((client, address[0])) or self.is_cut((address[0], client)):
            self.kernel.after(RETRANSMISSION_US, self._handshake, attempt)
            return
        acceptor = self._listening.get(address)
        if acceptor is None:
            attempt.refused(ConnectionRefusedError(errno.ECONNREFUSED, "connection refused"))
            return
        attempt.established(self._connection(client, address, acceptor))

    def _connection(self, client: str, address: Address, acceptor: Acceptor | None) -> Connection:
        self._count += 1
        connection = Connection(self, self._count, client, address)
        self.connections[connection.number] = connection
        if acceptor is not None:
            connection.accept(acceptor)
        return connection

    def request_written(self, connection: Connection, frame: bytes) -> None:
        """A client has written one request: sometimes a copy arrives later, on another connection."""
        repeated = self.conditions_of(connection.up.pair).repeated
        if repeated and self.draw() < repeated and may_be_repeated(frame):
            self.kernel.after(self.pick(1, 2_000_000), self._repeat, connection, frame)

    def _repeat(self, connection: Connection, frame: bytes) -> None:
        # Deliver a copy. The connection has no client end: responses are dropped.
        acceptor = self._listening.get(connection.server)
        if acceptor is not None:
            self._connection(connection.client, connection.server, acceptor).up.put(frame)
