"""A new connection to a broker that has not answered for a while: its process speaks, or only its machine accepts."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from oncelog.base.ids import BrokerId
from oncelog.client.machine.connection import Connection
from oncelog.node.brokers.link import MAX_VERSIONS_RESPONSE_BYTES

if TYPE_CHECKING:
    from oncelog.base.security import Endpoint
    from oncelog.node.brokers.connections import LinkConnections
    from oncelog.wire.chunks import Buffer


class Probe:
    """Sends ApiVersions, which needs no login. Received bytes are counted by ``BrokerLinks.on_heard``."""

    is_logging_in = False

    def __init__(
        self,
        broker_id: BrokerId,
        client_id: str,
        connections: LinkConnections,
        on_accepted: Callable[[int], object],
        on_closed: Callable[[], object],
    ) -> None:
        self.broker_id = broker_id
        self._client_id = client_id
        self._connections = connections
        self._on_accepted = on_accepted
        self._on_closed = on_closed
        self._was_accepted = False
        self.link_id = 0

    def connect(self, endpoint: Endpoint) -> None:
        self.link_id = self._connections.connect(self, endpoint)

    def connected(self) -> None:
        self._was_accepted = True
        machine = Connection(self._client_id, max_response_bytes=MAX_VERSIONS_RESPONSE_BYTES)
        self._connections.send(self.link_id, machine.start())
        self._on_accepted(self.link_id)

    def received(self, data: Buffer) -> None:
        pass

    def disconnected(self, *, refused: bool) -> None:
        self._connections.ended(self.link_id)
        # A process that closes the connection runs: a TLS listener does that, as the probe is in plain text.
        if self._was_accepted and not refused:
            self._on_closed()

    def drop(self) -> None:
        self._connections.disconnect(self.link_id)
