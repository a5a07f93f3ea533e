"""Paths of the coordination tree, which are ZooKeeper's.

They are absolute, with ``/`` between names, no empty name and no trailing slash. The root always exists and has no
value.
"""

from __future__ import annotations

from collections.abc import Sequence

from oncelog.ports import Check, Operation


def check_path(path: str) -> None:
    """Raise ValueError unless ``path`` names a node below the root. Such a path is our bug, never a peer's."""
    if not path.startswith("/") or path.endswith("/") or "//" in path or "\0" in path:
        raise ValueError(f"not a path of the coordination tree: {path!r}")


def parent_of(path: str) -> str:
    """The parent's path; the root is the empty string."""
    return path[: path.rindex("/")]


def changed_paths(operations: Sequence[Operation]) -> list[str]:
    """Paths that a commit of ``operations`` changes, in order, without duplicates."""
    # A path may occur twice: deleted and created again.
    return list(dict.fromkeys(operation.path for operation in operations if not isinstance(operation, Check)))
