"""The tree in ZooKeeper: for the brokers of a cluster on several hosts.

``ZooKeeperTree`` is its address; each ``session()`` is one ``ports.Coordination`` with its own connection. Requires
kazoo (``oncelog[cluster]``).
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
    def __init__(
        self,
        connect: str,
        session_timeout_ms: int,
        connection_timeout_ms: int | None = None,
        access: ZooKeeperAccess = _AS_ANYBODY,
    ) -> None:
        """``connect`` is ``host:port,host:port/path``; the optional path is created if it does not exist."""
        self._access = access
        self._address = Address.parse(connect)
        self._session_timeout_ms = session_timeout_ms
        self._connection_timeout_ms = connection_timeout_ms or session_timeout_ms

    def session(self) -> ZooKeeperSession:
        """Begin a session. Raises TreeUnavailable."""
        return ZooKeeperSession(self)

    def close(self) -> None:
        """Does nothing: the tree holds no resource."""

    def begin(self, former: list[int]) -> ZooKeeperLink:
        """Begin a session that replaces the ``former`` ones, and clear that list. Raises TreeUnavailable."""
        wake = threading.Event()
        client = ZooKeeperClient(
            self._address, self._access, self._session_timeout_ms, self._connection_timeout_ms, wake.set
        )
        try:
            # Consumers cannot create it themselves below an owned chroot, and their tools expect it.
            client.ensure((CONSUMERS,))
            link = ZooKeeperLink(client, wake, former)
        except (OutcomeUnknown, SessionLost, TreeUnavailable) as error:
            # The next attempt ends this half-started session too.
            former.append(client.session_id)
            client.stop()
            raise TreeUnavailable(f"cannot begin a session with ZooKeeper: {error}") from error
        former.clear()
        return link


class ZooKeeperSession:
    """The cluster's adapter of ``ports.Coordination``."""

    def __init__(self, tree: ZooKeeperTree) -> None:
        """Raises TreeUnavailable."""
        self._tree = tree
        self._former: list[int] = []
        """Sessions that this one replaces and that may still be alive."""
        self._link = tree.begin(self._former)

    def read(self, path: str) -> TreeNode | None:
        check_path(path)
        # A ZooKeeper server may be behind the others until it syncs.
        self._link.client.sync()
        node = self._link.client.get(path)
        return None if node is None else TreeNode(path, node[0], node[1].version)

    def children(self, path: str) -> list[str]:
        return self._link.children(path)

    def subtree(self, path: str) -> list[TreeNode]:
        return self._link.nodes_below(path)

    def snapshot(self) -> tuple[int, list[TreeNode]]:
        return self._link.snapshot()

    def position(self) -> int:
        return self._link.position()

    def position_at_once(self) -> None:
        return None

    def commit(self, operations: Sequence[Operation], token: str = "") -> int:
        size_bytes = commit_size(operations)
        if size_bytes > MAX_COMMIT_BYTES:
            raise CommitTooLarge(size_bytes)
        return self._link.commit(operations, token)

    def was_committed(self, token: str) -> bool:
        """Resolve an unknown outcome from the journal. Raises OutcomeUnknown, SessionLost."""
        return self._link.was_committed(token)

    def follow(self, after: int, listener: Listener | None, ended: Ended | None = None) -> None:
        # Listeners run with a lock held: they hand the change on and return.
        self._link.journal.follow(after, listener, ended)

    def renew(self) -> None:
        self.close()
        self._link = self._tree.begin(self._former)

    def close(self) -> None:
        self._link.close()
        if self._link.client.session_id not in self._former:
            self._former.append(self._link.client.session_id)
