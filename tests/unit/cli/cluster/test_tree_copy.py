"""The copy of a coordination tree: what comes along, and how it goes on after each possible interruption."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from oncelog.base.tree import Create, Operation, Set
from oncelog.cli.cluster import tree_copy
from oncelog.cli.cluster.tree_copy import CopyRefused, copy_tree
from oncelog.coordination.memory import MemorySession, MemoryTree
from oncelog.core.controller.image import layout

ID = layout.cluster_id_value("A" * 22)


class Interrupted(Exception):
    """The process that copies has died."""


class DiesAfter(MemorySession):
    """A session that takes some commits and then no more."""

    def __init__(self, tree: MemoryTree, commits: int) -> None:
        super().__init__(tree, tree.session()._session_id)
        self.left = commits

    def commit(self, operations: Sequence[Operation], token: str = "") -> int:
        """Carry it out, or die."""
        if self.left == 0:
            raise Interrupted
        self.left -= 1
        return super().commit(operations, token)


@pytest.fixture
def source() -> MemorySession:
    """The tree of a broker that was alone: with its registration, and a group that is called ``.``."""
    session = MemoryTree().session()
    session.commit([Create(path, b"") for path in sorted(layout.BASE_PATHS)])
    session.commit([Create("/cluster/id", ID), Create("/brokers/topics/t", b"1"), Create("/brokers/ids/1", b"")])
    session.commit([Create("/config/groups/.", b"2"), Create("/controller", b""), Create("/controller_epoch", b"3")])
    session.commit([Set("/brokers/topics/t", b"4", 0)])
    return session


def copied(target: MemorySession) -> dict[str, bytes]:
    return {node.path: node.value for node in target.subtree("/") if node.value}


EXPECTED = {"/cluster/id": ID, "/brokers/topics/t": b"4", "/config/groups/%2E": b"2", "/controller_epoch": b"3"}


def test_what_lasts_is_copied(source: MemorySession) -> None:
    target = MemoryTree().session()
    told: list[tuple[int, int]] = []
    count = copy_tree(source, target, lambda done, total: told.append((done, total)))
    assert copied(target) == EXPECTED
    assert {node.path for node in target.subtree("/")} == {*layout.BASE_PATHS, *EXPECTED}
    assert count == len(target.subtree("/"))
    assert told[-1][1] == count


def test_it_goes_on_after_any_interruption(source: MemorySession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tree_copy, "MOST_OPERATIONS", 3)
    for commits in range(100):
        tree = MemoryTree()
        target: MemorySession = DiesAfter(tree, commits)
        try:
            copy_tree(source, target, lambda _done, _total: None)
            break
        except Interrupted:
            assert target.read(layout.CLUSTER_ID) is None
        copy_tree(source, target := tree.session(), lambda _done, _total: None)
        assert copied(target) == EXPECTED
    assert 5 < commits < 99


@pytest.mark.parametrize(
    ("there", "why"),
    [
        ([Create("/other", b"")], "not empty, it has /other"),
        ([Create("/oncelog", b""), Create("/oncelog/adopting", b"x")], "another broker is being adopted"),
        ([Create("/cluster", b""), Create("/cluster/id", layout.cluster_id_value("B" * 22))], "is that of cluster B"),
    ],
)
def test_a_tree_of_others_is_left_alone(source: MemorySession, there: list[Operation], why: str) -> None:
    target = MemoryTree().session()
    target.commit(there)
    before = target.subtree("/")
    with pytest.raises(CopyRefused, match=why):
        copy_tree(source, target, lambda _done, _total: None)
    assert target.subtree("/") == before


def test_a_tree_of_no_cluster_is_refused() -> None:
    with pytest.raises(CopyRefused, match="has never been up"):
        copy_tree(MemoryTree().session(), MemoryTree().session(), lambda _done, _total: None)
