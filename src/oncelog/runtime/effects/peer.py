"""A client's connection as the effect runner and the connection quotas see it; ``ClientConnection`` is one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class Peer(Protocol):
    """One connection: where responses go, and what pauses, resumes and ends its reading."""

    @property
    def peer(self) -> str:
        """The peer's ``host:port``, for messages."""

    @property
    def last_active_s(self) -> float:
        """Loop time of the last byte from the peer or response to it."""

    def send(self, chunks: Sequence[object]) -> None:
        """Queue chunks for the peer."""

    def authenticated(self) -> None:
        """Take requests as large as anybody's from now on."""

    def pause_reading(self, why: str) -> None:
        """Stop reading until every reason given is gone."""

    def resume_reading(self, why: str) -> None:
        """Remove one reason for the pause."""

    def stalled_since_s(self) -> float | None:
        """Loop time since which the peer owes the rest of a request or takes no responses; None while it does."""

    def end_reading(self) -> None:
        """Read nothing more; hand in what has arrived, and tell the node that it was the last."""

    def close_after_sending(self) -> None:
        """Read nothing more; close once the queued responses are sent."""

    def abort(self) -> None:
        """Close at once."""
