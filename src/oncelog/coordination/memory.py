"""The tree in memory: for tests, the in-process brokers of ``oncelog.testing`` and the simulator.

``MemoryTree`` is like a ZooKeeper ensemble; each ``session()`` is one ``ports.Coordination``. The tree outlives its
sessions, so that a broker can be restarted on it. A session's methods are thread-safe: each holds the tree's lock, also
while it calls listeners.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from oncelog.base.tree import ABSENT
from oncelog.coordination.commit_order import ChangeStream, Ended, Listener
from oncelog.coordination.paths import changed_paths, check_path, parent_of
from oncelog.ports import ANY_VERSION, Change, Check, Conflict, Create, Delete, Operation, SessionLost, TreeNode


@dataclass(slots=True)
class _Node:
    value: bytes
    version: int
    owner: int | None
    """The session whose end removes the node; None for a persistent node."""
    children: set[str] = field(default_factory=set)


class MemoryTree:
    def __init__(self) -> None:
        self._nodes: dict[str, _Node] = {"": _Node(b"", 0, None)}
        self.stream = ChangeStream()
        self.lock = threading.RLock()
        self._last_session = 0
        self._sessions: set[int] = set()
        """Sessions that have begun and not ended."""

    def session(self) -> MemorySession:
        """Begin a session; its ephemeral nodes live until it is closed."""
        return MemorySession(self, self.begin_session())

    def begin_session(self) -> int:
        with self.lock:
            self._last_session += 1
            self._sessions.add(self._last_session)
            return self._last_session

    def end_session(self, session_id: int) -> None:
        """Remove a session's ephemeral nodes, as its time-out would. Its later commits fail."""
        with self.lock:
            self._sessions.discard(session_id)
            self.stream.followers.end(session_id)
            gone = sorted(path for path, node in self._nodes.items() if node.owner == session_id)
            for path in gone:
                self._remove(path)
            if gone:
                self.stream.append("", [Change(path, None, ABSENT) for path in gone])

    def load(self, nodes: Iterable[TreeNode]) -> None:
        """Add nodes read from another tree, with their versions, parents before children."""
        for node in nodes:
            self._restore(node.path, _Node(node.value, node.version, None))

    def _commit(self, session_id: int, operations: Sequence[Operation], token: str) -> int:
        # An ended session must not commit, as in the other adapters.
        if session_id not in self._sessions:
            raise SessionLost("the session has ended")
        undo: list[tuple[str, _Node | None]] = []
        try:
            for operation in operations:
                self._carry_out(session_id, operation, undo)
        except Conflict:
            # All or nothing: undo the operations before the conflict.
            for path, node in reversed(undo):
                self._restore(path, node)
            raise
        return self.stream.append(token, [self._change(path) for path in changed_paths(operations)])

    def _change(self, path: str) -> Change:
        node = self._nodes.get(path)
        return Change(path, None, ABSENT) if node is None else Change(path, node.value, node.version)

    def _carry_out(self, session_id: int, operation: Operation, undo: list[tuple[str, _Node | None]]) -> None:
        path = operation.path
        check_path(path)
        node = self._nodes.get(path)
        if isinstance(operation, Create):
            parent = self._nodes.get(parent_of(path))
            # Ephemeral nodes have no children, as in ZooKeeper.
            if node is not None or parent is None or parent.owner is not None:
                raise Conflict(operation)
            undo.append((path, None))
            self._restore(path, _Node(operation.value, 0, session_id if operation.ephemeral else None))
            return
        if node is None or operation.expected_version not in (ANY_VERSION, node.version):
            raise Conflict(operation)
        if isinstance(operation, Check):
            return
        if isinstance(operation, Delete):
            if node.children:
                raise Conflict(operation)
            undo.append((path, node))
            self._remove(path)
            return
        undo.append((path, node))
        self._nodes[path] = _Node(operation.value, node.version + 1, node.owner, node.children)

    def _restore(self, path: str, node: _Node | None) -> None:
        if node is None:
            self._remove(path)
            return
        self._nodes[path] = node
        self._nodes[parent_of(path)].children.add(path)

    def _remove(self, path: str) -> None:
        del self._nodes[path]
        self._nodes[parent_of(path)].children.discard(path)


class MemorySession:
    """The memory adapter of ``ports.Coordination``."""

    def __init__(self, tree: MemoryTree, session_id: int) -> None:
        self._tree = tree
        self._session_id = session_id

    @property
    def session_id(self) -> int:
        """The tree's id of this session; ``renew`` changes it."""
        return self._session_id

    def read(self, path: str) -> TreeNode | None:
        check_path(path)
        with self._tree.lock:
            node = self._tree._nodes.get(path)
            return None if node is None else TreeNode(path, node.value, node.version)

    def children(self, path: str) -> list[str]:
        with self._tree.lock:
            node = self._tree._nodes.get("" if path == "/" else path)
            return [] if node is None else sorted(child[child.rindex("/") + 1 :] for child in node.children)

    def subtree(self, path: str) -> list[TreeNode]:
        nodes = self._tree._nodes
        prefix = "/" if path == "/" else path + "/"
        with self._tree.lock:
            return [
                TreeNode(below, nodes[below].value, nodes[below].version)
                for below in sorted(below for below in nodes if below.startswith(prefix))
            ]

    def snapshot(self) -> tuple[int, list[TreeNode]]:
        with self._tree.lock:
            return self.position(), self.subtree("/")

    def position(self) -> int:
        with self._tree.lock:
            return self._tree.stream.position

    def position_at_once(self) -> int:
        return self._tree.stream.position

    def commit(self, operations: Sequence[Operation], token: str = "") -> int:
        with self._tree.lock:
            return self._tree._commit(self._session_id, operations, token)

    def was_committed(self, token: str) -> bool:
        with self._tree.lock:
            return self._tree.stream.has(token)

    def follow(self, after: int, listener: Listener | None, ended: Ended | None = None) -> None:
        with self._tree.lock:
            self._tree.stream.follow(self._session_id, after, listener, ended)
            if self._session_id not in self._tree._sessions:
                # The session had ended before it subscribed.
                self._tree.stream.followers.end(self._session_id)

    def renew(self) -> None:
        with self._tree.lock:
            self.close()
            self._session_id = self._tree.begin_session()

    def close(self) -> None:
        with self._tree.lock:
            self.follow(0, None)
            self._tree.end_session(self._session_id)
