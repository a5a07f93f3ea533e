"""The connections of all links by number, and what is to happen on them once the event has been handled."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import TYPE_CHECKING, Protocol

from oncelog.node.kernel.events import ConnectToBroker, DisconnectFromBroker, Effect, Report, SendToBroker

if TYPE_CHECKING:
    from oncelog.base.security import Endpoint
    from oncelog.wire.chunks import Buffer, Chunk


class LinkEvent(Enum):
    """A sign of life or death that a link has of the broker at its other end, told when it is noticed."""

    REACHED = "it answers"
    BROKEN = "a connection ended with requests unanswered"
    REFUSED = "nobody listens"


class ConnectionOwner(Protocol):
    """The link that a connection belongs to."""

    @property
    def is_logging_in(self) -> bool:
        """True while what comes is part of this broker's login at the other end."""

    def connected(self) -> None:
        """The connection is there."""

    def received(self, data: Buffer) -> None:
        """Bytes have arrived."""

    def disconnected(self, *, refused: bool) -> None:
        """The connection has ended by itself, or could not be made."""


class LinkConnections:
    """Every connection that is opened has a number of its own, so that what comes of an earlier one is not listened to.
    Requests that one event sends on one connection leave together."""

    def __init__(self) -> None:
        self._links: dict[int, ConnectionOwner] = {}
        self._outgoing: list[Effect] = []
        self._unsent: dict[int, list[Chunk]] = {}
        """Chunks by connection, those of its effect in ``_outgoing``."""
        self._next_id = 1

    def link_of(self, link_id: int) -> ConnectionOwner | None:
        """The link whose connection this is, None once it was given up."""
        return self._links.get(link_id)

    def connect(self, link: ConnectionOwner, to: Endpoint) -> int:
        """Open a connection; its number."""
        link_id = self._next_id
        self._next_id += 1
        self._links[link_id] = link
        self._outgoing.append(ConnectToBroker(link_id, to.host, to.port, to.protocol, to.listener_name))
        return link_id

    def send(self, link_id: int, chunks: Sequence[Chunk]) -> None:
        """Send on a connection, after what was sent before."""
        if not chunks:
            return
        unsent = self._unsent.get(link_id)
        if unsent is None:
            unsent = self._unsent[link_id] = []
            self._outgoing.append(SendToBroker(link_id, unsent))
        unsent += chunks

    def disconnect(self, link_id: int) -> None:
        """Close a connection from this side."""
        self._unsent.pop(link_id, None)
        if self._links.pop(link_id, None) is not None:
            self._outgoing.append(DisconnectFromBroker(link_id))

    def ended(self, link_id: int) -> None:
        """Forget a connection that has ended by itself."""
        self._unsent.pop(link_id, None)
        self._links.pop(link_id, None)

    def report(self, message: str) -> None:
        self._outgoing.append(Report("warning", message))

    def take_outgoing(self, effects: list[Effect]) -> None:
        """Hand out what is to happen, in order."""
        if self._outgoing:
            effects += self._outgoing
            self._outgoing.clear()
            self._unsent.clear()
