"""The connections that a simulated broker process opens to others: bytes over the network, events to the process."""

from __future__ import annotations

import errno
from collections.abc import Callable

from oncelog.node.kernel.events import (
    BrokerConnected,
    BrokerDisconnected,
    BrokerSent,
    ConnectToBroker,
    DisconnectFromBroker,
    Event,
    SendToBroker,
)
from oncelog.sim.virtual.network.connection import Connection
from oncelog.sim.virtual.network.network import ConnectionAttempt, Network
from oncelog.wire.chunks import join_chunks

Dispatch = Callable[[Event], None]


class OutboundLink:
    """The process's end of a connection it has opened (``network.connection.ClientEnd``)."""

    def __init__(self, link_id: int, dispatch: Dispatch) -> None:
        self.link_id = link_id
        self.connection: Connection | None = None
        self.wanted = True
        self.dead = False
        self._dispatch = dispatch

    def established(self, connection: Connection) -> None:
        """The other broker has accepted."""
        self.connection = connection
        connection.client_end = self
        self._dispatch(BrokerConnected(self.link_id))

    def refused(self, error: OSError) -> None:
        """Nobody listens."""
        self.wanted = False
        self._dispatch(BrokerDisconnected(self.link_id, refused=error.errno == errno.ECONNREFUSED))

    def arrived(self, data: bytes | None) -> None:
        """Bytes arrived, or (None) the end of the stream."""
        if data is None:
            self.lose(None)
        elif self.wanted and not self.dead:
            self._dispatch(BrokerSent(self.link_id, data))

    def lose(self, error: Exception | None) -> None:
        """The connection has ended."""
        if self.wanted and not self.dead:
            self.close()
            self._dispatch(BrokerDisconnected(self.link_id))

    def close(self) -> None:
        """End it from this side."""
        self.wanted = False
        if self.connection is not None and not self.dead:
            self.connection.up.put(None)


class BrokerWires:
    """The outbound connections of one process, by link id; ``host`` is the name of its machine."""

    def __init__(self, network: Network, host: str, dispatch: Dispatch) -> None:
        self._network = network
        self._host = host
        self._dispatch = dispatch
        self._links: dict[int, OutboundLink] = {}

    def connect(self, effect: ConnectToBroker) -> None:
        """Begin to connect."""
        link = self._links[effect.link_id] = OutboundLink(effect.link_id, self._dispatch)
        address = (effect.host, effect.port)
        self._network.open(ConnectionAttempt(self._host, address, link.established, link.refused, lambda: link.wanted))

    def send(self, effect: SendToBroker) -> None:
        """Send bytes, if the connection is still there."""
        link = self._links.get(effect.link_id)
        if link is not None and link.wanted and link.connection is not None:
            link.connection.up.put(join_chunks(effect.chunks))

    def disconnect(self, effect: DisconnectFromBroker) -> None:
        """End a connection, or the attempt at one."""
        link = self._links.pop(effect.link_id, None)
        if link is not None and link.wanted:
            link.close()

    def end(self) -> None:
        """The process is gone: attempts end with it; its host's network ends what is connected."""
        for link in self._links.values():
            link.wanted = False
