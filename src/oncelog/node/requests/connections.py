"""Per-connection state: the order of responses, and the requests not decided yet. Invariants:

1. Responses leave in the order of their requests: deciding a request reserves a slot, and only complete slots at the
   front are sent. A request that closes the connection removes its own slot and all later ones.
2. While a request holds the connection (a parked fetch, join or metadata change), or the broker postpones requests,
   later ones wait undecided in ``backlog``: Apache Kafka mutes the channel. A produce that waits for its sync delays
   only its response. A follower's parked fetch is answered when another request follows it.
3. A request that arrived whole is carried out in its turn, even if its client has closed (``ClosedConnections``),
   unless the client is not logged in or has sent a request that closes the connection.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol

from oncelog.base.units import MIB
from oncelog.node.kernel.tasks import Slot
from oncelog.node.requests.login_state import LoginPhase
from oncelog.ports import Buffer

if TYPE_CHECKING:
    from oncelog.base.security import SecurityProtocol
    from oncelog.node.kernel.events import ConnectionClosed, ConnectionHalfClosed, ConnectionOpened, RequestReceived
    from oncelog.node.requests.login_state import LoginState
    from oncelog.node.requests.logins import Logins
    from oncelog.wire.chunks import Chunk

MAX_UNANSWERED: Final = 100
MAX_BACKLOG_BYTES: Final = MIB
MAX_CONNECTIONS: Final = 1_000
"""Closed connections with work left."""
MAX_BYTES: Final = 64 * MIB
"""Bytes of closed connections' requests, including those in progress. The newest connection may exceed it alone: one
Produce may be larger."""
# Memory overhead of a frame.
_FRAME_BYTES: Final = 300


class Holder(Protocol):
    """A request whose handler waits while later ones of its connection are undecided."""

    waiting: bool

    def give_way(self) -> None:
        """Continue, if the wait gives way to the client's next request."""

    @property
    def request_bytes(self) -> int: ...

    def client_closed(self, *, may_read: bool) -> None:
        """End a wait that only delays the answer; a client that ``may_read`` still gets one."""

    def abandon(self) -> None:
        """End the request where it waits, without an answer."""


@dataclass(slots=True, eq=False)
class Connection:
    id: int
    host: str
    listener: tuple[str, int]
    principal: str
    listener_name: str
    security_protocol: SecurityProtocol
    login: LoginState | None = None
    """State of the SASL login; None on listeners without SASL."""
    open: bool = True
    """False once nothing can be sent."""
    half_closed: bool = False
    """The client has stopped sending but may still read; once all are answered, this end closes too."""
    paused: bool = False
    refused: bool = False
    """A request closes the connection: nothing more is decided, earlier requests are answered."""
    refusal: str | None = None
    slots: deque[Slot] = field(default_factory=deque)
    backlog: deque[Buffer] = field(default_factory=deque)
    backlog_bytes: int = 0
    muting: Slot | None = None
    """Reserved behind all other slots while the client is throttled, so that nothing more is decided."""
    muted_until_ms: int = 0
    spent_ns: int = 0
    """Time of its requests that was not counted yet; only while a request-time quota is set."""
    holder: Holder | None = None
    """The newest task that held the connection. It ends with the connection, while a produce continues."""

    def reserve(self) -> Slot:
        slot = Slot()
        self.slots.append(slot)
        return slot

    def is_newest(self, slot: Slot) -> bool:
        """True if no request was decided after the one of ``slot``."""
        return bool(self.slots) and self.slots[-1] is slot

    def is_held(self) -> bool:
        """True if the newest decided request holds back the next."""
        return bool(self.slots) and self.slots[-1].held

    def mute(self, until_ms: int) -> None:
        """Decide nothing until a time, or a later one set before."""
        self.muted_until_ms = max(self.muted_until_ms, until_ms)
        if self.muting is None:
            self.muting = self.reserve()
            self.muting.held = True

    def unmute(self) -> None:
        if self.slots and self.slots[-1] is self.muting:
            self.slots.pop()
        self.muting = None

    def postpone(self, frame: Buffer) -> None:
        """Keep a frame until the connection is no longer held."""
        self.backlog.append(frame)
        self.backlog_bytes += len(frame)

    def postpone_first(self, frame: Buffer) -> None:
        self.backlog.appendleft(frame)
        self.backlog_bytes += len(frame)

    def yield_to_postponed(self) -> None:
        """End a wait that gives way to later requests."""
        if self.backlog and self.holder is not None and self.is_held():
            self.holder.give_way()

    def next_postponed(self) -> Buffer | None:
        """The next frame to decide; None if the backlog is empty or the connection is held."""
        if not self.backlog or self.is_held():
            return None
        frame = self.backlog.popleft()
        self.backlog_bytes -= len(frame)
        return frame

    def take_ready(self) -> list[Chunk]:
        """Chunks of the complete responses at the front, in order."""
        slots = self.slots
        ready: list[Chunk] = []
        while slots and slots[0].chunks is not None:
            ready.extend(slots.popleft().chunks or ())
        return ready

    def refuse(self, slot: Slot | None, reason: str | None) -> None:
        """Decide nothing more, and of the decided requests answer only those before ``slot``."""
        self.refused, self.refusal = True, reason
        self.backlog.clear()
        self.backlog_bytes = 0
        if slot in self.slots:
            while self.slots.pop() is not slot:
                pass

    @property
    def is_logged_in(self) -> bool:
        """True if requests other than a login's are accepted."""
        return self.login is None or self.login.again

    @property
    def is_working(self) -> bool:
        """True while requests are undecided, or one holds the others."""
        return bool(self.backlog) or self.is_held()

    def lose(self) -> None:
        """The client is gone: send nothing more, carry out what has arrived, end waits that only delay an answer."""
        self.open = False
        for slot in self.slots:
            if slot.chunks is not None:
                slot.chunks = ()  # frees up to megabytes, or an open file
        if self.holder is not None:
            self.holder.client_closed(may_read=False)

    def shut(self) -> None:
        """End the connection: drop postponed requests and abandon the one that holds it."""
        self.open = False
        self.slots.clear()
        self.backlog.clear()
        self.backlog_bytes = 0
        if self.holder is not None and self.holder.waiting:
            self.holder.abandon()
        self.holder = None

    def is_full(self) -> bool:
        """True while reading pauses."""
        return len(self.slots) + len(self.backlog) >= MAX_UNANSWERED or self.backlog_bytes >= MAX_BACKLOG_BYTES


def _size_bytes(connection: Connection) -> int:
    holder = connection.holder
    under_way = holder.request_bytes if holder is not None and holder.waiting else 0
    return under_way + connection.backlog_bytes + _FRAME_BYTES * len(connection.backlog)


class ClosedConnections:
    """A node's closed connections with work left, in the order in which they closed.

    Whole requests are carried out in order: a consumer that commits, leaves its group and closes does not wait for
    answers (Apache Kafka's ``Selector`` keeps closing channels until an answer cannot be sent). An attacker could leave
    ever more of them behind, so above either bound the largest is dropped: its backlog is lost, and its request in
    progress ends where it waits.
    """

    def __init__(self) -> None:
        self._working: dict[Connection, None] = {}
        # Connections whose next turn is due.
        self._ready: dict[Connection, None] = {}

    def update(self, connection: Connection, *, is_ready: bool) -> None:
        """Track a closed connection while it has work left. ``is_ready``: its next requests can be decided after others
        had their turn."""
        if not connection.is_working:
            self._working.pop(connection, None)
            return
        if is_ready:
            self._ready[connection] = None
        if connection not in self._working:
            self._working[connection] = None
            self._shrink()

    def take_ready(self) -> Connection | None:
        while self._ready:
            connection = next(iter(self._ready))
            del self._ready[connection]
            if connection in self._working:
                return connection
        return None

    def has_ready(self) -> bool:
        """True while requests only wait for their turn."""
        return bool(self._ready)

    def is_idle(self) -> bool:
        return not any(connection.backlog for connection in self._working)

    def __len__(self) -> int:
        return len(self._working)

    def _shrink(self) -> None:
        sizes = {connection: _size_bytes(connection) for connection in self._working}
        total = sum(sizes.values())
        # The newest alone may exceed the bound in bytes.
        while len(sizes) > MAX_CONNECTIONS or (total > MAX_BYTES and len(sizes) > 1):
            largest = max(sizes, key=sizes.__getitem__)
            total -= sizes.pop(largest)
            del self._working[largest]
            largest.shut()


class Receiver(Protocol):
    """Decides the requests of a connection (``dispatch``)."""

    def receive(self, connection: Connection, frame: Buffer) -> None: ...

    def half_close(self, connection: Connection) -> None: ...

    def close(self, connection: Connection) -> None: ...


class ClientConnections:
    """The open connections of clients: finds the one that an event is about, and ends its sessions with it."""

    def __init__(self, requests: Receiver, logins: Callable[[], Logins], end_sessions: Callable[[int], None]) -> None:
        """``end_sessions(connection_id)`` ends the fetch sessions of a closed connection."""
        self._requests = requests
        self._logins = logins
        self._end_sessions = end_sessions
        self.by_id: dict[int, Connection] = {}

    def opened(self, event: ConnectionOpened) -> None:
        connection = self.by_id[event.connection_id] = Connection(
            event.connection_id,
            event.host,
            event.listener,
            event.principal,
            event.listener_name,
            event.security_protocol,
        )
        if event.security_protocol.has_sasl:
            connection.login = self._logins().begin(event.listener_name)

    def received(self, event: RequestReceived) -> None:
        connection = self.by_id.get(event.connection_id)
        if connection is not None and connection.open:
            if event.spent_ns:
                connection.spent_ns += event.spent_ns
            self._requests.receive(connection, event.frame)

    def half_closed(self, event: ConnectionHalfClosed) -> None:
        connection = self.by_id.get(event.connection_id)
        if connection is not None:
            self._requests.half_close(connection)

    def closed(self, event: ConnectionClosed) -> None:
        connection = self.by_id.pop(event.connection_id, None)
        if connection is not None:
            self._requests.close(connection)
            self._end_sessions(event.connection_id)

    def of_principal(self, principal: str) -> list[int]:
        return [number for number, connection in self.by_id.items() if connection.principal == principal]

    def backlog_bytes(self, connection_id: int) -> int:
        """Bytes of a connection's requests that wait undecided."""
        connection = self.by_id.get(connection_id)
        return 0 if connection is None else connection.backlog_bytes

    def have_backlog(self) -> bool:
        return any(connection.backlog for connection in self.by_id.values())

    def may_carry_token(self, connection_id: int) -> bool:
        """True if the connection's next request may carry a login's token."""
        connection = self.by_id.get(connection_id)
        login = None if connection is None else connection.login
        return login is not None and (login.phase is LoginPhase.EXCHANGE or bool(connection and connection.backlog))
