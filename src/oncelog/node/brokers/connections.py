"""The connections of all links, by number, and the effects to be carried out on them after the event."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import TYPE_CHECKING, Protocol

from oncelog.node.kernel.events import ConnectToBroker, DisconnectFromBroker, Effect, Report, SendToBroker

if TYPE_CHECKING:
    from oncelog.base.ids import BrokerId
    from oncelog.base.security import Endpoint
    from oncelog.wire.chunks import Buffer, Chunk


class LinkEvent(Enum):
    """A change in the reachability of a link's broker."""

    REACHED = "reached"
    BROKEN = "connection lost with requests unanswered"
    REFUSED = "connection refused"


class ConnectionOwner(Protocol):
    @property
    def broker_id(self) -> BrokerId: ...

    @property
    def is_logging_in(self) -> bool:
        """True while incoming bytes belong to this broker's SASL login."""

    def connected(self) -> None: ...

    def received(self, data: Buffer) -> None: ...

    def disconnected(self, *, refused: bool) -> None:
        """The connection ended, or could not be made."""


class LinkConnections:
    """Numbers connections and collects their effects. Numbers are never reused, so late bytes of a closed connection
    are ignored. One event's requests on a connection leave together.
    """

    def __init__(self) -> None:
        self._links: dict[int, ConnectionOwner] = {}
        self._outgoing: list[Effect] = []
        # Chunks by connection, shared with its effect in ``_outgoing``.
        self._unsent: dict[int, list[Chunk]] = {}
        self._next_id = 1

    def link_of(self, link_id: int) -> ConnectionOwner | None:
        """The link that owns a connection; None once the connection is given up."""
        return self._links.get(link_id)

    def connect(self, link: ConnectionOwner, endpoint: Endpoint) -> int:
        link_id = self._next_id
        self._next_id += 1
        self._links[link_id] = link
        self._outgoing.append(
            ConnectToBroker(link_id, endpoint.host, endpoint.port, endpoint.protocol, endpoint.listener_name)
        )
        return link_id

    def send(self, link_id: int, chunks: Sequence[Chunk]) -> None:
        if not chunks:
            return
        unsent = self._unsent.get(link_id)
        if unsent is None:
            unsent = self._unsent[link_id] = []
            self._outgoing.append(SendToBroker(link_id, unsent))
        unsent += chunks

    def disconnect(self, link_id: int) -> None:
        self._unsent.pop(link_id, None)
        if self._links.pop(link_id, None) is not None:
            self._outgoing.append(DisconnectFromBroker(link_id))

    def ended(self, link_id: int) -> None:
        self._unsent.pop(link_id, None)
        self._links.pop(link_id, None)

    def report(self, message: str) -> None:
        self._outgoing.append(Report("warning", message))

    def take_outgoing(self, effects: list[Effect]) -> None:
        if self._outgoing:
            effects += self._outgoing
            self._outgoing.clear()
            self._unsent.clear()
