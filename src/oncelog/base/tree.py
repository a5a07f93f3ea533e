"""Nodes of the coordination tree and the operations that change them, as data.

They live here because both sides of the port use them: the controller's decisions (``core``, which imports no port)
return operations, and the adapters of ``ports.Coordination`` carry them out.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple

ANY_VERSION: Final = -1
"""An ``expected_version`` that any version of the node meets."""

ABSENT: Final = -1
"""The version of a node that does not exist."""


@dataclass(frozen=True, slots=True)
class Create:
    """Create a node; the commit fails if it exists or its parent does not."""

    path: str
    value: bytes
    ephemeral: bool = False


@dataclass(frozen=True, slots=True)
class Set:
    """Replace a node's value if it stands at ``expected_version``; its version rises by one."""

    path: str
    value: bytes
    expected_version: int


@dataclass(frozen=True, slots=True)
class Delete:
    """Remove a childless node if it stands at ``expected_version``."""

    path: str
    expected_version: int


@dataclass(frozen=True, slots=True)
class Check:
    """Change nothing; the commit fails unless the node stands at ``expected_version``."""

    path: str
    expected_version: int


Operation = Create | Set | Delete | Check


@dataclass(frozen=True, slots=True)
class TreeNode:
    """A node as read: its value and its version (0 when created)."""

    path: str
    value: bytes
    version: int


MAX_COMMIT_BYTES: Final = 500_000
"""The size up to which every tree takes a commit: ZooKeeper takes a mebibyte, and each change is in it twice, in its
node and in the journal. Larger work is split, so that the cluster is consistent after each part."""
_OPERATION_BYTES: Final = 64
"""Bytes of an operation beside its path and its value."""


def commit_size(operations: Iterable[Operation]) -> int:
    """The size of a commit in bytes, as ``MAX_COMMIT_BYTES`` bounds it."""
    return sum(
        _OPERATION_BYTES + len(operation.path.encode()) + len(getattr(operation, "value", b""))
        for operation in operations
    )


class CommitTooLarge(ValueError):
    """A commit is larger than the tree takes; nothing was changed. A mistake of ours: it has to be split."""

    def __init__(self, size_bytes: int) -> None:
        super().__init__(f"a commit of {size_bytes} bytes: at most {MAX_COMMIT_BYTES} fit, it has to be split")


class Conflict(Exception):
    """A commit was refused because ``operation`` did not find the tree as it expected; nothing changed."""

    def __init__(self, operation: Operation) -> None:
        self.operation = operation
        super().__init__(f"conflict at {operation.path}: {type(operation).__name__}")


class OutcomeUnknown(Exception):
    """The answer to a commit was lost: the tree has carried it out, will, or never does."""


class SessionLost(Exception):
    """The tree has ended this session: its ephemeral nodes are gone, and it commits nothing any more."""


class TreeUnavailable(Exception):
    """The tree cannot be written now (its disk is full, or it cannot be reached); nothing was changed."""


class CommitOutcome(Enum):
    """The outcome of a commit."""

    COMMITTED = "committed"
    CONFLICT = "conflict"
    """Nothing was changed: the tree was not as the operations expect it."""
    UNAVAILABLE = "unavailable"
    """Nothing was changed, or it is not known within the time a client waits."""
    UNKNOWN = "unknown"
    """The answer was lost; to be settled."""
    SESSION_LOST = "session lost"


class Change(NamedTuple):
    """A node as it is now: ``value`` None and version ``ABSENT`` when it is gone."""

    path: str
    value: bytes | None
    version: int


class CommittedChange(NamedTuple):
    """One commit in the order of all commits."""

    position: int
    """Rises by one with each commit of any session; the end of a session with ephemeral nodes is one too."""
    token: str
    """The writer's own; empty for the end of a session."""
    changes: Sequence[Change]
