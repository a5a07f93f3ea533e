"""Events go into a node, effects come out.

The outside (``runtime``, ``sim``, a test) hands one event at a time to ``Node.handle`` and carries out the effects it
returns, in order; what an effect leads to comes back as an event. Effects have an order that matters: persist, then
send, then acknowledge. Every completion carries the token of its effect, and is ignored when nobody waits for it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from oncelog.base.security import ANONYMOUS, PLAINTEXT_LISTENER, SecurityProtocol
from oncelog.base.tree import Change, CommitOutcome, Operation, TreeNode
from oncelog.ports import Buffer, OpenFile
from oncelog.storage.file_range import FileRange as FileRange

if TYPE_CHECKING:
    from oncelog.handlers.broker.audit import AuditRecord
    from oncelog.wire.chunks import Chunk


@dataclass(slots=True)
class ConnectionOpened:
    """A client connected. ``listener`` is what to advertise to it."""

    connection_id: int
    host: str
    listener: tuple[str, int]
    principal: str = ANONYMOUS
    """The principal by the certificate, where TLS asked for one; what SASL says comes later."""
    listener_name: str = PLAINTEXT_LISTENER
    """The listener by which it came, as ``listeners`` names it."""
    security_protocol: SecurityProtocol = SecurityProtocol.PLAINTEXT


@dataclass(slots=True)
class ConnectionHalfClosed:
    """The client sends nothing more; it may still read answers."""

    connection_id: int


@dataclass(slots=True)
class ConnectionClosed:
    """The connection is gone; nothing more is sent on it."""

    connection_id: int


@dataclass(slots=True)
class RequestReceived:
    """One whole frame without its size prefix. The buffer is writable and now belongs to the node."""

    connection_id: int
    frame: Buffer
    spent_ns: int = 0
    """Time that the connection's requests before this one took: told while a quota of request time is set."""


@dataclass(slots=True)
class Synced:
    """The files of a :class:`Sync` are on disk, or ``failure`` says why not (which is the end of the node)."""

    token: int
    failure: Exception | None = None


@dataclass(slots=True)
class JobFinished:
    """A :class:`RunJob` came to its end, or ``failure`` says why not."""

    token: int
    failure: Exception | None = None


@dataclass(slots=True)
class MetadataChanged:
    """The next change in the order of all commits, this broker's own among them."""

    position: int
    token: str
    changes: Sequence[Change]


@dataclass(slots=True)
class MetadataWritten:
    """The outcome of a :class:`WriteMetadata` or :class:`SettleMetadata`. ``position``: of the change that was
    committed, or up to which the tree had changed when it refused."""

    token: str
    outcome: CommitOutcome
    position: int = 0
    failure: Exception | None = None
    """The tree has failed in a way that leaves open what is on its disk: the end of the node."""


@dataclass(slots=True)
class NodesRead:
    """The answer to :class:`ReadTree`: the nodes that exist, or None where they could not be read. ``position``: of the
    last change of the tree before they were read."""

    token: int
    nodes: Sequence[TreeNode] | None
    position: int = 0


@dataclass(slots=True)
class MetadataLoaded:
    """The answer to :class:`LoadMetadata`: the whole tree at a position, or None where it could not be read."""

    position: int
    nodes: Sequence[TreeNode] | None
    session_lost: bool = False
    """True if it could not be read because the session has ended."""
    refused: str | None = None
    """The reason why this broker may not register again."""


@dataclass(slots=True)
class BrokerConnected:
    """A connection that :class:`ConnectToBroker` asked for is there."""

    link_id: int


@dataclass(slots=True)
class BrokerSent:
    """Bytes of another broker, as they arrived. The buffer is the node's until the event has been handled."""

    link_id: int
    data: Buffer


@dataclass(slots=True)
class BrokerDisconnected:
    """A connection to another broker has ended by itself, or could not be made. Nothing more comes of it."""

    link_id: int
    refused: bool = False
    """True if nobody listens at the address: the broker's process is dead."""


@dataclass(slots=True)
class DeadlineReached:
    """``Node.next_deadline_ms`` has come."""


@dataclass(slots=True)
class Continued:
    """The loop came round after a :class:`Continue`."""


@dataclass(slots=True)
class StoodStill:
    """The process has stood still for so long that others may take it for dead. Comes before what was due meanwhile."""

    milliseconds: int


@dataclass(slots=True)
class Shutdown:
    """Stop: finish what is in flight until ``deadline_ms``, then flush and say :class:`Stopped`."""

    deadline_ms: int


Event = (
    ConnectionOpened
    | ConnectionHalfClosed
    | ConnectionClosed
    | RequestReceived
    | Synced
    | JobFinished
    | MetadataChanged
    | MetadataWritten
    | NodesRead
    | MetadataLoaded
    | BrokerConnected
    | BrokerSent
    | BrokerDisconnected
    | DeadlineReached
    | Continued
    | StoodStill
    | Shutdown
)


@dataclass(slots=True)
class Send:
    """Put chunks (bytes, or file ranges read when the socket has room) on a connection, in order."""

    connection_id: int
    chunks: Sequence[Chunk]


@dataclass(slots=True)
class Close:
    """Close a connection, after what was sent; ``reason`` is for the log, None when there is nothing to say."""

    connection_id: int
    reason: str | None = None


@dataclass(slots=True)
class Authenticated:
    """The client of a connection has said by SASL who it is: its requests may be as large as anybody's."""

    connection_id: int


@dataclass(slots=True)
class Pause:
    """Stop reading from a connection: it has too much unanswered."""

    connection_id: int


@dataclass(slots=True)
class Resume:
    """Read from a connection again."""

    connection_id: int


@dataclass(slots=True)
class Sync:
    """Make files durable, by a worker; answered by :class:`Synced`."""

    token: int
    files: Sequence[OpenFile]


@dataclass(slots=True)
class RunJob:
    """Drive a generator of bounded slices in a worker; answered by :class:`JobFinished`."""

    token: int
    slices: Iterator[None]
    waited_for: bool = False
    """A request waits for it: not behind those that nobody waits for."""


@dataclass(slots=True)
class WriteMetadata:
    """Commit operations to the tree, in the order of these effects; answered by :class:`MetadataWritten`."""

    token: str
    operations: Sequence[Operation]


@dataclass(slots=True)
class SettleMetadata:
    """Find out whether a commit whose answer was lost was carried out; answered by :class:`MetadataWritten`."""

    token: str


@dataclass(slots=True)
class ReadTree:
    """Read nodes of the tree; answered by :class:`NodesRead`."""

    token: int
    paths: Sequence[str]


@dataclass(slots=True)
class LoadMetadata:
    """Read the whole tree and follow it from there; answered by :class:`MetadataLoaded`.

    ``rejoin``: the session was lost; begin a new one and register in it before.
    """

    rejoin: bool = False


@dataclass(slots=True)
class ConnectToBroker:
    """Connect to another broker; answered by :class:`BrokerConnected` or :class:`BrokerDisconnected`. ``link_id`` is
    the number of the connection, which no other ever has."""

    link_id: int
    host: str
    port: int
    security_protocol: SecurityProtocol = SecurityProtocol.PLAINTEXT
    listener_name: str = PLAINTEXT_LISTENER
    """The listener there, and here: its keys say how to connect."""


@dataclass(slots=True)
class SendToBroker:
    """Send bytes to another broker, in order."""

    link_id: int
    chunks: Sequence[Chunk]


@dataclass(slots=True)
class DisconnectFromBroker:
    """End a connection, whatever state it is in. Nothing is to come of it any more."""

    link_id: int


@dataclass(slots=True)
class Continue:
    """Hand in :class:`Continued` when other events had their turn: long work on the loop goes in slices."""


@dataclass(slots=True)
class Report:
    """Something an operator should read."""

    level: str
    """``info``, ``warning`` or ``error``."""
    message: str
    trace: str = ""
    """The traceback of a bug, which the log shows behind the message."""


@dataclass(slots=True)
class Audit:
    """Write a record to the log of administrative aborts, before anything is sent that comes after this."""

    record: AuditRecord


@dataclass(slots=True)
class AccessLogged:
    """A line of the log of denied requests and changed access control lists."""

    level: str
    """``info`` or ``debug``."""
    line: str


@dataclass(slots=True)
class Fatal:
    """The node must not go on; the process ends without a clean-shutdown marker."""

    message: str


@dataclass(slots=True)
class StopListening:
    """Accept no more connections and read no more requests: the broker is about to stop, and its leaderships have been
    moved away. Requests that were read are handed in, then :class:`ConnectionHalfClosed` of each connection."""


@dataclass(slots=True)
class Stopped:
    """All is flushed; the process may end."""


Effect = (
    Send
    | Close
    | Authenticated
    | Pause
    | Resume
    | Sync
    | RunJob
    | WriteMetadata
    | SettleMetadata
    | LoadMetadata
    | ReadTree
    | ConnectToBroker
    | SendToBroker
    | DisconnectFromBroker
    | Continue
    | Report
    | Audit
    | AccessLogged
    | Fatal
    | StopListening
    | Stopped
)


class Outbox:
    """The effects of the event that is being handled, in the order in which they are to be carried out; shared by those
    parts of a node whose effects have an order among each other: answers and audit records."""

    __slots__ = ("effects",)

    def __init__(self) -> None:
        self.effects: list[Effect] = []

    def begin(self) -> list[Effect]:
        self.effects = []
        return self.effects
