"""Nodes of the coordination tree, and the operations that change them, as data.

Decisions in ``core``, which imports no port, return operations; the adapters of ``ports.Coordination`` execute them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple

ANY_VERSION: Final = -1
"""An ``expected_version`` that matches every version."""

ABSENT: Final = -1
"""The version of a node that does not exist."""


@dataclass(frozen=True, slots=True)
class Create:
    """Create a node; the commit fails if it exists or its parent does not exist."""

    path: str
    value: bytes
    ephemeral: bool = False


@dataclass(frozen=True, slots=True)
class Set:
    """Replace a node's value if its version is ``expected_version``, and increment the version."""

    path: str
    value: bytes
    expected_version: int


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete a childless node if its version is ``expected_version``."""

    path: str
    expected_version: int


@dataclass(frozen=True, slots=True)
class Check:
    """Change nothing; the commit fails unless the node's version is ``expected_version``."""

    path: str
    expected_version: int


Operation = Create | Set | Delete | Check


@dataclass(frozen=True, slots=True)
class TreeNode:
    """A node as read: its value and its version (0 at creation)."""

    path: str
    value: bytes
    version: int


MAX_COMMIT_BYTES: Final = 500_000
"""The commit size that every tree accepts. ZooKeeper accepts one MiB, and each change counts twice: in its node and in
the journal. Split larger work so that the cluster is consistent after each part.
"""
_OPERATION_BYTES: Final = 64
"""Bytes of an operation besides path and value."""


def commit_size(operations: Iterable[Operation]) -> int:
    """The size of a commit in bytes, as ``MAX_COMMIT_BYTES`` bounds it."""
    return sum(
        _OPERATION_BYTES + len(operation.path.encode()) + len(getattr(operation, "value", b""))
        for operation in operations
    )


class CommitTooLarge(ValueError):
    """A commit exceeds ``MAX_COMMIT_BYTES``; nothing was changed. A bug of the caller, which has to split it."""

    def __init__(self, size_bytes: int) -> None:
        super().__init__(f"a commit of {size_bytes} bytes exceeds the maximum of {MAX_COMMIT_BYTES}; split it")


class Conflict(Exception):
    """``operation`` did not find the tree as it expected; nothing was changed."""

    def __init__(self, operation: Operation) -> None:
        self.operation = operation
        super().__init__(f"conflict at {operation.path}: {type(operation).__name__}")


class OutcomeUnknown(Exception):
    """The reply to a commit was lost: it may be done, still in progress, or never happen."""


class SessionLost(Exception):
    """The tree has ended this session: its ephemeral nodes are gone and its commits fail."""


class TreeUnavailable(Exception):
    """The tree cannot be written now (its disk is full, or it is unreachable); nothing was changed."""


class CommitOutcome(Enum):
    COMMITTED = "committed"
    CONFLICT = "conflict"
    """Nothing was changed: the tree was not in the expected state."""
    UNAVAILABLE = "unavailable"
    """Nothing was changed, or the outcome stayed unknown for as long as a client waits."""
    UNKNOWN = "unknown"
    """The reply was lost; the outcome has to be resolved."""
    SESSION_LOST = "session lost"


class Change(NamedTuple):
    """A node after a commit: ``value`` is None and version ``ABSENT`` if it was deleted."""

    path: str
    value: bytes | None
    version: int


class CommittedChange(NamedTuple):
    """One commit in the total order of commits."""

    position: int
    """Increases by one with each commit of any session; the end of a session with ephemeral nodes counts as one."""
    token: str
    """Chosen by the writer; empty for the end of a session."""
    changes: Sequence[Change]
