"""What every adapter of the tree agrees on about paths, and who is told of a change.

The rule: paths are ZooKeeper's: absolute, ``/`` between names, no empty name, no trailing slash; the root always
exists and holds no value. A session is not told of its own changes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from oncelog.ports import Check, Operation

WatchCallback = Callable[[list[str]], None]


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


class Watchers:
    """Sessions of one tree that asked to be told; ``tell`` reaches all but the session that made the change."""

    def __init__(self) -> None:
        self._callbacks: dict[int, WatchCallback] = {}

    def set(self, session_id: int, callback: WatchCallback | None) -> None:
        """Ask for changes on behalf of a session, or (None) stop asking."""
        if callback is None:
            self._callbacks.pop(session_id, None)
        else:
            self._callbacks[session_id] = callback

    def tell(self, session_id: int, paths: list[str]) -> None:
        """Pass on what ``session_id`` changed."""
        if not paths:
            return
        for other, callback in list(self._callbacks.items()):
            if other != session_id:
                callback(list(paths))
