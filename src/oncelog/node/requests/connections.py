"""Per connection: the order of its responses, and what is not decided yet.

Invariants:
1. Responses leave in the order of their requests. A slot is reserved when a request is decided; what is filled from
   the front of the queue is sent, nothing else.
   A request that closes the connection takes its own slot and those after it away; those before are answered first.
2. While a request holds the connection (a parked fetch, join or metadata change), later ones wait undecided in
   ``backlog``, as do all while the broker postpones requests: Apache Kafka mutes the channel. A produce that waits for
   its sync holds back only its response. A follower's fetch is answered when another request comes behind it.
3. Reading is paused while more than ``MAX_UNANSWERED`` requests or ``MAX_BACKLOG_BYTES`` are waiting here.
4. A request that has arrived whole is carried out in its turn, also when its client has closed meanwhile
   (``ClosedConnections``). Only a client that has not logged in, or sent what closes the connection, loses its own.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol

from oncelog.base.units import MIB
from oncelog.node.kernel.tasks import Slot
from oncelog.ports import Buffer

if TYPE_CHECKING:
    from oncelog.base.security import SecurityProtocol
    from oncelog.node.requests.login_state import LoginState
    from oncelog.wire.chunks import Chunk

MAX_UNANSWERED: Final = 100
MAX_BACKLOG_BYTES: Final = MIB
MAX_CONNECTIONS: Final = 1_000
"""Closed connections with work left."""
MAX_BYTES: Final = 64 * MIB
"""Bytes of their requests, those under way among them. The last connection that came may exceed it alone: one Produce
may be larger."""
_FRAME_BYTES: Final = 300
"""Memory that a frame takes beside its bytes."""


class Holder(Protocol):
    """A request whose handler waits while later ones of its connection are not decided."""

    waiting: bool

    def give_way(self) -> None:
        """Go on, if it waits for something that gives way to the next request."""

    @property
    def request_bytes(self) -> int:
        """Size of the request."""

    def client_closed(self, *, may_read: bool) -> None:
        """End a wait after which only the answer is left to do, with an answer for a client that ``may_read``."""

    def abandon(self) -> None:
        """End it where it waits."""


@dataclass(slots=True, eq=False)
class Connection:
    """One client connection as the node sees it."""

    id: int
    host: str
    listener: tuple[str, int]
    principal: str
    listener_name: str
    security_protocol: SecurityProtocol
    login: LoginState | None = None
    """How far its client has authenticated by SASL; None where the listener asks for none."""
    open: bool = True
    """False once nothing can be sent any more."""
    half_closed: bool = False
    """The client sends nothing more, but may still read: what has arrived is answered, then this end closes too."""
    paused: bool = False
    refused: bool = False
    """Something was asked that closes the connection: nothing more is decided, what came before is answered."""
    refusal: str | None = None
    slots: deque[Slot] = field(default_factory=deque)
    backlog: deque[Buffer] = field(default_factory=deque)
    backlog_bytes: int = 0
    muting: Slot | None = None
    """Stands behind all others while the client is throttled: nothing more is decided, what was is answered."""
    muted_until_ms: int = 0
    spent_ns: int = 0
    """Time that its requests took and that was not counted yet, while a quota of request time is set."""
    holder: Holder | None = None
    """The newest task that held the connection; ended with it, while a produce goes on without it."""

    def reserve(self) -> Slot:
        """A slot for the request being decided."""
        slot = Slot()
        self.slots.append(slot)
        return slot

    def is_newest(self, slot: Slot) -> bool:
        """True if no request was decided after the one behind ``slot``."""
        return bool(self.slots) and self.slots[-1] is slot

    def is_held(self) -> bool:
        """True if the newest decided request holds the deciding of the next."""
        return bool(self.slots) and self.slots[-1].held

    def mute(self, until_ms: int) -> None:
        """Decide nothing until a time, or until a later one that was said before."""
        self.muted_until_ms = max(self.muted_until_ms, until_ms)
        if self.muting is None:
            self.muting = self.reserve()
            self.muting.held = True

    def unmute(self) -> None:
        """Decide again."""
        if self.slots and self.slots[-1] is self.muting:
            self.slots.pop()
        self.muting = None

    def postpone(self, frame: Buffer) -> None:
        """Keep a frame until the connection is no longer held."""
        self.backlog.append(frame)
        self.backlog_bytes += len(frame)

    def postpone_first(self, frame: Buffer) -> None:
        """Keep a frame that comes before all that are kept already."""
        self.backlog.appendleft(frame)
        self.backlog_bytes += len(frame)

    def yield_to_postponed(self) -> None:
        """End the wait of a request that gives way to those behind it."""
        if self.backlog and self.holder is not None and self.is_held():
            self.holder.give_way()

    def next_postponed(self) -> Buffer | None:
        """The next frame to decide, None when there is none or the connection is held."""
        if not self.backlog or self.is_held():
            return None
        frame = self.backlog.popleft()
        self.backlog_bytes -= len(frame)
        return frame

    def take_ready(self) -> list[Chunk]:
        """Chunks of all responses at the front that are complete, in order; empty when the first is not."""
        slots = self.slots
        ready: list[Chunk] = []
        while slots and slots[0].chunks is not None:
            ready.extend(slots.popleft().chunks or ())
        return ready

    def refuse(self, slot: Slot | None, reason: str | None) -> None:
        """Decide nothing more; of what was decided, answer only what came before ``slot``."""
        self.refused, self.refusal = True, reason
        self.backlog.clear()
        self.backlog_bytes = 0
        if slot in self.slots:
            while self.slots.pop() is not slot:
                pass

    @property
    def is_logged_in(self) -> bool:
        """True if requests other than those of a login are taken."""
        return self.login is None or self.login.again

    @property
    def is_working(self) -> bool:
        """True while requests that have arrived are not decided, or one holds the others."""
        return bool(self.backlog) or self.is_held()

    def lose(self) -> None:
        """Answer nothing more; what has arrived is still carried out, but no request waits for the client's sake."""
        self.open = False
        for slot in self.slots:
            if slot.chunks is not None:
                slot.chunks = ()  # may be a megabyte, or hold a file
        if self.holder is not None:
            self.holder.client_closed(may_read=False)

    def shut(self) -> None:
        """Decide and send nothing more: what was postponed is dropped, a request that holds it is abandoned."""
        self.open = False
        self.slots.clear()
        self.backlog.clear()
        self.backlog_bytes = 0
        if self.holder is not None and self.holder.waiting:
            self.holder.abandon()
        self.holder = None

    def is_full(self) -> bool:
        """True if reading should pause."""
        return len(self.slots) + len(self.backlog) >= MAX_UNANSWERED or self.backlog_bytes >= MAX_BACKLOG_BYTES


def _size_bytes(connection: Connection) -> int:
    holder = connection.holder
    under_way = holder.request_bytes if holder is not None and holder.waiting else 0
    return under_way + connection.backlog_bytes + _FRAME_BYTES * len(connection.backlog)


class ClosedConnections:
    """The closed connections of a node that have work left, in the order in which they closed.

    What has arrived whole is carried out in order: a consumer that commits, leaves its group and closes does not wait
    for answers (Apache Kafka's ``Selector`` keeps closing channels for the same reason, until an answer cannot be
    sent). Their clients hold nothing any more, so a stranger could leave ever more of them behind. Above either bound
    the largest gives way, for good: its backlog is dropped and the request under way ends where it waits.
    """

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
