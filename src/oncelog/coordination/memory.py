"""The tree in memory: for tests, the in-process broker and the simulator.

``MemoryTree`` is the tree, as a ZooKeeper ensemble is; each ``session()`` of it is one ``ports.Coordination``. It
survives its sessions, so that a broker can be stopped and started on it. Calls come one at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from oncelog.coordination.paths import WatchCallback, Watchers, changed_paths, check_path, parent_of
from oncelog.ports import ANY_VERSION, Check, Conflict, Create, Delete, Operation, TreeNode


@dataclass(slots=True)
class _Node:
    value: bytes
    version: int
    owner: int | None
    """The session whose end removes the node, None for a lasting one."""
    children: set[str] = field(default_factory=set)


class MemoryTree:
    """A tree of versioned nodes that its sessions share."""

    def __init__(self) -> None:
        self._nodes: dict[str, _Node] = {"": _Node(b"", 0, None)}
        self._watchers = Watchers()
        self._last_session = 0

    def session(self) -> MemorySession:
        """A new session; its ephemeral nodes live until it is closed."""
        self._last_session += 1
        return MemorySession(self, self._last_session)

    def end_session(self, session_id: int) -> None:
        """Remove a session's ephemeral nodes and its watch, as its close or its time-out would."""
        self._watchers.set(session_id, None)
        gone = sorted(path for path, node in self._nodes.items() if node.owner == session_id)
        for path in gone:
            self._remove(path)
        self._watchers.tell(session_id, gone)

    def load(self, nodes: Iterable[TreeNode]) -> None:
        """Put nodes as they were read elsewhere, versions included, parents before children."""
        for node in nodes:
            self._restore(node.path, _Node(node.value, node.version, None))

    def _commit(self, session_id: int, operations: Sequence[Operation]) -> None:
        undo: list[tuple[str, _Node | None]] = []
        try:
            for operation in operations:
                self._carry_out(session_id, operation, undo)
        except Conflict:
            for path, node in reversed(undo):
                self._restore(path, node)
            raise
        self._watchers.tell(session_id, changed_paths(operations))

    def _carry_out(self, session_id: int, operation: Operation, undo: list[tuple[str, _Node | None]]) -> None:
        path = operation.path
        check_path(path)
        node = self._nodes.get(path)
        if isinstance(operation, Create):
            parent = self._nodes.get(parent_of(path))
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
    """One session of a ``MemoryTree``: the memory adapter of ``ports.Coordination``."""

    def __init__(self, tree: MemoryTree, session_id: int) -> None:
        self._tree = tree
        self._session_id = session_id

    def read(self, path: str) -> TreeNode | None:
        """One node, or None."""
        check_path(path)
        node = self._tree._nodes.get(path)
        return None if node is None else TreeNode(path, node.value, node.version)

    def children(self, path: str) -> list[str]:
        """Names of a node's children, sorted; empty when the node does not exist."""
        node = self._tree._nodes.get("" if path == "/" else path)
        return [] if node is None else sorted(child[child.rindex("/") + 1 :] for child in node.children)

    def subtree(self, path: str) -> list[TreeNode]:
        """All nodes below ``path``, itself excluded, in path order."""
        nodes = self._tree._nodes
        prefix = "/" if path == "/" else path + "/"
        return [
            TreeNode(below, nodes[below].value, nodes[below].version)
            for below in sorted(below for below in nodes if below.startswith(prefix))
        ]

    def commit(self, operations: Sequence[Operation]) -> None:
        """Carry out all operations or none (Conflict)."""
        self._tree._commit(self._session_id, operations)

    def watch(self, callback: WatchCallback | None) -> None:
        """Be told what other sessions changed; None ends it."""
        self._tree._watchers.set(self._session_id, callback)

    def close(self) -> None:
        """End the session; its ephemeral nodes disappear."""
        self._tree.end_session(self._session_id)
