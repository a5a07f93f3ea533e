"""Nodes of the coordination tree and the operations that change them, as data.

They live here because both sides of the port use them: the controller's decisions (``core``, which imports no port)
return operations, and the adapters of ``ports.Coordination`` carry them out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

ANY_VERSION: Final = -1
"""An ``expected_version`` that any version of the node meets."""


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


class Conflict(Exception):
    """A commit was refused because ``operation`` did not find the tree as it expected; nothing changed."""

    def __init__(self, operation: Operation) -> None:
        self.operation = operation
        super().__init__(f"conflict at {operation.path}: {type(operation).__name__}")
