"""The ZooKeeper tree's promises beyond the port: servers that go away, answers that are lost, sizes, its journal."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final
from uuid import uuid4

import pytest
from kazoo.client import KazooClient

from oncelog.base.tree import MAX_COMMIT_BYTES, commit_size
from oncelog.coordination.zookeeper import journal
from oncelog.coordination.zookeeper.journal import CHANGES
from oncelog.coordination.zookeeper.tree import ZooKeeperSession, ZooKeeperTree
from oncelog.core.controller.image.layout import missing_base
from oncelog.ports import (
    ANY_VERSION,
    Change,
    CommittedChange,
    CommitTooLarge,
    Create,
    Delete,
    OutcomeUnknown,
    SessionLost,
    Set,
    TreeNode,
    TreeUnavailable,
)
from tests.conformance.coordination.trees import TIMEOUT_MS, expire_session
from tests.peers.zookeeper import ZooKeeper
from tests.waiting import wait_until

pytestmark = pytest.mark.slow


@pytest.fixture
def connect(zookeeper: ZooKeeper) -> str:
    return f"{zookeeper.connect}/{uuid4()}"


@pytest.fixture
def session(connect: str) -> Iterator[ZooKeeperSession]:
    session = ZooKeeperTree(connect, TIMEOUT_MS).session()
    yield session
    session.close()


def test_nodes_are_where_kafkas_tools_look_for_them(session: ZooKeeperSession, connect: str) -> None:
    session.commit([Create("/brokers", b""), Create("/brokers/ids", b""), Create("/brokers/ids/1", b"{}", True)])
    client = KazooClient(connect)
    client.start()
    value, stat = client.get("/brokers/ids/1")
    assert (value, stat.ephemeralOwner) == (b"{}", session._link.client.session_id)
    assert sorted(client.get_children("/")) == ["brokers", "consumers", "oncelog_tree"]
    client.stop()
    client.close()


KAFKAS: Final = (
    "/admin/delete_topics",
    "/brokers/ids",
    "/brokers/seqid",
    "/brokers/topics",
    "/config/brokers",
    "/config/changes",
    "/config/clients",
    "/config/ips",
    "/config/topics",
    "/config/users",
    "/consumers",
    "/isr_change_notification",
    "/log_dir_event_notification",
)
"""Nodes that Apache Kafka's brokers make when they start (3.9: ``ZkData.PersistentZkPaths``), but that of producer ids,
which is made with the first block."""


def test_all_nodes_of_kafkas_brokers_are_there_from_the_start(session: ZooKeeperSession, connect: str) -> None:
    session.commit(missing_base(node.path for node in session.subtree("/")))
    assert missing_base(node.path for node in session.snapshot()[1]) == []
    client = KazooClient(connect)
    client.start()
    assert [path for path in KAFKAS if client.exists(path) is None] == []
    assert client.get_acls("/consumers")[0][0].perms == 31, "everybody's"
    client.stop()
    client.close()


def test_without_a_path_the_tree_is_at_the_root_and_hides_what_is_zookeepers(zookeeper: ZooKeeper) -> None:
    session = ZooKeeperTree(zookeeper.connect, TIMEOUT_MS).session()
    session.commit([Create("/at-the-root", b"")])
    assert "zookeeper" not in session.children("/")
    assert not [node.path for node in session.subtree("/") if node.path.startswith(("/zookeeper", "/oncelog_tree"))]
    session.commit([Delete("/at-the-root", 0)])
    session.close()


class TestLostAnswers:
    @staticmethod
    def lose_answer(session: ZooKeeperSession, monkeypatch: pytest.MonkeyPatch, *, carried_out: bool) -> None:
        """The connection breaks at the next transaction, after ZooKeeper has carried it out or before it has it."""
        client = session._link.client
        transact = client.transact

        def broken(operations: Any) -> None:
            monkeypatch.setattr(client, "transact", transact)
            if carried_out:
                transact(operations)
            raise OutcomeUnknown("the connection was lost")

        monkeypatch.setattr(client, "transact", broken)

    @pytest.mark.parametrize("carried_out", [True, False])
    def test_an_outcome_that_is_not_known_is_settled_by_the_journal(
        self, session: ZooKeeperSession, monkeypatch: pytest.MonkeyPatch, carried_out: bool
    ) -> None:
        seen: list[CommittedChange] = []
        session.follow(session.position(), seen.append)
        self.lose_answer(session, monkeypatch, carried_out=carried_out)
        with pytest.raises(OutcomeUnknown):
            session.commit([Create("/a", b"", ephemeral=True)], "1")
        assert session.was_committed("1") is carried_out
        session.commit([Create("/b", b"")], "2")
        wait_until(lambda: seen and seen[-1].token == "2", "the second commit")
        assert [change.token for change in seen] == (["1", "2"] if carried_out else ["2"])
        session.renew()
        assert session.children("/") == ["b"], "what may have been created goes with the session"

    def test_an_outcome_whose_entry_may_have_been_trimmed_stays_open(
        self, session: ZooKeeperSession, connect: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        other = ZooKeeperTree(connect, TIMEOUT_MS).session()
        self.lose_answer(session, monkeypatch, carried_out=False)
        with pytest.raises(OutcomeUnknown):
            session.commit([Create("/a", b"")], "1")
        followed = session._link.journal
        followed._skip_to(followed.position + 2)
        other.commit([Create("/b", b"")])
        with pytest.raises(OutcomeUnknown):
            session.was_committed("1")
        assert not session.was_committed("another")
        other.close()


class TestSizes:
    def test_a_commit_of_the_largest_size_is_carried_out(self, session: ZooKeeperSession) -> None:
        one = [Create("/large", bytes(MAX_COMMIT_BYTES - commit_size([Create("/large", b"")])))]
        many = [
            Create(f"/n{number:05}", b"") for number in range(MAX_COMMIT_BYTES // commit_size([Create("/n00000", b"")]))
        ]
        for operations in (one, many):
            assert MAX_COMMIT_BYTES - 100 < commit_size(operations) <= MAX_COMMIT_BYTES
            session.commit(operations)
        assert len(session.children("/")) == len(many) + 1

    def test_a_larger_one_is_refused_with_its_size(self, session: ZooKeeperSession) -> None:
        with pytest.raises(CommitTooLarge, match="a commit of 600071 bytes exceeds the maximum of 500000; split it"):
            session.commit([Create("/large", bytes(600_001))])
        assert session.children("/") == []


class TestJournal:
    def test_old_entries_are_removed_and_a_follower_that_is_behind_sees_a_gap(
        self, session: ZooKeeperSession, connect: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(journal, "KEPT", 10)
        monkeypatch.setattr(journal, "TRIM_EVERY", 10)
        behind = ZooKeeperTree(connect, TIMEOUT_MS).session()
        seen: list[CommittedChange] = []
        behind.follow(behind.position(), seen.append)
        behind._link._stopping = True  # its thread reads no more
        behind._link._wake.set()
        behind._link._thread.join()
        session.commit([Create("/a", b"")])
        wait_until(lambda: seen or not behind._link._thread.is_alive(), "the thread's end")
        read = len(seen)
        for number in range(39):
            session.commit([Set("/a", b"", ANY_VERSION)], str(number))
        assert len(session._link.client.children(CHANGES)) == 10
        assert behind.position() == 40
        assert [change.position for change in seen[read:]] == list(range(31, 41))
        newcomer = ZooKeeperTree(connect, TIMEOUT_MS).session()
        assert newcomer.snapshot() == (40, [TreeNode("/a", b"", 39)])
        behind._link._stopping = False
        behind.close()
        newcomer.close()

    def test_large_entries_are_removed_earlier(
        self, session: ZooKeeperSession, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(journal, "KEPT_BYTES", 10_000)
        session.commit([Create("/a", b"")])
        for _ in range(20):
            session.commit([Set("/a", bytes(1_000), ANY_VERSION)])
        assert 4 <= len(session._link.client.children(CHANGES)) <= 10

    def test_an_entry_that_cannot_be_read_is_a_gap(self, session: ZooKeeperSession, connect: str) -> None:
        seen: list[CommittedChange] = []
        session.follow(session.position(), seen.append)
        session._link.client.transact([Create(journal.change_path(1), b'{"format":9}\n')])
        session.commit([Create("/a", b"")])
        wait_until(lambda: seen, "the commit")
        assert [change.position for change in seen] == [2]


class TestSessions:
    def test_a_node_that_somebody_else_has_made_in_its_place_stays(
        self, session: ZooKeeperSession, connect: str
    ) -> None:
        """A broker that registers again before anybody has written down the end of its former session."""
        former = ZooKeeperTree(connect, TIMEOUT_MS).session()
        former.commit([Create("/1", b"former", ephemeral=True), Create("/2", b"", ephemeral=True)])
        seen: list[CommittedChange] = []
        session.follow(session.position(), seen.append)
        session.commit([Delete("/1", 0), Create("/1", b"again", ephemeral=True)], "again")
        expire_session(former, connect)
        wait_until(lambda: len(seen) == 2, "the end of the former session")
        assert seen[0].changes == (Change("/1", b"again", 0),)
        assert seen[1].changes == (Change("/2", None, -1),)
        assert session.read("/1") == TreeNode("/1", b"again", 0)
        former.close()

    def test_the_end_of_a_session_that_nobody_saw_is_written_down_by_the_next_one(self, connect: str) -> None:
        former = ZooKeeperTree(connect, TIMEOUT_MS).session()
        position = former.commit([Create("/1", b"", ephemeral=True)])
        link = former._link
        link._stopping = True
        link._wake.set()
        link._thread.join()
        link.client.stop()  # ZooKeeper removes its nodes, and nobody is there
        session = ZooKeeperTree(connect, TIMEOUT_MS).session()
        assert session.snapshot() == (position + 1, [])
        assert session._link.client.children(journal.SESSIONS) == [session._link._name]
        session.close()


def renewed(session: ZooKeeperSession) -> bool:
    """True if a new session could be begun."""
    try:
        session.renew()
    except TreeUnavailable:
        return False
    return True


class TestOutage:
    @pytest.fixture
    def own(self, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeper]:
        with ZooKeeper(tmp_path_factory.mktemp("zookeeper")) as server:
            yield server

    def test_a_session_outlives_the_server_and_follows_on_without_a_gap(self, own: ZooKeeper) -> None:
        # A server that has just begun to listen may leave a handshake unanswered. One is given up after the session's
        # time-out divided by the number of servers that are named: with one, the session is over by then.
        tree = ZooKeeperTree(",".join([own.connect] * 6), TIMEOUT_MS)
        session, other = tree.session(), tree.session()
        session.commit([Create("/e", b"", ephemeral=True)])
        seen: list[CommittedChange] = []
        ends: list[str] = []
        other.follow(other.position(), seen.append, lambda: ends.append("ended"))
        own.kill()
        wait_until(lambda: not session._link.client.connected, "the broken connection")
        with pytest.raises(TreeUnavailable):
            session.commit([Create("/meanwhile", b"")])
        own.start()
        for item in (session, other):
            wait_until(lambda each=item: each._link.client.connected, "the connection")
        session.commit([Create("/a", b"")], "after")
        wait_until(lambda: seen, "the commit")
        assert ([change.token for change in seen], ends) == (["after"], [])
        assert session.children("/") == ["a", "e"]
        session.close()
        other.close()

    def test_a_session_that_cannot_be_renewed_is_renewed_later_and_leaves_nothing_behind(self, own: ZooKeeper) -> None:
        session = ZooKeeperTree(own.connect, TIMEOUT_MS, 500).session()
        session.commit([Create("/e", b"", ephemeral=True)])
        own.kill()
        with pytest.raises(TreeUnavailable):
            session.renew()
        with pytest.raises(SessionLost):
            session.commit([Create("/late", b"")])
        own.start()
        wait_until(lambda: renewed(session), "the new session")
        session.commit([Create("/e", b"again", ephemeral=True)])
        assert session.subtree("/") == [TreeNode("/e", b"again", 0)]
        session.close()

    def test_a_server_that_is_not_there_is_named(self, own: ZooKeeper) -> None:
        own.kill()
        with pytest.raises(TreeUnavailable, match=rf"cannot reach ZooKeeper at {own.connect} within 0\.2 s"):
            ZooKeeperTree(f"{own.connect}/path", TIMEOUT_MS, 200).session()
