"""The adapters of the coordination tree as the conformance suite uses them: opened, shared, and sessions ended."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Final, Protocol

import pytest
from kazoo.client import KazooClient

from oncelog.coordination.memory import MemorySession, MemoryTree
from oncelog.coordination.sqlite.tree import SqliteSession, SqliteTree
from oncelog.coordination.zookeeper.tree import ZooKeeperSession, ZooKeeperTree
from oncelog.ports import Coordination
from tests.conformance.coordination.tree_process import RemoteSession, RemoteTree, TreeProcess
from tests.peers.zookeeper import ZooKeeper

TIMEOUT_MS: Final = 60_000
"""The time-out of sessions: longer than any test takes that is not about it."""

_PATHS: Final = itertools.count(1)


class Tree(Protocol):
    """A tree and what a test does with it."""

    def session(self) -> Coordination: ...

    def expire(self, session: Coordination) -> None:
        """End a session as when its process is not heard of any more."""

    def close(self) -> None: ...


class Memory:
    """The tree in memory."""

    def __init__(self) -> None:
        self._tree = MemoryTree()

    def session(self) -> Coordination:
        return self._tree.session()

    def expire(self, session: Coordination) -> None:
        assert isinstance(session, MemorySession)
        self._tree.end_session(session._session_id)

    def close(self) -> None:
        """Nothing is held."""


class Sqlite:
    """A file that is opened by ``trees`` in turn: sessions are of one after the other."""

    def __init__(self, *trees: SqliteTree | RemoteTree) -> None:
        self._trees = trees
        self._next = itertools.cycle(trees)

    def session(self) -> Coordination:
        return next(self._next).session()

    def expire(self, session: Coordination) -> None:
        tree = next(tree for tree in self._trees if isinstance(tree, SqliteTree))
        if isinstance(session, RemoteSession):
            tree.expire(session._call("__getattribute__", "_session_id"))
        else:
            assert isinstance(session, SqliteSession)
            tree.expire(session._session_id)

    def close(self) -> None:
        for tree in self._trees:
            tree.close()


class InZooKeeper:
    """A path in ZooKeeper."""

    def __init__(self, connect: str) -> None:
        self._tree = ZooKeeperTree(connect, TIMEOUT_MS)
        self._connect = connect
        self._sessions: list[ZooKeeperSession] = []

    def session(self) -> Coordination:
        session = self._tree.session()
        self._sessions.append(session)
        return session

    def expire(self, session: Coordination) -> None:
        assert isinstance(session, ZooKeeperSession)
        expire_session(session, self._connect)

    def close(self) -> None:
        for session in self._sessions:
            session.close()


def expire_session(session: ZooKeeperSession, connect: str) -> None:
    """End a session as ZooKeeper does: whoever has its password closes it."""
    other = KazooClient(connect.partition("/")[0], client_id=session._link.client._client.client_id)
    other.start()
    other.stop()
    other.close()


def _in_zookeeper(_directory: Path, request: pytest.FixtureRequest) -> Tree:
    server: ZooKeeper = request.getfixturevalue("zookeeper")
    return InZooKeeper(f"{server.connect}/test/{next(_PATHS)}")


def _shared(directory: Path, _request: pytest.FixtureRequest) -> Tree:
    path = directory / "tree.db"
    return Sqlite(SqliteTree(path, TIMEOUT_MS), SqliteTree(path, TIMEOUT_MS))


def _of_two_processes(directory: Path, request: pytest.FixtureRequest) -> Tree:
    path = directory / "tree.db"
    process: TreeProcess = request.getfixturevalue("tree_process")
    return Sqlite(process.open("sqlite", str(path), TIMEOUT_MS), SqliteTree(path, TIMEOUT_MS))


_ALL: Final[dict[str, tuple[Callable[[Path, pytest.FixtureRequest], Tree], tuple[pytest.MarkDecorator, ...]]]] = {
    "memory": (lambda _directory, _request: Memory(), ()),
    "sqlite": (lambda directory, _request: Sqlite(SqliteTree(directory / "tree.db", TIMEOUT_MS)), ()),
    "sqlite shared": (_shared, ()),
    "sqlite of two processes": (_of_two_processes, (pytest.mark.slow,)),
    "zookeeper": (_in_zookeeper, (pytest.mark.slow,)),
}
TREES: Final = {name: opened for name, (opened, _) in _ALL.items()}
PARAMS: Final = [pytest.param(name, marks=marks, id=name) for name, (_, marks) in _ALL.items()]
