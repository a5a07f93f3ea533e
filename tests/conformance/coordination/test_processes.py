"""Processes that share a tree: one that dies, one that stands still, many that begin at once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from oncelog.base.tree import ABSENT
from oncelog.ports import (
    Change,
    CommittedChange,
    Coordination,
    Create,
    Operation,
    OutcomeUnknown,
    SessionLost,
    TreeNode,
    TreeUnavailable,
)
from tests.conformance.coordination.tree_process import TreeProcess, open_tree
from tests.conformance.coordination.trees import TIMEOUT_MS
from tests.waiting import wait_until

pytestmark = pytest.mark.slow
SHORT_MS = 500


@pytest.fixture(params=["sqlite", "zookeeper"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, str]:
    """A kind of tree, and where one can be made."""
    if request.param == "sqlite":
        return request.param, str(tmp_path / "tree.db")
    return request.param, f"{request.getfixturevalue('zookeeper').connect}/{uuid4()}"


@pytest.fixture
def session(place: tuple[str, str]) -> Iterator[Coordination]:
    """A session of this process."""
    tree = open_tree(*place, TIMEOUT_MS)
    session = tree.session()
    yield session
    session.close()
    tree.close()


def committed(session: Coordination, operation: Operation) -> int:
    """Commit, also while the connection is lost and made anew: ZooKeeper's is, after a process stood still."""
    while True:
        try:
            return session.commit([operation])
        except (OutcomeUnknown, TreeUnavailable):
            continue


def test_the_session_of_a_process_that_was_killed_ends(session: Coordination, place: tuple[str, str]) -> None:
    """SQLite: at once. ZooKeeper: after its time-out."""
    session.commit([Create("/ids", b"")])
    seen: list[CommittedChange] = []
    with TreeProcess() as process:
        other = process.open(*place, TIMEOUT_MS if place[0] == "sqlite" else SHORT_MS).session()
        position = other.commit([Create("/ids/2", b"", ephemeral=True)], "joined")
        session.follow(position - 1, seen.append)
        process.kill()
        wait_until(lambda: len(seen) == 2, "the end of the session")
    assert [change.token for change in seen] == ["joined", ""]
    assert seen[1].changes == (Change("/ids/2", None, ABSENT),)
    assert session.children("/ids") == []


def test_a_process_that_stood_still_past_its_time_out_has_lost_its_session(
    session: Coordination, place: tuple[str, str]
) -> None:
    session.commit([Create("/ids", b"")])
    with TreeProcess() as process:
        other = process.open(*place, SHORT_MS).session()
        other.commit([Create("/ids/2", b"", ephemeral=True)])
        process.stop()
        wait_until(lambda: session.children("/ids") == [], "the end of the session")
        process.go_on()
        with pytest.raises(SessionLost):
            committed(other, Create("/late", b""))
        other.renew()
        other.commit([Create("/ids/2", b"again", ephemeral=True)])
        assert session.read("/ids/2") == TreeNode("/ids/2", b"again", 0)
    assert session.read("/late") is None


def test_a_process_that_goes_on_is_told_without_a_commit_that_its_session_has_ended(
    session: Coordination, place: tuple[str, str]
) -> None:
    ends: list[str] = []
    with TreeProcess() as process:
        other = process.open(*place, SHORT_MS).session()
        other.follow(other.commit([Create("/e", b"", ephemeral=True)]), lambda _: None, lambda: ends.append("ended"))
        process.stop()
        wait_until(lambda: session.read("/e") is None, "the end of the session")
        assert ends == []
        process.go_on()
        wait_until(lambda: ends, "its own word of the end")


def test_many_processes_that_begin_at_once_make_one_tree(place: tuple[str, str]) -> None:
    processes = [TreeProcess() for _ in range(4)]
    try:
        for process in processes:
            process.send("open", *place, TIMEOUT_MS)
        sessions = [process.opened().session() for process in processes]
        for number, session in enumerate(sessions):
            session.commit([Create(f"/{number}", b"")])
        assert [session.position() for session in sessions] == [4] * 4
        assert sessions[0].subtree("/") == [TreeNode(f"/{number}", b"", 0) for number in range(4)]
    finally:
        for process in processes:
            process.kill()
