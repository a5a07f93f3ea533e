"""The wire between the nodes of a cluster: connections that carry bytes in order, cut or not, without delay."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any, Protocol

from oncelog.node.kernel.events import (
    BrokerConnected,
    BrokerDisconnected,
    BrokerSent,
    ConnectionClosed,
    ConnectionOpened,
    ConnectToBroker,
    Event,
    RequestReceived,
)
from oncelog.storage.file_range import FileRange
from oncelog.wire.chunks import join_chunks
from oncelog.wire.framing import FrameSplitter, request_limit

LIMIT = request_limit(100 << 20, 1 << 20)
Packet = tuple["Connection", int, bytes | None]
"""A connection, the broker that the packet goes to, and its bytes; None: the end of the connection."""


class Node(Protocol):
    """A node on the wire."""

    broker_id: int
    address: tuple[str, int]
    peers: dict[int, Any]

    def dispatch(self, event: Event) -> None:
        """Take an event in."""

    def new_connection_id(self) -> int:
        """The number of a connection that the node accepts."""


class Connection:
    """A connection of one node to another. In ``peers`` of the node that accepted it, it stands for the client."""

    def __init__(self, wire: Wire, source: Node, link_id: int, target: Node) -> None:
        self.source, self.link_id, self.target = source, link_id, target
        self.id = target.new_connection_id()
        self.closed = False
        self.paused = False
        self._wire = wire
        self._splitter = FrameSplitter(LIMIT)

    def received(self, chunks: Sequence[object]) -> None:
        """The target answers."""
        data = b"".join(
            chunk.file.read(chunk.position, chunk.size_bytes) if isinstance(chunk, FileRange) else bytes(chunk)
            for chunk in chunks
        )
        self._wire.send(self, self.source.broker_id, data)

    def arrive(self, broker_id: int, data: bytes | None) -> None:
        """A packet has reached one of the two nodes."""
        if self.closed:
            return
        if data is None:
            self.closed = True
            self.tell_end(broker_id)
        elif broker_id == self.source.broker_id:
            self.source.dispatch(BrokerSent(self.link_id, data))
        else:
            for frame in self._splitter.feed(data):
                self.target.dispatch(RequestReceived(self.id, frame))

    def tell_end(self, broker_id: int) -> None:
        """One of the two nodes learns of the end."""
        if broker_id == self.source.broker_id:
            self.source.dispatch(BrokerDisconnected(self.link_id))
        elif self.target.peers.pop(self.id, None) is not None:
            self.target.dispatch(ConnectionClosed(self.id))


class Wire:
    """All connections, and the packets on their way, in order."""

    def __init__(self) -> None:
        self.nodes: dict[int, Node] = {}
        """Running nodes, by broker id."""
        self.sent: list[tuple[int, int, bytes]] = []
        """Packets that were sent, for tests to look at: from, to, bytes."""
        self.held_requests: set[int] = set()
        """API keys of requests that are held; those behind them on their connections are, too."""
        self._connections: dict[tuple[int, int], Connection] = {}
        """By connecting broker and link id."""
        self._packets: deque[Packet] = deque()
        self._attempts: deque[tuple[Node, ConnectToBroker]] = deque()
        self._cuts: set[tuple[int, int]] = set()

    def connect(self, source: Node, effect: ConnectToBroker) -> None:
        """A node connects."""
        self._attempts.append((source, effect))

    def send_from(self, source: Node, link_id: int, chunks: Sequence[Any]) -> None:
        """A node sends on a connection that it has opened."""
        connection = self._connections.get((source.broker_id, link_id))
        if connection is not None:
            self.send(connection, connection.target.broker_id, join_chunks(chunks))

    def disconnect(self, source: Node, link_id: int) -> None:
        """A node ends a connection that it has opened, or the attempt at one."""
        self._attempts = deque(
            attempt for attempt in self._attempts if (attempt[0], attempt[1].link_id) != (source, link_id)
        )
        connection = self._connections.pop((source.broker_id, link_id), None)
        if connection is not None and not connection.closed:
            self.send(connection, connection.target.broker_id, None)

    def send(self, connection: Connection, broker_id: int, data: bytes | None) -> None:
        """Put a packet for a broker on its way."""
        self._packets.append((connection, broker_id, data))
        source = connection.source.broker_id
        if data is not None:
            self.sent.append((connection.target.broker_id if broker_id == source else source, broker_id, data))

    def cut(self, source: int, target: int) -> None:
        """Hold what goes from one broker to another."""
        self._cuts.add((source, target))

    def heal(self, source: int, target: int) -> None:
        """End a cut."""
        self._cuts.discard((source, target))

    def node_died(self, node: Node) -> None:
        """Break all connections of a node that is not running any more."""
        died = node.broker_id
        self._attempts = deque(attempt for attempt in self._attempts if attempt[0].broker_id != died)
        broken = {
            key: connection
            for key, connection in self._connections.items()
            if died in (connection.source.broker_id, connection.target.broker_id)
        }
        # All at once: a survivor that learns of one end must not reach the dead node by another connection.
        for key, connection in broken.items():
            del self._connections[key]
            connection.closed = True
        for connection in broken.values():
            other = connection.target if connection.source.broker_id == died else connection.source
            if other.broker_id in self.nodes:
                connection.tell_end(other.broker_id)

    def step(self) -> bool:
        """Let the next connection or packet that is not held arrive; False if there is none."""
        for number, (source, effect) in enumerate(self._attempts):
            target = next((n for n in self.nodes.values() if n.address == (effect.host, effect.port)), None)
            if target is None or not self._is_cut(source.broker_id, target.broker_id):
                del self._attempts[number]
                self._establish(source, effect, target)
                return True
        held: set[tuple[Connection, int]] = set()
        for number, (connection, receiver, data) in enumerate(self._packets):
            if (connection, receiver) not in held and not self._is_held(connection, receiver, data):
                del self._packets[number]
                connection.arrive(receiver, data)
                return True
            held.add((connection, receiver))
        return False

    def _is_held(self, connection: Connection, receiver: int, data: bytes | None) -> bool:
        source, target = connection.source.broker_id, connection.target.broker_id
        if ((target, source) if receiver == source else (source, target)) in self._cuts:
            return True
        return receiver == target and data is not None and int.from_bytes(data[4:6], "big") in self.held_requests

    def _is_cut(self, number: int, other: int) -> bool:
        return (number, other) in self._cuts or (other, number) in self._cuts

    def _establish(self, source: Node, effect: ConnectToBroker, target: Node | None) -> None:
        if target is None:
            source.dispatch(BrokerDisconnected(effect.link_id, refused=True))
            return
        connection = Connection(self, source, effect.link_id, target)
        self._connections[source.broker_id, effect.link_id] = connection
        target.peers[connection.id] = connection
        target.dispatch(ConnectionOpened(connection.id, f"/{source.address[0]}", target.address))
        source.dispatch(BrokerConnected(effect.link_id))
