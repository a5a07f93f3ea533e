"""The behaviour of every adapter of the coordination tree. An adapter joins by a line in ``TREES``.

A tree outlives its sessions; ``session()`` opens one, in another process than the last where an adapter has several.
Changes may arrive later than the answer to the commit: a test waits for them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from threading import Thread

import pytest

from oncelog.base.tree import ABSENT
from oncelog.ports import (
    ANY_VERSION,
    Change,
    Check,
    CommittedChange,
    Conflict,
    Coordination,
    Create,
    Delete,
    Operation,
    SessionLost,
    Set,
    TreeNode,
)
from tests.conformance.coordination.trees import PARAMS, TREES, InZooKeeper, Tree
from tests.waiting import wait_until


@pytest.fixture(params=PARAMS)
def tree(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Tree]:
    made = TREES[request.param](tmp_path, request)
    yield made
    made.close()


@pytest.fixture
def session(tree: Tree) -> Coordination:
    return tree.session()


def await_changes(count: int, *seen: Sequence[CommittedChange]) -> None:
    """Wait until each follower has been told of ``count`` changes."""
    wait_until(lambda: all(len(item) >= count for item in seen), lambda: f"{count} changes, there are {seen}")


def refused(session: Coordination, *operations: Operation) -> Operation:
    with pytest.raises(Conflict) as caught:
        session.commit(operations)
    return caught.value.operation


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
            == last
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


class TestFollow:
    def test_every_session_sees_all_commits_in_one_order_its_own_included(self, tree: Tree) -> None:
        one, other = tree.session(), tree.session()
        seen: list[CommittedChange] = []
        seen_by_other: list[CommittedChange] = []
        one.follow(one.position(), seen.append)
        other.follow(other.position(), seen_by_other.append)
        first = one.commit([Create("/a", b""), Create("/b", b""), Set("/a", b"1", 0), Check("/b", 0)], "first")
        second = other.commit([Delete("/b", 0)], "second")
        await_changes(2, seen, seen_by_other)
        assert seen == seen_by_other
        assert [(change.position, change.token) for change in seen] == [(first, "first"), (second, "second")]
        assert second == first + 1 == one.position() == other.position()
        assert set(seen[0].changes) == {Change("/a", b"1", 1), Change("/b", b"", 0)}
        assert list(seen[1].changes) == [Change("/b", None, ABSENT)]

    def test_what_was_refused_is_no_change(self, tree: Tree) -> None:
        one = tree.session()
        seen: list[CommittedChange] = []
        one.follow(one.position(), seen.append)
        with pytest.raises(Conflict):
            one.commit([Create("/refused", b""), Check("/absent", 0)], "refused")
        one.commit([Create("/a", b"")], "carried out")
        await_changes(1, seen)
        assert [change.token for change in seen] == ["carried out"]
        assert not one.was_committed("refused")

    def test_a_session_that_begins_behind_is_told_what_it_missed(self, tree: Tree) -> None:
        one, other = tree.session(), tree.session()
        before = one.position()
        one.commit([Create("/a", b"")], "a")
        between = one.position()
        one.commit([Create("/b", b"")], "b")
        seen: list[CommittedChange] = []
        other.follow(between, seen.append)
        await_changes(1, seen)
        assert [change.token for change in seen] == ["b"]
        assert between == before + 1

    def test_the_end_of_a_session_is_a_change(self, tree: Tree) -> None:
        one, other = tree.session(), tree.session()
        one.commit([Create("/e", b"", ephemeral=True)])
        seen: list[CommittedChange] = []
        other.follow(other.position(), seen.append)
        one.close()
        await_changes(1, seen)
        assert [list(change.changes) for change in seen] == [[Change("/e", None, ABSENT)]]

    def test_a_session_that_has_ended_commits_nothing_until_it_is_renewed(self, tree: Tree) -> None:
        one, other = tree.session(), tree.session()
        one.commit([Create("/e", b"", ephemeral=True)])
        one.close()
        with pytest.raises(SessionLost):
            one.commit([Create("/late", b"")])
        assert other.read("/late") is None
        one.renew()
        one.commit([Create("/e", b"again", ephemeral=True)])
        assert other.read("/e") == TreeNode("/e", b"again", 0)

    def test_a_session_that_is_renewed_leaves_nothing_behind(self, tree: Tree) -> None:
        """It may not know that it is alive: the answer to its registration was lost."""
        one, other = tree.session(), tree.session()
        one.commit([Create("/e", b"", ephemeral=True)])
        one.renew()
        assert other.read("/e") is None
        one.commit([Create("/e", b"again", ephemeral=True)])
        assert other.read("/e") == TreeNode("/e", b"again", 0)

    def test_an_unknown_outcome_is_settled_by_the_token(self, tree: Tree) -> None:
        one, other = tree.session(), tree.session()
        one.commit([Create("/a", b"")], "one/1")
        assert other.was_committed("one/1")
        assert not other.was_committed("one/2")

    def test_following_can_be_ended(self, tree: Tree) -> None:
        one, other = tree.session(), tree.session()
        seen: list[CommittedChange] = []
        seen_by_other: list[CommittedChange] = []
        one.follow(one.position(), seen.append)
        other.follow(other.position(), seen_by_other.append)
        one.follow(one.position(), None)
        other.commit([Create("/a", b"")])
        one.commit([Create("/b", b"")])
        await_changes(2, seen_by_other)
        assert seen == []

    def test_a_session_is_told_only_of_what_is_behind_the_position_it_follows_from(self, tree: Tree) -> None:
        one, other = tree.session(), tree.session()
        last = one.position()
        for name in "abc":
            last = one.commit([Create(f"/{name}", b"")], name)
        seen: list[CommittedChange] = []
        other.follow(last, seen.append)
        one.commit([Create("/d", b"")], "d")
        await_changes(1, seen)
        assert [(change.position, change.token) for change in seen] == [(last + 1, "d")]

    def test_a_follower_knows_the_whole_tree_from_a_snapshot_and_the_changes_behind_it(self, tree: Tree) -> None:
        one, other = tree.session(), tree.session()
        one.commit([Create("/a", b"0"), Create("/e", b"", ephemeral=True)])
        position, nodes = other.snapshot()
        assert position == one.position()
        assert nodes == [TreeNode("/a", b"0", 0), TreeNode("/e", b"", 0)]
        seen: list[CommittedChange] = []
        other.follow(position, seen.append)
        one.commit([Set("/a", b"1", 0)])
        await_changes(1, seen)
        assert [(change.position, change.changes) for change in seen] == [(position + 1, (Change("/a", b"1", 1),))]

    def test_commits_of_two_sessions_at_once_are_seen_in_one_order_without_gaps(self, tree: Tree) -> None:
        one, other = tree.session(), tree.session()
        start = one.position()
        seen: list[CommittedChange] = []
        seen_by_other: list[CommittedChange] = []
        one.follow(start, seen.append)
        other.follow(start, seen_by_other.append)

        def write(session: Coordination, name: str) -> None:
            for number in range(10):
                session.commit([Create(f"/{name}{number}", b"")], f"{name}{number}")

        threads = [Thread(target=write, args=item) for item in ((one, "a"), (other, "b"))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        await_changes(20, seen, seen_by_other)
        assert seen == seen_by_other
        assert [change.position for change in seen] == list(range(start + 1, start + 21))

    def test_a_snapshot_is_of_one_position_whatever_is_committed_meanwhile(self, tree: Tree) -> None:
        one, other = tree.session(), tree.session()
        begin = one.commit([Create("/a", b""), Create("/b", b""), *(Create(f"/{n}", b"") for n in range(30))])
        writing = Thread(target=lambda: [one.commit([Set("/a", b"", n), Set("/b", b"", n)]) for n in range(20)])
        writing.start()
        versions: list[int] = []
        while not versions or versions[-1] < 20:
            position, nodes = other.snapshot()
            result = {node.path: node.version for node in nodes}
            assert result["/a"] == result["/b"] == position - begin
            versions.append(position - begin)
        writing.join()


class TestPositionAtOnce:
    """The position of the last commit of any session; None in ZooKeeper, which has to be asked."""

    def test_it_is_that_of_the_last_commit(self, tree: Tree) -> None:
        sessions = tree.session(), tree.session()
        for number in range(6):
            position = sessions[number % 2].commit([Create(f"/{number}", b"")])
            for session in sessions:
                assert session.position_at_once() == (None if isinstance(tree, InZooKeeper) else position)

    def test_the_end_of_a_session_counts(self, tree: Tree) -> None:
        session, other = tree.session(), tree.session()
        other.commit([Create("/e", b"", ephemeral=True)])
        tree.expire(other)
        wait_until(lambda: session.read("/e") is None, "the node's end")
        assert session.position_at_once() == (None if isinstance(tree, InZooKeeper) else session.position())


class TestEnds:
    def test_a_session_that_the_tree_ends_is_told_so_and_others_see_its_nodes_go(self, tree: Tree) -> None:
        one, other = tree.session(), tree.session()
        one.commit([Create("/e", b"", ephemeral=True)])
        ends: list[str] = []
        seen: list[CommittedChange] = []
        one.follow(one.position(), lambda _: None, lambda: ends.append("ended"))
        other.follow(other.position(), seen.append)
        tree.expire(one)
        wait_until(lambda: ends, "the end of the session")
        await_changes(1, seen)
        assert [list(change.changes) for change in seen] == [[Change("/e", None, ABSENT)]]
        assert seen[0].token == ""
        with pytest.raises(SessionLost):
            one.commit([Create("/late", b"")])
        assert other.children("/") == []
        one.renew()
        one.commit([Create("/e", b"again", ephemeral=True)])
        assert other.read("/e") == TreeNode("/e", b"again", 0)
        assert ends == ["ended"]

    def test_a_session_that_is_closed_or_renewed_is_told_of_no_end(self, tree: Tree) -> None:
        one, other = tree.session(), tree.session()
        ends: list[str] = []
        seen: list[CommittedChange] = []
        other.follow(other.position(), seen.append)
        for end in (one.renew, one.close):
            one.commit([Create("/e", b"", ephemeral=True)])
            one.follow(one.position(), lambda _: None, lambda: ends.append("ended"))
            end()
        await_changes(4, seen)
        assert ends == []

    def test_whoever_follows_after_the_end_is_told_of_it_too(self, tree: Tree) -> None:
        one = tree.session()
        one.commit([Create("/a", b"")])
        ends: list[str] = []
        position = one.position()
        tree.expire(one)
        one.follow(position, lambda _: None, lambda: ends.append("ended"))
        wait_until(lambda: ends, "the end of the session")
        assert ends == ["ended"]

    def test_a_session_that_ends_without_ephemeral_nodes_leaves_no_change(self, tree: Tree) -> None:
        one, other = tree.session(), tree.session()
        one.commit([Create("/a", b"")])
        one.close()
        before = other.position()
        assert other.commit([Create("/b", b"")]) == before + 1
