"""Processes that share a tree: one that dies, one that stands still, many that begin at once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from oncelog.base.tree import ABSENT
from oncelog.coordination.sqlite import SqliteTree
from oncelog.ports import Change, CommittedChange, Create, SessionLost, TreeNode
from tests.conformance.coordination.tree_process import TreeProcess
from tests.conformance.coordination.trees import TIMEOUT_MS
from tests.waiting import wait_until

pytestmark = pytest.mark.slow
SHORT_MS = 500


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "tree.db"


@pytest.fixture
def tree(path: Path) -> Iterator[SqliteTree]:
    tree = SqliteTree(path, TIMEOUT_MS)
    yield tree
    tree.close()


def test_the_session_of_a_process_that_was_killed_ends_at_once(tree: SqliteTree, path: Path) -> None:
    session = tree.session()
    session.commit([Create("/ids", b"")])
    seen: list[CommittedChange] = []
    with TreeProcess() as process:
        other = process.open("sqlite", str(path), TIMEOUT_MS).session()
        position = other.commit([Create("/ids/2", b"", ephemeral=True)], "joined")
        session.follow(position - 1, seen.append)
        process.kill()
        wait_until(lambda: len(seen) == 2, "the end of the session")
    assert [change.token for change in seen] == ["joined", ""]
    assert seen[1].changes == (Change("/ids/2", None, ABSENT),)
    assert session.children("/ids") == []


def test_a_process_that_stood_still_past_its_time_out_has_lost_its_session(tree: SqliteTree, path: Path) -> None:
    session = tree.session()
    session.commit([Create("/ids", b"")])
    with TreeProcess() as process:
        other = process.open("sqlite", str(path), SHORT_MS).session()
        other.commit([Create("/ids/2", b"", ephemeral=True)])
        process.stop()
        wait_until(lambda: session.children("/ids") == [], "the end of the session")
        process.go_on()
        with pytest.raises(SessionLost):
            other.commit([Create("/late", b"")])
        other.renew()
        other.commit([Create("/ids/2", b"again", ephemeral=True)])
    assert session.read("/late") is None


def test_a_process_that_goes_on_is_told_without_a_commit_that_its_session_has_ended(
    tree: SqliteTree, path: Path
) -> None:
    session = tree.session()
    ends: list[str] = []
    with TreeProcess() as process:
        other = process.open("sqlite", str(path), SHORT_MS).session()
        other.follow(other.commit([Create("/e", b"", ephemeral=True)]), lambda _: None, lambda: ends.append("ended"))
        process.stop()
        wait_until(lambda: session.read("/e") is None, "the end of the session")
        assert ends == []
        process.go_on()
        wait_until(lambda: ends, "its own word of the end")


def test_many_processes_that_begin_at_once_make_one_tree(path: Path) -> None:
    processes = [TreeProcess() for _ in range(4)]
    try:
        for process in processes:
            process.send("open", "sqlite", str(path), TIMEOUT_MS)
        sessions = [process.opened().session() for process in processes]
        for number, session in enumerate(sessions):
            session.commit([Create(f"/{number}", b"")])
        assert [session.position() for session in sessions] == [4] * 4
        assert sessions[0].subtree("/") == [TreeNode(f"/{number}", b"", 0) for number in range(4)]
    finally:
        for process in processes:
            process.kill()
