"""Connections that are gone while requests of theirs are still to be carried out.

What has arrived whole is carried out in order: a consumer that commits, leaves its group and closes does not wait for
answers (Apache Kafka's ``Selector`` keeps closing channels for the same reason, until an answer cannot be sent). Their
clients hold nothing any more, so a stranger could leave ever more of them behind. Above either bound the largest gives
way, for good: its backlog is dropped and the request under way ends where it waits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from oncelog.base.units import MIB

if TYPE_CHECKING:
    from oncelog.node.requests.connections import Connection

MAX_CONNECTIONS: Final = 1_000
MAX_BYTES: Final = 64 * MIB
"""Bytes of requests, those under way among them. The last connection that came may exceed it alone: one Produce may be
larger."""
_FRAME_BYTES: Final = 300
"""Memory that a frame takes beside its bytes."""


def _size_bytes(connection: Connection) -> int:
    holder = connection.holder
    under_way = holder.request_bytes if holder is not None and holder.waiting else 0
    return under_way + connection.backlog_bytes + _FRAME_BYTES * len(connection.backlog)


class ClosedConnections:
    """The closed connections of a node that have work left, in the order in which they closed."""

    def __init__(self) -> None:
        self._working: dict[Connection, None] = {}
        self._ready: dict[Connection, None] = {}
        """Connections whose turn comes again."""

    def update(self, connection: Connection, *, is_ready: bool) -> None:
        """Remember a closed connection while it has work left, within the bounds. ``is_ready``: its next requests can
        be decided when others have had their turn."""
        if not connection.is_working:
            self._working.pop(connection, None)
            return
        if is_ready:
            self._ready[connection] = None
        if connection not in self._working:
            self._working[connection] = None
            self._shrink()

    def take_ready(self) -> Connection | None:
        """The next connection whose requests can be decided."""
        while self._ready:
            connection = next(iter(self._ready))
            del self._ready[connection]
            if connection in self._working:
                return connection
        return None

    def has_ready(self) -> bool:
        """True while requests wait only for the turns of others."""
        return bool(self._ready)

    def is_idle(self) -> bool:
        """True if everything that had arrived is decided."""
        return not any(connection.backlog for connection in self._working)

    def __len__(self) -> int:
        return len(self._working)

    def _shrink(self) -> None:
        sizes = {connection: _size_bytes(connection) for connection in self._working}
        total = sum(sizes.values())
        while len(sizes) > MAX_CONNECTIONS or (total > MAX_BYTES and len(sizes) > 1):
            largest = max(sizes, key=sizes.__getitem__)
            total -= sizes.pop(largest)
            del self._working[largest]
            largest.shut()
