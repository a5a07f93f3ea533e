"""The tree in ZooKeeper: for the brokers of a cluster on several hosts.

``ZooKeeperTree`` is its address; each ``session()`` of it is one ``ports.Coordination``, with a connection of its own.
How commits are ordered and sessions end: ``link``, ``journal``. kazoo is needed
(``oncelog[cluster]``).
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Final

from oncelog.base.tree import MAX_COMMIT_BYTES, commit_size
from oncelog.coordination.commit_order import Ended, Listener
from oncelog.coordination.paths import check_path
from oncelog.coordination.zookeeper.access import CONSUMERS, ZooKeeperAccess
from oncelog.coordination.zookeeper.client import Address, ZooKeeperClient
from oncelog.coordination.zookeeper.link import ZooKeeperLink
from oncelog.ports import CommitTooLarge, Operation, OutcomeUnknown, SessionLost, TreeNode, TreeUnavailable

_AS_ANYBODY: Final = ZooKeeperAccess()


class ZooKeeperTree:
    """A tree in ZooKeeper, by its address."""

    def __init__(
        self,
        connect: str,
        session_timeout_ms: int,
        connection_timeout_ms: int | None = None,
        access: ZooKeeperAccess = _AS_ANYBODY,
    ) -> None:
        """``connect`` is ``host:port,host:port/path``; the path, if any, is created when it does not exist."""
        self._access = access
        self._address = Address.parse(connect)
        self._session_timeout_ms = session_timeout_ms
        self._connection_timeout_ms = connection_timeout_ms or session_timeout_ms

    def session(self) -> ZooKeeperSession:
        """A new session. Raises TreeUnavailable."""
        return ZooKeeperSession(self)

    def close(self) -> None:
        """Do nothing: no resource is held."""

    def begin(self, former: list[int]) -> ZooKeeperLink:
        """Begin a session in place of former ones, whose list is empty then. Raises TreeUnavailable."""
        wake = threading.Event()
        client = ZooKeeperClient(
            self._address, self._access, self._session_timeout_ms, self._connection_timeout_ms, wake.set
        )
        try:
            # Consumers could not create it themselves below a chroot that is owned, and tools of theirs expect it.
            client.ensure((CONSUMERS,))
            link = ZooKeeperLink(client, wake, former)
        except (OutcomeUnknown, SessionLost, TreeUnavailable) as error:
            former.append(client.session_id)
            client.stop()
            raise TreeUnavailable(f"no session with ZooKeeper: {error}") from error
        former.clear()
        return link


class ZooKeeperSession:
    """One session with ZooKeeper: the cluster's adapter of ``ports.Coordination``."""

    def __init__(self, tree: ZooKeeperTree) -> None:
        """Raises TreeUnavailable."""
        self._tree = tree
        self._former: list[int] = []
        """Sessions in whose place this one is to be, and that may be alive."""
        self._link = tree.begin(self._former)

    def read(self, path: str) -> TreeNode | None:
        """One node as it is now, or None: a server of ZooKeeper may be behind the others until it syncs."""
        check_path(path)
        self._link.client.sync()
        node = self._link.client.get(path)
        return None if node is None else TreeNode(path, node[0], node[1].version)

    def children(self, path: str) -> list[str]:
        """Names of a node's children, sorted; empty when the node does not exist."""
        return self._link.children(path)

    def subtree(self, path: str) -> list[TreeNode]:
        """All nodes below ``path``, itself excluded, in path order; not of one moment."""
        return self._link.nodes_below(path)

    def snapshot(self) -> tuple[int, list[TreeNode]]:
        """The whole tree as it was at a position."""
        return self._link.snapshot()

    def position(self) -> int:
        """Position of the last committed change."""
        return self._link.position()

    def commit(self, operations: Sequence[Operation], token: str = "") -> int:
        """Carry out all operations or none; the position of the change. Raises Conflict, TreeUnavailable,
        CommitTooLarge, OutcomeUnknown, SessionLost."""
        size_bytes = commit_size(operations)
        if size_bytes > MAX_COMMIT_BYTES:
            raise CommitTooLarge(size_bytes)
        return self._link.commit(operations, token)

    def was_committed(self, token: str) -> bool:
        """Settle an unknown outcome by what the journal holds. Raises OutcomeUnknown, SessionLost."""
        return self._link.was_committed(token)

    def follow(self, after: int, listener: Listener | None, ended: Ended | None = None) -> None:
        """Be told of every change after a position, own ones included, and of the session's end; None ends it. A lock
        is held during the call: the listener hands the change on and returns."""
        self._link.journal.follow(after, listener, ended)

    def renew(self) -> None:
        """Begin a new session in place of this one, which ends if it has not. Raises TreeUnavailable."""
        self.close()
        self._link = self._tree.begin(self._former)

    def close(self) -> None:
        """End the session; its ephemeral nodes disappear."""
        self._link.close()
        if self._link.client.session_id not in self._former:
            self._former.append(self._link.client.session_id)
