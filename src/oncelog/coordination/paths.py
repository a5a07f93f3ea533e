"""Paths of the tree, as every adapter understands them.

The rule: paths are ZooKeeper's: absolute, ``/`` between names, no empty name, no trailing slash; the root always
exists and holds no value.
"""

from __future__ import annotations

from collections.abc import Sequence

from oncelog.ports import Check, Operation


def check_path(path: str) -> None:
    """Raise ValueError unless ``path`` names a node below the root. A mistake of ours, never of a peer."""
    if not path.startswith("/") or path.endswith("/") or "//" in path or "\0" in path:
        raise ValueError(f"not a path of the coordination tree: {path!r}")


def parent_of(path: str) -> str:
    """The parent's path; the empty string is the root."""
    return path[: path.rindex("/")]


def changed_paths(operations: Sequence[Operation]) -> list[str]:
    """Paths that a successful commit of ``operations`` changed, in order, each once."""
    return list(dict.fromkeys(operation.path for operation in operations if not isinstance(operation, Check)))
