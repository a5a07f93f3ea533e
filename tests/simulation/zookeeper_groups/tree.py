"""ZooKeeper as its clients see it: nodes, sessions with ephemeral ones, watches that fire once, and late.

A ``TreeSession`` has the methods of ``coordination.zookeeper.client.ZooKeeperClient`` that consumers use, and fails as
it does: without a connection, by an answer that is lost, by the end of the session, of which it learns when it asks.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from oncelog.base.tree import Check, Create, Delete, Operation, OutcomeUnknown, SessionLost, Set, TreeUnavailable
from oncelog.coordination.zookeeper.client import CreateNext, Reason, Refused, Stat, Watch

LATEST_WATCH_MS: Final = 400


class Tree:
    """The server. ``now_ms`` is moved by the world; ``between`` is called before each request is carried out."""

    def __init__(self, seed: random.Random) -> None:
        self.now_ms = 0
        self.values: dict[str, bytes] = {"/": b""}
        self.owners: dict[str, int] = {}
        """The session of each ephemeral node."""
        self.between: Callable[[TreeSession], None] = lambda session: None
        self._seed = seed
        self._heard_ms: dict[int, tuple[int, int]] = {}
        """The time when each session was last heard of, and its time-out."""
        self._watches: dict[tuple[str, bool], dict[TreeSession, Watch]] = {}
        """Watches by path, and true for its children."""
        self._late: list[tuple[int, TreeSession, Watch]] = []

    def begin(self, session: TreeSession, timeout_ms: int) -> int:
        """Begin a session; its id."""
        number = len(self._heard_ms) + 1
        self._heard_ms[number] = (self.now_ms, timeout_ms)
        return number

    def hear(self, number: int) -> None:
        """Note that a session is alive. Raises SessionLost once it has ended."""
        if not self.is_alive(number):
            raise SessionLost("ended")
        self._heard_ms[number] = (self.now_ms, self._heard_ms[number][1])

    def is_alive(self, number: int) -> bool:
        """True until a session's time-out."""
        heard_ms, timeout_ms = self._heard_ms[number]
        return self.now_ms < heard_ms + timeout_ms

    def end(self, number: int) -> None:
        """End a session at once."""
        self._heard_ms[number] = (self.now_ms, 0)
        self.expire()

    def expire(self) -> None:
        """Remove the ephemeral nodes of sessions that are over."""
        for path, number in list(self.owners.items()):
            if not self.is_alive(number):
                self.delete(path)

    def fire_watches(self) -> None:
        """Call the watches whose news have arrived by now."""
        due = [entry for entry in self._late if entry[0] <= self.now_ms]
        self._late = [entry for entry in self._late if entry[0] > self.now_ms]
        for _, session, watch in due:
            if session.hears:
                watch(None)
            else:
                self._late.append((self.now_ms + 1, session, watch))

    def watch(self, path: str, session: TreeSession, watch: Watch | None, *, children: bool = False) -> None:
        """Set a watch."""
        if watch is not None:
            self._watches.setdefault((path, children), {})[session] = watch

    def put(self, path: str, value: bytes, owner: int = 0) -> None:
        """Create or change a node."""
        is_new = path not in self.values
        self.values[path] = value
        if owner:
            self.owners[path] = owner
        self._happened(path, children=False)
        if is_new:
            self._happened(path.rpartition("/")[0], children=True)

    def delete(self, path: str) -> None:
        """Delete a node."""
        del self.values[path]
        self.owners.pop(path, None)
        self._happened(path, children=False)
        self._happened(path.rpartition("/")[0], children=True)

    def children(self, path: str) -> list[str]:
        """Names of a node's children."""
        prefix = path + "/"
        return [name.removeprefix(prefix) for name in self.values if name.rpartition("/")[0] == path and name != "/"]

    def _happened(self, path: str, *, children: bool) -> None:
        for session, watch in self._watches.pop((path, children), {}).items():
            self._late.append((self.now_ms + self._seed.randrange(LATEST_WATCH_MS), session, watch))


class TreeSession:
    """A session, as a consumer has it. ``cut``: nothing gets through; ``frozen``: its process does not run."""

    def __init__(self, tree: Tree, timeout_ms: int, changed: Callable[[], None], seed: random.Random) -> None:
        self.lost = False
        self.cut = self.frozen = self.stopped = False
        self.lossy = False
        """True while the answers to some transactions are lost."""
        self.changed = changed
        self._tree = tree
        self._seed = seed
        self.session_id = tree.begin(self, timeout_ms)

    @property
    def connected(self) -> bool:
        """See ZooKeeperClient."""
        return not self.cut

    @property
    def hears(self) -> bool:
        """True while news of the tree arrive."""
        return not (self.cut or self.frozen)

    def stop(self) -> None:
        """End the session, if the tree can be reached."""
        if not self.stopped and not self.cut and self._tree.is_alive(self.session_id):
            self._tree.end(self.session_id)
        self.stopped = True

    def children(self, path: str, watch: Watch | None = None) -> list[str]:
        """See ZooKeeperClient."""
        self._ask()
        self._tree.watch(path, self, watch if path in self._tree.values else None, children=True)
        return self._tree.children(path)

    def get(self, path: str, watch: Watch | None = None) -> tuple[bytes, Stat] | None:
        """See ZooKeeperClient."""
        self._ask()
        value = self._tree.values.get(path)
        if value is None:
            return None
        self._tree.watch(path, self, watch)
        return value, Stat(0, self._tree.owners.get(path, 0), 0)

    def get_all(self, paths: Iterable[str]) -> Iterator[tuple[str, tuple[bytes, Stat] | None]]:
        """See ZooKeeperClient."""
        for path in paths:
            yield path, self.get(path)

    def exists(self, path: str, watch: Watch | None = None) -> Stat | None:
        """See ZooKeeperClient."""
        self._ask()
        self._tree.watch(path, self, watch)
        return Stat(0, self._tree.owners.get(path, 0), 0) if path in self._tree.values else None

    def ensure(self, paths: Sequence[str]) -> None:
        """See ZooKeeperClient."""
        self._ask()
        for path in paths:
            if path not in self._tree.values:
                self._tree.put(path, b"")

    def transact(self, operations: Sequence[Operation | CreateNext]) -> str:
        """See ZooKeeperClient."""
        self._ask()
        fate = self._seed.random() if self.lossy else 1.0
        if fate < 0.25:
            raise OutcomeUnknown("the request was lost")
        before, owners = dict(self._tree.values), dict(self._tree.owners)
        for index, operation in enumerate(operations):
            reason = self._refusal(operation)
            if reason is not None:
                self._tree.values, self._tree.owners = before, owners
                raise Refused(index, reason)
            self._apply(operation)
        if fate < 0.5:
            raise OutcomeUnknown("the answer was lost")
        return ""

    def _ask(self) -> None:
        """Let others go first, then raise what a request would."""
        self._tree.between(self)
        if self.lost:
            raise SessionLost("ended")
        if self.cut or self.stopped:
            raise TreeUnavailable("cut off")
        try:
            self._tree.hear(self.session_id)
        except SessionLost:
            self.lost = True
            raise

    def _refusal(self, operation: Operation | CreateNext) -> Reason | None:
        path = operation.path if not isinstance(operation, CreateNext) else operation.prefix
        if isinstance(operation, Create):
            if path in self._tree.values:
                return Reason.EXISTS
            return None if path.rpartition("/")[0] in self._tree.values else Reason.ABSENT
        return None if path in self._tree.values else Reason.ABSENT

    def _apply(self, operation: Operation | CreateNext) -> None:
        match operation:
            case Create(path, value, ephemeral):
                self._tree.put(path, value, self.session_id if ephemeral else 0)
            case Set(path, value):
                self._tree.put(path, value)
            case Delete(path):
                self._tree.delete(path)
            case Check():
                pass
