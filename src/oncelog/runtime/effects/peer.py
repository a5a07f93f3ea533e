"""A client's connection as the effect runner and the connection quotas see it; implemented by ``ClientConnection``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class Peer(Protocol):
    """A connection: takes responses; its reading can be paused, resumed and ended."""

    @property
    def peer(self) -> str:
        """The peer's ``host:port``, for messages."""

    @property
    def last_active_s(self) -> float:
        """Loop time of the last byte received from the peer or response sent to it."""

    def send(self, chunks: Sequence[object]) -> None: ...

    def authenticated(self) -> None:
        """Lift the size limit of unauthenticated requests."""

    def pause_reading(self, reason: str) -> None:
        """Stop reading until every reason is removed."""

    def resume_reading(self, reason: str) -> None:
        """Remove a reason for the pause."""

    def stalled_since_s(self) -> float | None:
        """Loop time since which the peer owes the rest of a request or reads no responses; None if it does neither."""

    def end_reading(self) -> None:
        """Stop reading; hand in what has arrived, then tell the node that it was the last."""

    def close_after_sending(self) -> None:
        """Stop reading; close once the queued responses are sent."""

    def abort(self) -> None: ...
