"""The tree in memory for the threads of one process: what the brokers of ``oncelog.testing.Cluster`` share."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from oncelog.coordination.memory import MemorySession, MemoryTree
from oncelog.ports import CommittedChange, Operation, TreeNode


class SharedTree:
    """A ``MemoryTree`` whose sessions may be used from several threads: one call at a time."""

    def __init__(self) -> None:
        self._tree = MemoryTree()
        self._lock = threading.RLock()

    def session(self) -> SharedSession:
        with self._lock:
            return SharedSession(self._tree.session(), self._lock)

    def expire(self, session: SharedSession) -> None:
        """End a session as the tree does that has not heard of it for long."""
        with self._lock:
            self._tree.end_session(session.session_id)


class SharedSession:
    """One session of a ``SharedTree``: an adapter of ``ports.Coordination``."""

    def __init__(self, session: MemorySession, lock: threading.RLock) -> None:
        self._session = session
        self._lock = lock

    @property
    def session_id(self) -> int:
        """The session as the tree knows it; another one after ``renew``."""
        return self._session.session_id

    def read(self, path: str) -> TreeNode | None:
        """See :class:`oncelog.ports.Coordination`, for this and all that follow."""
        with self._lock:
            return self._session.read(path)

    def children(self, path: str) -> list[str]:
        """Names of a node's children."""
        with self._lock:
            return self._session.children(path)

    def subtree(self, path: str) -> list[TreeNode]:
        """All nodes below ``path``."""
        with self._lock:
            return self._session.subtree(path)

    def snapshot(self) -> tuple[int, list[TreeNode]]:
        """The whole tree as it was at a position."""
        with self._lock:
            return self._session.snapshot()

    def position(self) -> int:
        """Position of the last committed change."""
        with self._lock:
            return self._session.position()

    def commit(self, operations: Sequence[Operation], token: str = "") -> int:
        """Carry out all operations or none."""
        with self._lock:
            return self._session.commit(operations, token)

    def was_committed(self, token: str) -> bool:
        """True if the commit of that name was carried out."""
        with self._lock:
            return self._session.was_committed(token)

    def follow(
        self,
        after: int,
        listener: Callable[[CommittedChange], None] | None,
        ended: Callable[[], None] | None = None,
    ) -> None:
        """Be told of every change after a position, and of the session's end."""
        with self._lock:
            self._session.follow(after, listener, ended)

    def renew(self) -> None:
        """Begin a new session in place of this one."""
        with self._lock:
            self._session.renew()

    def close(self) -> None:
        """End the session."""
        with self._lock:
            self._session.close()
