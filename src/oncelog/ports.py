"""The ports: what the centre asks of the outside world. Small Protocols, nothing else.

Real adapters live in ``runtime`` and ``coordination``; fakes in ``sim``. Conformance tests run against all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from oncelog.base.disk_errors import DiskErrors as DiskErrors
from oncelog.base.tree import ANY_VERSION as ANY_VERSION
from oncelog.base.tree import Change as Change
from oncelog.base.tree import Check as Check
from oncelog.base.tree import CommittedChange as CommittedChange
from oncelog.base.tree import CommitTooLarge as CommitTooLarge
from oncelog.base.tree import Conflict as Conflict
from oncelog.base.tree import Create as Create
from oncelog.base.tree import Delete as Delete
from oncelog.base.tree import Operation as Operation
from oncelog.base.tree import OutcomeUnknown as OutcomeUnknown
from oncelog.base.tree import SessionLost as SessionLost
from oncelog.base.tree import Set as Set
from oncelog.base.tree import TreeNode as TreeNode
from oncelog.base.tree import TreeUnavailable as TreeUnavailable

Buffer = bytes | bytearray | memoryview


class OpenFile(Protocol):
    """One open file. Reads may come from any thread; appends and truncation only from the loop."""

    def size(self) -> int:
        """Length in bytes."""

    def append(self, chunks: Sequence[Buffer]) -> int:
        """Write all chunks at the end, into the page cache; return the position of the first byte. An OSError leaves
        the file as it was."""

    def read(self, position: int, size: int) -> bytes:
        """Up to ``size`` bytes from ``position``; fewer only at the end of the file. May wait for the disk."""

    def read_cached(self, position: int, size: int) -> bytes | None:
        """Read as ``read`` does, but None when the bytes are not in the page cache and a read would wait."""

    def truncate(self, size: int) -> None:
        """Cut the file to ``size`` bytes."""

    def sync(self) -> None:
        """Make what was appended durable (fdatasync). Waits; called by workers. OSError is fatal to the node."""

    def close(self) -> None:
        """Let go of the file; unsynced data stays in the page cache."""


class Files(Protocol):
    """A tree of files under one data directory. Paths are relative, with ``/``; errors are OSError."""

    @property
    def errors(self) -> DiskErrors:
        """The errors that concern the whole disk, of all files: noted as they are raised."""

    def open(self, path: str, *, create: bool = False) -> OpenFile:
        """Open for reading and appending. FileNotFoundError unless it exists or ``create``."""

    def list(self, directory: str) -> list[str]:
        """Names in ``directory``, sorted; FileNotFoundError when it does not exist."""

    def size(self, path: str) -> int | None:
        """Length of a file in bytes, None when it does not exist."""

    def modified_ms(self, path: str) -> int:
        """Time of the last change of a file, milliseconds since the epoch."""

    def make_directory(self, path: str) -> None:
        """Create a directory if it does not exist."""

    def rename(self, old: str, new: str) -> None:
        """Rename a file or directory, replacing a file that is there, atomically."""

    def remove(self, path: str) -> None:
        """Remove a file, or a directory with all that is in it; nothing happens when it does not exist."""

    def sync_directory(self, path: str) -> None:
        """Make creations, renames and removals in a directory durable."""


class Coordination(Protocol):
    """The cluster's metadata: one tree of versioned nodes, with ZooKeeper's semantics. Calls may wait; reads raise
    TreeUnavailable and SessionLost.

    All commits of all sessions have one order, and every session can follow it, its own commits included.
    """

    def read(self, path: str) -> TreeNode | None:
        """One node, or None."""

    def children(self, path: str) -> list[str]:
        """Names of a node's children, sorted; empty when the node does not exist."""

    def subtree(self, path: str) -> list[TreeNode]:
        """All nodes below ``path``, itself excluded, parents before children, in path order."""

    def snapshot(self) -> tuple[int, list[TreeNode]]:
        """A position and all nodes below the root as they were at it, in path order."""

    def position(self) -> int:
        """Position of the last committed change."""

    def position_at_once(self) -> int | None:
        """The same, read without waiting, on any one thread; None where that is impossible. Raises nothing."""

    def commit(self, operations: Sequence[Operation], token: str = "") -> int:
        """Carry out all operations atomically and durably, or change nothing; the position of the change.

        ``token`` is the writer's name for the commit. Raises Conflict, TreeUnavailable and CommitTooLarge (nothing was
        changed), OutcomeUnknown, SessionLost.
        """

    def was_committed(self, token: str) -> bool:
        """Settle an unknown outcome: True if the commit of that name was carried out, False if it never will be. Raises
        OutcomeUnknown while that cannot be found out, SessionLost."""

    def follow(
        self,
        after: int,
        listener: Callable[[CommittedChange], None] | None,
        ended: Callable[[], None] | None = None,
    ) -> None:
        """Call back, from any thread and in order, with every kept change after that position, and with every one from
        now on. A gap shows in the positions. ``ended`` is called once, last, when the tree has ended the session (at
        once, if it had), not for ``renew`` and ``close``. None ends it."""

    def renew(self) -> None:
        """Begin a new session, which follows nothing yet. The old one ends if it has not: its ephemeral nodes would be
        in the way of the next registration. Raises TreeUnavailable."""

    def close(self) -> None:
        """End the session; its ephemeral nodes disappear."""


class Clock(Protocol):
    """Wall time; only ``runtime`` and ``sim`` have one."""

    def now_ms(self) -> int:
        """Milliseconds since the epoch."""


class Entropy(Protocol):
    """The source of random ids."""

    def token(self, size: int) -> bytes:
        """``size`` random bytes."""


class Transport(Protocol):
    """The far side of a connection table: what the node's Send and Close effects are carried out on."""

    def send(self, connection_id: int, chunks: Sequence[object]) -> None:
        """Queue chunks (bytes or file ranges) on a connection, in order; ignored when it is gone."""

    def close(self, connection_id: int) -> None:
        """Close a connection after its queued bytes."""
