"""One session of the ZooKeeper tree, from its beginning to its end.

See docs/internals/cluster-tree.md for a commit's transaction, the end of a session and unknown outcomes. Changes are
delivered in journal order only.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Final

from oncelog.base.tree import ABSENT
from oncelog.coordination.zookeeper.access import CONSUMERS
from oncelog.coordination.zookeeper.client import CreateNext, Reason, Refused, ZooKeeperClient
from oncelog.coordination.zookeeper.commit import CommitPlan, plan_commit
from oncelog.coordination.zookeeper.journal import (
    ALIVE,
    BASE,
    NEXT_CHANGE,
    ROOT,
    SESSIONS,
    ZooKeeperJournal,
    change_path,
    encode_entry,
    position_of,
)
from oncelog.ports import (
    ANY_VERSION,
    Change,
    Check,
    CommittedChange,
    Conflict,
    Create,
    Delete,
    Operation,
    OutcomeUnknown,
    SessionLost,
    Set,
    TreeNode,
    TreeUnavailable,
)

ATTEMPTS: Final = 1_000
"""Transactions that may lose their position to others before the tree counts as unavailable."""
LOOK_S: Final = 5.0
"""The interval at which the journal is read even if no watch has fired."""
_HIDDEN: Final = (ROOT, "/zookeeper", CONSUMERS)
"""Nodes that are outside the tree, or always exist."""
_UNSETTLED: Final = 1_000
"""Maximum number of remembered commits with unknown outcome."""


class ZooKeeperLink:
    """An active session, its journal, and the thread that follows it. Thread-safe."""

    def __init__(self, client: ZooKeeperClient, wake: threading.Event, former: Iterable[int]) -> None:
        """Begin the session and end the ``former`` ones that it replaces. Raises TreeUnavailable, SessionLost,
        OutcomeUnknown.
        """
        self.client = client
        self._wake = wake
        self._name = _name(client.session_id)
        self._stopping = False
        self._expelled = False
        """Another broker ended the session; ZooKeeper may still keep it."""
        self._ephemeral: frozenset[str] = frozenset()
        self._unsettled: dict[str, int] = {}
        """Commits of unknown outcome, with the position of the attempt."""
        client.ensure(BASE)
        self.journal = ZooKeeperJournal(client)
        with suppress(Refused):  # an earlier attempt succeeded
            own = Create(f"{SESSIONS}/{self._name}", b"[]"), Create(f"{ALIVE}/{self._name}", b"", ephemeral=True)
            client.transact(own)
        for session_id in former:
            self._end_session(_name(session_id))
        self._end_dead_sessions()
        self._thread = threading.Thread(target=self._watch, name="oncelog-zookeeper", daemon=True)
        self._wake.set()
        self._thread.start()

    @property
    def lost(self) -> bool:
        return self.client.lost or self._expelled

    def close(self) -> None:
        """End the session, its ephemeral nodes first if ZooKeeper is reachable. Idempotent."""
        if self._stopping:
            return
        self.journal.follow(0, None, None)
        self._stopping = True
        self._wake.set()
        self._thread.join()
        with suppress(SessionLost, TreeUnavailable):  # ZooKeeper ends it after its time-out
            self._end_session(self._name)
        self._expelled = True
        self.client.stop()

    def commit(self, operations: Sequence[Operation], token: str) -> int:
        """Implements ``ports.Coordination.commit``."""
        for _ in range(ATTEMPTS):
            if self.lost:
                raise SessionLost("ZooKeeper has ended the session")
            plan = plan_commit(operations, self._version_of)
            ephemeral = self._ephemeral - plan.deleted | plan.created
            before = self.journal.position
            try:
                position = self._write(plan, token, ephemeral)
            except Refused as refusal:
                self._refused(refusal, operations, plan)
            except OutcomeUnknown:
                # The commit may have been executed: remember both sets of nodes.
                self._ephemeral = self._ephemeral | ephemeral
                self._remember(token, before + 1)
                raise
            else:
                self._ephemeral = ephemeral
                with suppress(SessionLost, TreeUnavailable):  # the commit is done; the next one trims
                    self.journal.trim(position)
                return position
        raise TreeUnavailable(f"the commit lost to other brokers {ATTEMPTS} times")

    def was_committed(self, token: str) -> bool:
        """Implements ``ports.Coordination.was_committed``."""
        try:
            self.client.sync()
            self.journal.catch_up()
        except TreeUnavailable as error:
            raise OutcomeUnknown(str(error)) from error
        if self.journal.has(token):
            return True
        if self._unsettled.get(token, self.journal.complete_from) < self.journal.complete_from:
            raise OutcomeUnknown("the journal entry may have been trimmed before it was read")
        return False

    def _write(self, plan: CommitPlan, token: str, ephemeral: frozenset[str]) -> int:
        data = encode_entry(token, self._name, plan.changes.values())
        operations: list[Operation | CreateNext] = [Check(f"{ALIVE}/{self._name}", ANY_VERSION), *plan.operations]
        if ephemeral != self._ephemeral:
            operations.append(Set(f"{SESSIONS}/{self._name}", json.dumps(sorted(ephemeral)).encode(), ANY_VERSION))
        operations.append(CreateNext(NEXT_CHANGE, data))
        position = position_of(self.client.transact(operations))
        self.journal.delivered(CommittedChange(position, token, tuple(plan.changes.values())), len(data))
        return position

    def _refused(self, refusal: Refused, operations: Sequence[Operation], plan: CommitPlan) -> None:
        """Return if the commit should be retried; raise otherwise."""
        index = refusal.index - 1  # the first operation is the check of the session
        if not 0 <= index < len(operations):
            self._expelled = True
            self._wake.set()
            raise SessionLost("the session was ended")
        if index not in plan.assumed or refusal.reason is not Reason.VERSION:
            raise Conflict(operations[index])

    def _remember(self, token: str, position: int) -> None:
        self._unsettled[token] = position
        if len(self._unsettled) > _UNSETTLED:
            del self._unsettled[next(iter(self._unsettled))]

    def _version_of(self, path: str) -> int:
        stat = self.client.exists(path)
        return ABSENT if stat is None else stat.version

    def _end_dead_sessions(self, *, watched: bool = False) -> None:
        """Write the end of sessions that are no longer alive into the journal."""
        begun = self.client.children(SESSIONS)  # read before ALIVE: a new session appears in both at once
        alive = set(self.client.children(ALIVE, self._on_watch if watched else None))
        if self._name not in alive:
            self._expelled = True
        for name in sorted(begun):
            # Its alive node has disappeared with its ZooKeeper session.
            if name not in alive and name != self._name:
                self._end_session(name)

    def _end_session(self, name: str) -> None:
        """End a session, even if ZooKeeper has not: remove its ephemeral nodes and write a journal entry."""
        for _ in range(ATTEMPTS):
            registration = self.client.get(f"{SESSIONS}/{name}")
            if registration is None:
                return  # another broker has ended it
            gone, deletes = self._ephemeral_nodes_of(name, json.loads(registration[0]))
            deletes.append(Delete(f"{SESSIONS}/{name}", registration[1].version))
            # The entry names its position itself, so that ZooKeeper rejects it if anything was committed since the
            # nodes were read: they may have been created again.
            change = CommittedChange(self.journal.position + 1, "", tuple(Change(path, None, ABSENT) for path in gone))
            data = encode_entry("", name, change.changes)
            try:
                self.client.transact([*deletes, Create(change_path(change.position), data)] if gone else deletes)
            except Refused:
                self.journal.catch_up()
                continue
            except OutcomeUnknown as error:
                raise TreeUnavailable(str(error)) from error  # the next check finds out
            if gone:
                self.journal.delivered(change, len(data))
            return
        raise TreeUnavailable(f"the end of session {name} lost to other brokers {ATTEMPTS} times")

    def _ephemeral_nodes_of(self, name: str, paths: Iterable[str]) -> tuple[list[str], list[Operation]]:
        """The session's ephemeral nodes that are gone or to be deleted, and the deletes, without nodes that another
        session has created in their place."""
        gone, deletes = [], list[Operation]()
        for path in sorted(paths):
            stat = self.client.exists(path)
            if stat is None or _name(stat.owner) == name:
                gone.append(path)
            if stat is not None and _name(stat.owner) == name:
                deletes.append(Delete(path, ANY_VERSION))
        if self.client.exists(f"{ALIVE}/{name}") is not None:
            deletes.append(Delete(f"{ALIVE}/{name}", ANY_VERSION))
        return gone, deletes

    def _on_watch(self, _event: object) -> None:
        self._wake.set()

    def _watch(self) -> None:
        while not self._stopping:
            self._wake.wait(LOOK_S)
            self._wake.clear()
            try:
                self.journal.catch_up(self._on_watch)
                self._end_dead_sessions(watched=True)
            except TreeUnavailable:
                pass  # the thread wakes when the connection is restored
            except SessionLost:
                self._expelled = True
            if self.lost:
                self.journal.end()
                return

    def position(self) -> int:
        """Position of the last committed change, ends of sessions included."""
        self.client.sync()
        self.journal.catch_up()
        self._end_dead_sessions()
        return self.journal.position

    def children(self, path: str) -> list[str]:
        prefix = path.rstrip("/")
        return sorted(name for name in self.client.children(path) if f"{prefix}/{name}" not in _HIDDEN)

    def nodes_below(self, path: str) -> list[TreeNode]:
        """All nodes below ``path`` in path order, without consumers' nodes below the root. Not an atomic view."""
        nodes: list[TreeNode] = []
        parents = [path]
        while parents:
            paths = [
                f"{parent.rstrip('/')}/{name}" for parent, names in self.client.children_of(parents) for name in names
            ]
            parents = []
            for below, node in self.client.get_all(path for path in paths if path not in _HIDDEN):
                if node is not None:
                    nodes.append(TreeNode(below, node[0], node[1].version))
                    if node[1].children:
                        parents.append(below)
        return sorted(nodes, key=lambda node: node.path)

    def snapshot(self) -> tuple[int, list[TreeNode]]:
        """The whole tree and its position: reads the nodes, then applies the commits made meanwhile."""
        for _ in range(ATTEMPTS):
            begin = self.position()
            nodes = {node.path: node for node in self.nodes_below("/")}
            meanwhile = self.journal.between(begin)
            if meanwhile is not None:
                for change in meanwhile:
                    for path, value, version in change.changes:
                        if value is None:
                            nodes.pop(path, None)
                        else:
                            nodes[path] = TreeNode(path, value, version)
                return begin + len(meanwhile), [nodes[path] for path in sorted(nodes)]
        raise TreeUnavailable("the journal is trimmed faster than the tree can be read")


def _name(session_id: int) -> str:
    return f"{session_id & 0xFFFF_FFFF_FFFF_FFFF:016x}"
