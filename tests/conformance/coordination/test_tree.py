"""What every adapter of the coordination tree must do. An adapter joins by a line in ``TREES``.

A tree outlives its sessions; ``session()`` opens one. Adapters in other processes (ZooKeeper) may tell of changes a
moment later, so the tests wait for what they expect through ``told``.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Protocol

import pytest

from oncelog.coordination.memory import MemoryTree
from oncelog.coordination.sqlite import SqliteTree
from oncelog.ports import ANY_VERSION, Check, Conflict, Coordination, Create, Delete, Operation, Set, TreeNode


class Tree(Protocol):
    def session(self) -> Coordination: ...


TREES: dict[str, Callable[[Path], Tree]] = {
    "memory": lambda _: MemoryTree(),
    "sqlite": lambda directory: SqliteTree(directory / "tree.db"),
}


@pytest.fixture(params=sorted(TREES))
def tree(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Tree]:
    made = TREES[request.param](tmp_path)
    yield made
    if isinstance(made, SqliteTree):
        made.close()


@pytest.fixture
def session(tree: Tree) -> Coordination:
    return tree.session()


def refused(session: Coordination, *operations: Operation) -> Operation:
    with pytest.raises(Conflict) as caught:
        session.commit(operations)
    return caught.value.operation


class Told:
    """Collects what a watch is told."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._paths: list[str] = []

    def __call__(self, paths: list[str]) -> None:
        with self._changed:
            self._paths.extend(paths)
            self._changed.notify_all()

    def expect(self, paths: Sequence[str]) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: len(self._paths) >= len(paths), timeout=5)
            assert self._paths == list(paths)


class TestReading:
    def test_a_node_has_the_value_it_was_created_with_and_version_0(self, session: Coordination) -> None:
        session.commit([Create("/a", b"1")])
        assert session.read("/a") == TreeNode("/a", b"1", 0)

    def test_a_node_that_does_not_exist_is_none(self, session: Coordination) -> None:
        assert session.read("/a") is None
        assert session.children("/a") == []
        assert session.subtree("/a") == []

    def test_children_are_names_in_order_and_not_grandchildren(self, session: Coordination) -> None:
        session.commit([Create("/p", b""), Create("/p/b", b""), Create("/p/a", b""), Create("/p/a/c", b"")])
        session.commit([Create("/p-q", b""), Create("/p.q", b"")])
        assert session.children("/p") == ["a", "b"]
        assert session.children("/") == ["p", "p-q", "p.q"]

    def test_a_subtree_is_all_below_in_path_order_without_its_root(self, session: Coordination) -> None:
        session.commit([Create(path, b"") for path in ("/t", "/t/a", "/t/a-b", "/t/a/x", "/t/b", "/t0", "/t-")])
        assert [node.path for node in session.subtree("/t")] == ["/t/a", "/t/a-b", "/t/a/x", "/t/b"]
        assert [node.path for node in session.subtree("/")] == sorted(
            ["/t", "/t/a", "/t/a-b", "/t/a/x", "/t/b", "/t0", "/t-"]
        )

    def test_values_are_bytes_of_any_kind_and_names_any_text(self, session: Coordination) -> None:
        session.commit([Create("/ü λ", bytes(range(256)))])
        assert session.read("/ü λ") == TreeNode("/ü λ", bytes(range(256)), 0)

    def test_every_session_sees_what_is_committed(self, tree: Tree) -> None:
        one, other = tree.session(), tree.session()
        one.commit([Create("/a", b"1")])
        assert other.read("/a") == TreeNode("/a", b"1", 0)


class TestVersions:
    def test_each_set_raises_the_version_by_one(self, session: Coordination) -> None:
        session.commit([Create("/a", b"0")])
        session.commit([Set("/a", b"1", 0)])
        session.commit([Set("/a", b"2", 1), Set("/a", b"3", 2)])
        assert session.read("/a") == TreeNode("/a", b"3", 3)

    def test_a_set_at_another_version_is_refused(self, session: Coordination) -> None:
        session.commit([Create("/a", b"0")])
        for version in (1, 7):
            assert refused(session, Set("/a", b"1", version)) == Set("/a", b"1", version)
        assert session.read("/a") == TreeNode("/a", b"0", 0)

    def test_any_version_matches_every_version_of_a_node_that_exists(self, session: Coordination) -> None:
        session.commit([Create("/a", b"0"), Set("/a", b"1", ANY_VERSION), Check("/a", ANY_VERSION)])
        session.commit([Delete("/a", ANY_VERSION)])
        refused(session, Set("/a", b"", ANY_VERSION))
        refused(session, Delete("/a", ANY_VERSION))
        refused(session, Check("/a", ANY_VERSION))

    def test_a_node_created_again_begins_at_version_0(self, session: Coordination) -> None:
        session.commit([Create("/a", b""), Set("/a", b"", 0), Delete("/a", 1), Create("/a", b"new")])
        assert session.read("/a") == TreeNode("/a", b"new", 0)

    def test_a_check_changes_nothing_and_guards_the_rest(self, session: Coordination) -> None:
        session.commit([Create("/a", b"")])
        session.commit([Check("/a", 0), Create("/b", b"")])
        assert refused(session, Check("/a", 1), Create("/c", b"")) == Check("/a", 1)
        assert session.read("/a") == TreeNode("/a", b"", 0)
        assert session.read("/c") is None

    def test_a_delete_at_another_version_is_refused(self, session: Coordination) -> None:
        session.commit([Create("/a", b""), Set("/a", b"", 0)])
        refused(session, Delete("/a", 0))
        session.commit([Delete("/a", 1)])
        assert session.read("/a") is None


class TestShape:
    def test_a_node_needs_its_parent(self, session: Coordination) -> None:
        assert refused(session, Create("/a/b", b"")) == Create("/a/b", b"")
        session.commit([Create("/a", b""), Create("/a/b", b"")])

    def test_a_node_is_created_once(self, session: Coordination) -> None:
        session.commit([Create("/a", b"1")])
        refused(session, Create("/a", b"2"))
        assert session.read("/a") == TreeNode("/a", b"1", 0)

    def test_a_node_with_children_is_not_deleted(self, session: Coordination) -> None:
        session.commit([Create("/a", b""), Create("/a/b", b""), Create("/a-b", b"")])
        assert refused(session, Delete("/a", 0)) == Delete("/a", 0)
        session.commit([Delete("/a/b", 0), Delete("/a", 0)])
        assert [node.path for node in session.subtree("/")] == ["/a-b"]

    @pytest.mark.parametrize("path", ["", "/", "a", "/a/", "//a", "/a//b"])
    def test_a_malformed_path_is_our_mistake(self, session: Coordination, path: str) -> None:
        with pytest.raises(ValueError, match="not a path"):
            session.commit([Create(path, b"")])


class TestAtomicity:
    def test_a_refused_commit_leaves_no_trace(self, session: Coordination) -> None:
        session.commit([Create("/kept", b"old"), Create("/gone", b"old"), Create("/gone/child", b"")])
        before = session.subtree("/")
        last = Check("/absent", 0)
        assert (
            refused(
                session,
                Set("/kept", b"new", 0),
                Set("/kept", b"newer", 1),
                Delete("/gone/child", 0),
                Delete("/gone", 0),
                Create("/made", b""),
                Create("/made/below", b""),
                last,
            )
            is last
        )
        assert session.subtree("/") == before
        refused(session, Delete("/gone", 0))

    def test_operations_see_those_before_them(self, session: Coordination) -> None:
        session.commit([Create("/a", b""), Create("/a/b", b""), Delete("/a/b", 0), Delete("/a", 0), Create("/a", b"x")])
        assert session.subtree("/") == [TreeNode("/a", b"x", 0)]

    def test_of_two_writers_on_one_version_one_wins(self, tree: Tree) -> None:
        one, other = tree.session(), tree.session()
        one.commit([Create("/a", b"")])
        one.commit([Set("/a", b"one", 0)])
        refused(other, Set("/a", b"other", 0))
        assert other.read("/a") == TreeNode("/a", b"one", 1)


class TestSessions:
    def test_ephemeral_nodes_go_with_their_session(self, tree: Tree) -> None:
        one, other = tree.session(), tree.session()
        one.commit([Create("/ids", b""), Create("/ids/1", b"", ephemeral=True)])
        other.commit([Create("/ids/2", b"", ephemeral=True)])
        one.close()
        assert other.children("/ids") == ["2"]
        assert other.read("/ids") == TreeNode("/ids", b"", 0)

    def test_an_ephemeral_node_can_be_set_and_is_still_ephemeral(self, tree: Tree) -> None:
        one, other = tree.session(), tree.session()
        one.commit([Create("/e", b"", ephemeral=True), Set("/e", b"1", 0)])
        other.commit([Set("/e", b"2", 1)])
        one.close()
        assert other.read("/e") is None

    def test_an_ephemeral_node_has_no_children(self, session: Coordination) -> None:
        session.commit([Create("/e", b"", ephemeral=True)])
        refused(session, Create("/e/c", b""))

    def test_a_new_session_may_take_the_place_of_one_that_ended(self, tree: Tree) -> None:
        one = tree.session()
        one.commit([Create("/e", b"one", ephemeral=True)])
        one.close()
        two = tree.session()
        two.commit([Create("/e", b"two", ephemeral=True)])
        assert two.read("/e") == TreeNode("/e", b"two", 0)


class TestWatch:
    def test_a_session_is_told_what_others_changed(self, tree: Tree) -> None:
        one, other = tree.session(), tree.session()
        told = Told()
        other.watch(told)
        one.commit([Create("/a", b""), Create("/b", b""), Set("/a", b"1", 0), Check("/b", 0)])
        one.commit([Delete("/b", 0)])
        told.expect(["/a", "/b", "/b"])

    def test_a_session_is_not_told_of_its_own_changes_nor_of_refused_ones(self, tree: Tree) -> None:
        one, other = tree.session(), tree.session()
        told = Told()
        one.watch(told)
        one.commit([Create("/own", b"")])
        refused(other, Create("/refused", b""), Check("/absent", 0))
        other.commit([Create("/seen", b"")])
        told.expect(["/seen"])

    def test_the_end_of_a_session_is_a_change(self, tree: Tree) -> None:
        one, other = tree.session(), tree.session()
        told = Told()
        other.watch(told)
        one.commit([Create("/e", b"", ephemeral=True)])
        one.close()
        told.expect(["/e", "/e"])

    def test_a_watch_can_be_ended(self, tree: Tree) -> None:
        one, other = tree.session(), tree.session()
        ended, told = Told(), Told()
        other.watch(ended)
        other.watch(None)
        third = tree.session()
        third.watch(told)
        one.commit([Create("/a", b"")])
        told.expect(["/a"])
        ended.expect([])
