"""The events that go into a node, and the effects that come out.

A driver (``runtime``, ``sim``, a test) hands in one event at a time and carries out the effects in order: persist, then
send, then acknowledge. An effect's completion is an event with its token, ignored if no longer awaited.
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
    """A client connected. ``listener`` is the address to advertise to it."""

    connection_id: int
    host: str
    listener: tuple[str, int]
    principal: str = ANONYMOUS
    """From the client's TLS certificate; a SASL login sets it later."""
    listener_name: str = PLAINTEXT_LISTENER
    """The listener that accepted the connection."""
    security_protocol: SecurityProtocol = SecurityProtocol.PLAINTEXT


@dataclass(slots=True)
class ConnectionHalfClosed:
    """The client has stopped sending; it may still read responses."""

    connection_id: int


@dataclass(slots=True)
class ConnectionClosed:
    connection_id: int


@dataclass(slots=True)
class RequestReceived:
    """One whole frame, without its size prefix. The buffer is writable and belongs to the node."""

    connection_id: int
    frame: Buffer
    spent_ns: int = 0
    """Time that the connection's earlier requests took; only while a request-time quota is set."""


@dataclass(slots=True)
class Synced:
    """The files of a :class:`Sync` are on disk, or the sync failed, which stops the node."""

    token: int
    failure: Exception | None = None


@dataclass(slots=True)
class JobFinished:
    """A :class:`RunJob` has finished, or failed."""

    token: int
    failure: Exception | None = None


@dataclass(slots=True)
class MetadataChanged:
    """The next change in commit order, this broker's own included."""

    position: int
    token: str
    changes: Sequence[Change]


@dataclass(slots=True)
class MetadataWritten:
    """The outcome of a :class:`WriteMetadata` or :class:`SettleMetadata`. ``position`` is that of the committed change
    or, after a conflict, the tree's position."""

    token: str
    outcome: CommitOutcome
    position: int = 0
    failure: Exception | None = None
    """The tree failed and the state of its disk is unknown: stops the node."""


@dataclass(slots=True)
class NodesRead:
    """The answer to :class:`ReadTree`: the nodes that exist, None if unreadable. ``position`` is the tree's before the
    read.
    """

    token: int
    nodes: Sequence[TreeNode] | None
    position: int = 0


@dataclass(slots=True)
class MetadataLoaded:
    """The answer to :class:`LoadMetadata`: the whole tree at a position, or None if it could not be read."""

    position: int
    nodes: Sequence[TreeNode] | None
    session_lost: bool = False
    """The tree could not be read because the session has ended."""
    refused: str | None = None
    """The reason why this broker may not register again."""


@dataclass(slots=True)
class BrokerConnected:
    """A :class:`ConnectToBroker` succeeded."""

    link_id: int


@dataclass(slots=True)
class BrokerSent:
    """Bytes from another broker. The buffer is valid until the event is handled."""

    link_id: int
    data: Buffer


@dataclass(slots=True)
class BrokerDisconnected:
    """A connection to another broker ended, or could not be made. Its number is not used again."""

    link_id: int
    refused: bool = False
    """The port is closed at every address: the broker's process is dead."""


@dataclass(slots=True)
class DeadlineReached:
    """``Node.next_deadline_ms`` has come."""


@dataclass(slots=True)
class Continued:
    """The loop came round after a :class:`Continue`."""


@dataclass(slots=True)
class StoodStill:
    """The process was paused for so long that other brokers may take it for dead. Precedes the events that were due
    meanwhile."""

    milliseconds: int


@dataclass(slots=True)
class Shutdown:
    """Stop: finish requests in flight until ``deadline_ms``, then flush and emit :class:`Stopped`."""

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
    """Send chunks on a connection, in order: bytes, or file ranges that are read when the socket has room."""

    connection_id: int
    chunks: Sequence[Chunk]


@dataclass(slots=True)
class Close:
    """Close a connection after sending the queued bytes; ``reason``, if any, is logged."""

    connection_id: int
    reason: str | None = None


@dataclass(slots=True)
class Authenticated:
    """The client has logged in: the limit on its requests' size is lifted."""

    connection_id: int


@dataclass(slots=True)
class Pause:
    """Stop reading from a connection: too many of its requests are unanswered."""

    connection_id: int


@dataclass(slots=True)
class Resume:
    connection_id: int


@dataclass(slots=True)
class Sync:
    """Make files durable on a worker; completes with :class:`Synced`."""

    token: int
    files: Sequence[OpenFile]


@dataclass(slots=True)
class RunJob:
    """Run a generator of bounded slices on a worker; completes with :class:`JobFinished`."""

    token: int
    slices: Iterator[None]
    waited_for: bool = False
    """A request waits for the job, so it must not queue behind background jobs."""


@dataclass(slots=True)
class WriteMetadata:
    """Commit operations to the tree, in the order of these effects; completes with :class:`MetadataWritten`."""

    token: str
    operations: Sequence[Operation]


@dataclass(slots=True)
class SettleMetadata:
    """Find out whether a commit with a lost answer was carried out; completes with :class:`MetadataWritten`."""

    token: str


@dataclass(slots=True)
class ReadTree:
    """Read nodes of the tree; completes with :class:`NodesRead`."""

    token: int
    paths: Sequence[str]


@dataclass(slots=True)
class LoadMetadata:
    """Read the whole tree and follow it from there; completes with :class:`MetadataLoaded`. ``rejoin``: first register
    in a new session, as the old one was lost.
    """

    rejoin: bool = False


@dataclass(slots=True)
class ConnectToBroker:
    """Connect to another broker; completes with :class:`BrokerConnected` or :class:`BrokerDisconnected`. ``link_id`` is
    the connection's number and is never reused."""

    link_id: int
    host: str
    port: int
    security_protocol: SecurityProtocol = SecurityProtocol.PLAINTEXT
    listener_name: str = PLAINTEXT_LISTENER
    """The listener of that broker; its keys here configure TLS."""


@dataclass(slots=True)
class SendToBroker:
    link_id: int
    chunks: Sequence[Chunk]


@dataclass(slots=True)
class DisconnectFromBroker:
    """Close a connection in whatever state; no event of it follows."""

    link_id: int


@dataclass(slots=True)
class Continue:
    """Hand in :class:`Continued` after other events had their turn: long work on the loop is sliced."""


@dataclass(slots=True)
class Report:
    """A log line for the operator."""

    level: str
    """``info``, ``warning`` or ``error``."""
    message: str
    trace: str = ""
    """The traceback of a bug, logged after the message."""


@dataclass(slots=True)
class Audit:
    """Append a record to the audit log before any later effect is carried out."""

    record: AuditRecord


@dataclass(slots=True)
class AccessLogged:
    """A line of the log of denied requests and changed access control lists."""

    level: str
    """``info`` or ``debug``."""
    line: str


@dataclass(slots=True)
class Fatal:
    """The node must not continue; the process ends without a clean-shutdown marker."""

    message: str


@dataclass(slots=True)
class StopListening:
    """Stop accepting connections and reading requests, now that leaderships have moved. Requests that were read are
    handed in, then a :class:`ConnectionHalfClosed` for each connection.
    """


@dataclass(slots=True)
class Stopped:
    """Everything is flushed; the process may end."""


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
    """The effects of the event being handled, in order. Shared by parts whose effects are ordered among each other:
    responses and audit records.
    """

    __slots__ = ("effects",)

    def __init__(self) -> None:
        self.effects: list[Effect] = []

    def begin(self) -> list[Effect]:
        self.effects = []
        return self.effects
