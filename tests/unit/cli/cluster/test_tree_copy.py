"""The copy of a coordination tree: what comes along, and how it goes on after each possible interruption."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from oncelog.base.tree import Create, Operation, Set, TreeNode
from oncelog.cli.cluster import tree_copy
from oncelog.cli.cluster.tree_copy import CopyRefused, complete, copy_tree
from oncelog.coordination.memory import MemorySession, MemoryTree
from oncelog.core.controller.brokers.registration import RegistrationRefused, check_complete
from oncelog.core.controller.image import layout
from oncelog.core.controller.image.cluster_image import load_image

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


def nobody(_done: int, _total: int) -> None:
    """Progress that nobody is told of."""


def test_what_lasts_is_copied(source: MemorySession) -> None:
    target = MemoryTree().session()
    told: list[tuple[int, int]] = []
    tree = copy_tree(source, target, lambda done, total: told.append((done, total)))
    assert target.read(layout.CLUSTER_ID) is None
    complete(target, tree.cluster_id)
    assert copied(target) == EXPECTED
    assert {node.path for node in target.subtree("/")} == {*layout.BASE_PATHS, *EXPECTED}
    assert tree.count == len(target.subtree("/"))
    assert told[-1][1] == tree.count


class HidesConsumers(DiesAfter):
    """As ZooKeeper's tree: the parent of consumers is always there, and nothing of theirs is listed."""

    def __init__(self, tree: MemoryTree, commits: int) -> None:
        super().__init__(tree, commits)
        if self.read("/consumers") is None:
            tree.session().commit([Create("/consumers", b"")])

    def subtree(self, path: str) -> list[TreeNode]:
        return [node for node in super().subtree(path) if not node.path.startswith("/consumers")]


def test_offsets_of_old_consumers_come_along_and_are_written_over(
    source: MemorySession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tree_copy, "MOST_OPERATIONS", 3)
    source.commit([Create(path, b"") for path in ("/consumers", "/consumers/g", "/consumers/g/offsets")])
    source.commit([Create("/consumers/g/offsets/t", b""), Create("/consumers/g/offsets/t/0", b"7")])
    tree = MemoryTree()
    with pytest.raises(Interrupted):
        copy_tree(source, HidesConsumers(tree, 9), nobody)
    target = HidesConsumers(tree, 1000)
    assert target.read("/consumers/g") is not None, "it was interrupted behind that"
    result = copy_tree(source, target, nobody)
    complete(target, result.cluster_id)
    assert copy_tree(source, target, nobody) == result
    offset = target.read("/consumers/g/offsets/t/0")
    assert offset is not None
    assert offset.value == b"7"


def test_it_goes_on_after_any_interruption(source: MemorySession, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the source is set aside and, by the last commit, after it."""
    monkeypatch.setattr(tree_copy, "MOST_OPERATIONS", 3)
    for commits in range(100):
        tree = MemoryTree()
        target: MemorySession = DiesAfter(tree, commits)
        is_aside = False
        try:
            copy_tree(source, target, nobody)
            is_aside = True
            complete(target, ID)
            break
        except Interrupted:
            assert target.read(layout.CLUSTER_ID) is None
        target = tree.session()
        if commits:
            with pytest.raises(RegistrationRefused, match="if interrupted, run it again"):
                check_complete(load_image(target.subtree("/oncelog")))
        copy_tree(source, target, nobody, is_aside=is_aside)
        complete(target, ID)
        assert copied(target) == EXPECTED
        check_complete(load_image(target.subtree("/oncelog")))
    assert 5 < commits < 99
    assert is_aside


def test_a_source_that_was_set_aside_goes_nowhere_else(source: MemorySession) -> None:
    with pytest.raises(CopyRefused, match="name that path"):
        copy_tree(source, MemoryTree().session(), nobody, is_aside=True)


def test_once_more_after_all_was_copied(source: MemorySession) -> None:
    target = MemoryTree().session()
    for is_aside in (False, False, True):
        complete(target, copy_tree(source, target, nobody, is_aside=is_aside).cluster_id)
        assert copied(target) == EXPECTED


def test_what_the_broker_did_alone_after_the_copy_is_not_passed_over(source: MemorySession) -> None:
    """It was started once more before its tree had been set aside, as versions before this one allowed."""
    target = MemoryTree().session()
    complete(target, copy_tree(source, target, nobody).cluster_id)
    source.commit([Create("/brokers/topics/later", b"1")])
    with pytest.raises(CopyRefused, match=r"differs from the directory's \(/brokers/topics/later\)"):
        copy_tree(source, target, nobody)


def test_a_copy_that_somebody_else_removed_is_not_completed(source: MemorySession) -> None:
    target = MemoryTree().session()
    with pytest.raises(CopyRefused, match="run the command again"):
        complete(target, ID)


@pytest.mark.parametrize(
    ("there", "why"),
    [
        ([Create("/other", b"")], r"not empty \(it has /other\)"),
        ([Create("/oncelog", b""), Create("/oncelog/adopting", b"x")], "another broker is being adopted"),
        ([Create("/cluster", b""), Create("/cluster/id", layout.cluster_id_value("B" * 22))], "belongs to cluster B"),
    ],
)
def test_a_tree_of_others_is_left_alone(source: MemorySession, there: list[Operation], why: str) -> None:
    target = MemoryTree().session()
    target.commit(there)
    before = target.subtree("/")
    with pytest.raises(CopyRefused, match=why):
        copy_tree(source, target, nobody)
    assert target.subtree("/") == before


def test_a_tree_of_no_cluster_is_refused() -> None:
    with pytest.raises(CopyRefused, match="has no cluster id yet"):
        copy_tree(MemoryTree().session(), MemoryTree().session(), nobody)
