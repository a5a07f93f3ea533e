"""Sessions with the coordination tree over a path that is cut or slow: who learns of what, and when."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from oncelog.coordination.memory import MemoryTree
from oncelog.ports import Conflict, Create
from oncelog.sim.virtual.kernel import Kernel
from oncelog.sim.virtual.machine import Latencies, Machine
from oncelog.sim.virtual.network.conditions import NetworkConditions
from oncelog.sim.virtual.network.network import Network
from oncelog.sim.virtual.tree_session import TREE, NoAnswer, TreeHost, TreeSession, TreeUnreachable

TIMEOUT_MS = 6_000
DONE = "committed"
CONFLICT = "conflict"


@dataclass
class Cluster:
    """A tree, and a machine for each broker that has a session with it."""

    timeout_ms: int | None = TIMEOUT_MS
    kernel: Kernel = field(default_factory=lambda: Kernel(1))
    tree: MemoryTree = field(default_factory=MemoryTree)

    def __post_init__(self) -> None:
        self.network = Network(self.kernel, NetworkConditions())
        self.host = TreeHost(self.kernel, self.network, self.tree, self.timeout_ms)
        self.machines: dict[str, Machine] = {}

    def session(self, name: str = "broker-1") -> TreeSession:
        """A session of a machine with an ephemeral node of its name."""
        machine = self.machines[name] = Machine(self.kernel, name, self.kernel.entropy(name), Latencies())
        session = self.host.open_session(machine)
        session.reads.commit([Create(f"/{name}", b"", ephemeral=True)])
        return session

    def wait(self, seconds: float) -> None:
        """Let time pass."""
        until_us = self.kernel.now_us + round(seconds * 1_000_000)
        self.kernel.at(until_us, lambda: None)
        while self.kernel.now_us < until_us:
            self.kernel.step()

    def nodes(self) -> list[str]:
        """Names of the nodes below the root."""
        return self.tree.session().children("/")


def commit(session: TreeSession, path: str, into: list[str | NoAnswer]) -> None:
    """Create a node; the answer is DONE, CONFLICT, or none."""

    def access() -> str:
        try:
            session.reads.commit([Create(path, b"")])
        except Conflict:
            return CONFLICT
        return DONE

    session.ask(access, into.append)


def test_a_commit_is_answered_after_the_latency_of_its_machine() -> None:
    cluster, answers = Cluster(), list[str | NoAnswer]()
    session = cluster.session()
    cluster.machines["broker-1"].latencies = Latencies(metadata_us=(700_000, 800_000))
    commit(session, "/a", answers)
    cluster.wait(0.6)
    assert answers == []
    cluster.wait(0.3)
    commit(session, "/a", answers)
    cluster.wait(1)
    assert answers == [DONE, CONFLICT]


def test_heartbeats_keep_a_session_alive_and_without_them_it_expires() -> None:
    cluster = Cluster()
    session, lost = cluster.session(), list[str]()
    session.on_lost = lambda: lost.append("lost")
    cluster.wait(10 * TIMEOUT_MS / 1000)
    assert (session.expired, cluster.nodes()) == (False, ["broker-1"])
    cluster.network.cut("broker-1", TREE)
    cluster.wait(TIMEOUT_MS / 1000 + 0.1)
    assert (session.expired, session.lost, cluster.nodes(), lost) == (True, False, [], [])
    cluster.network.heal("broker-1", TREE)
    cluster.wait(TIMEOUT_MS / 1000)
    assert (session.lost, lost) == (True, ["lost"])


def test_a_cut_shorter_than_the_time_out_costs_no_session() -> None:
    cluster, answers = Cluster(), list[str | NoAnswer]()
    session = cluster.session()
    cluster.network.cut("broker-1", TREE)
    commit(session, "/late", answers)
    cluster.wait(TIMEOUT_MS / 1000 / 3)
    cluster.network.heal("broker-1", TREE)
    cluster.wait(1)
    assert (answers, session.expired, session.lost) == ([DONE], False, False)


def test_the_broker_learns_of_the_end_only_when_the_tree_can_answer_it() -> None:
    cluster = Cluster()
    session = cluster.session()
    cluster.network.cut(TREE, "broker-1")
    session.expire()
    cluster.wait(60)
    assert not session.lost
    cluster.network.heal(TREE, "broker-1")
    cluster.wait(3)
    assert session.lost


def test_a_commit_whose_answer_is_cut_off_was_done_and_its_outcome_is_unknown() -> None:
    cluster, answers = Cluster(), list[str | NoAnswer]()
    session = cluster.session()
    cluster.network.cut(TREE, "broker-1")
    commit(session, "/done", answers)
    cluster.wait(TIMEOUT_MS / 1000)
    assert (answers, cluster.nodes()) == ([NoAnswer.UNKNOWN], ["broker-1", "done"])
    cluster.network.heal(TREE, "broker-1")
    cluster.wait(3)
    commit(session, "/more", answers)
    cluster.wait(1)
    assert answers == [NoAnswer.UNKNOWN, DONE], "the session has lived on: its heartbeats arrived"


def test_a_commit_of_unknown_outcome_may_still_happen_until_the_tree_has_answered_again() -> None:
    cluster, answers = Cluster(timeout_ms=30_000), list[str | NoAnswer]()
    session = cluster.session()
    cluster.wait(9.9)  # a heartbeat was answered at 10 s
    cluster.wait(0.2)
    cluster.network.cut("broker-1", TREE)
    commit(session, "/held", answers)
    cluster.wait(25)
    assert (answers, cluster.nodes()) == ([NoAnswer.UNKNOWN], ["broker-1"])
    cluster.network.heal("broker-1", TREE)
    cluster.wait(3)
    assert cluster.nodes() == ["broker-1", "held"]
    commit(session, "/held", answers)
    cluster.wait(1)
    assert answers == [NoAnswer.UNKNOWN, CONFLICT]


@pytest.mark.parametrize("done", [True, False])
def test_a_lost_answer_leaves_open_whether_the_commit_was_done(done: bool) -> None:
    cluster, answers = Cluster(), list[str | NoAnswer]()
    session = cluster.session()
    session.lose_next_answer(done=done)
    commit(session, "/a", answers)
    cluster.wait(1)
    assert answers == [NoAnswer.UNKNOWN]
    assert ("a" in cluster.nodes()) is done
    commit(session, "/b", answers)
    cluster.wait(1)
    assert answers == [NoAnswer.UNKNOWN, DONE]


def test_commits_of_a_lost_session_are_refused() -> None:
    cluster, answers = Cluster(), list[str | NoAnswer]()
    session = cluster.session()
    session.expire()
    commit(session, "/a", answers)
    cluster.wait(1)
    commit(session, "/b", answers)
    cluster.wait(1)
    assert (answers, session.lost, cluster.nodes()) == ([NoAnswer.SESSION_LOST] * 2, True, [])


def renew(session: TreeSession, into: list[str | NoAnswer]) -> None:
    """Begin a new session with an ephemeral node, as a broker that registers again."""

    def access() -> str:
        session.reads.renew()
        session.reads.commit([Create("/broker-1", b"", ephemeral=True)])
        return DONE

    session.ask(access, into.append, renews=True)


def test_a_lost_session_is_renewed_and_kept_alive_from_then_on() -> None:
    cluster, answers = Cluster(), list[str | NoAnswer]()
    session, lost = cluster.session(), list[str]()
    session.on_lost = lambda: lost.append("lost")
    session.expire()
    cluster.wait(TIMEOUT_MS / 1000)
    assert (session.lost, cluster.nodes()) == (True, [])
    renew(session, answers)
    cluster.wait(10 * TIMEOUT_MS / 1000)
    commit(session, "/a", answers)
    cluster.wait(1)
    assert (answers, lost, cluster.nodes()) == ([DONE, DONE], ["lost"], ["a", "broker-1"])
    assert (session.expired, session.lost) == (False, False)
    session.expire()
    cluster.wait(TIMEOUT_MS / 1000)
    assert (lost, cluster.nodes()) == (["lost"] * 2, ["a"])


@pytest.mark.parametrize("done", [True, False])
def test_a_renewed_session_that_the_broker_has_not_heard_of_gives_way_to_the_next(done: bool) -> None:
    cluster, answers = Cluster(), list[str | NoAnswer]()
    session = cluster.session()
    session.expire()
    cluster.wait(TIMEOUT_MS / 1000)
    session.lose_next_answer(done=done)
    renew(session, answers)
    cluster.wait(1)
    assert (answers, session.lost, cluster.nodes()) == ([NoAnswer.UNKNOWN], True, ["broker-1"] if done else [])
    renew(session, answers)
    cluster.wait(1)
    assert (answers, session.lost, cluster.nodes()) == ([NoAnswer.UNKNOWN, DONE], False, ["broker-1"])


def test_a_machine_that_stands_still_loses_its_session() -> None:
    cluster = Cluster()
    session = cluster.session()
    cluster.machines["broker-1"].frozen = True
    cluster.wait(TIMEOUT_MS / 1000 + 1)
    assert (session.expired, session.lost) == (True, False)
    cluster.machines["broker-1"].frozen = False
    cluster.wait(TIMEOUT_MS / 1000)
    assert session.lost


def test_changes_arrive_in_order_and_not_while_the_path_is_cut() -> None:
    cluster, seen = Cluster(), list[str]()
    session, other = cluster.session(), cluster.session("broker-2")
    session.follow(session.reads.position(), lambda change: seen.append(change.changes[0].path))
    for number in range(20):
        (other if number % 2 else session).reads.commit([Create(f"/n{number:02}", b"")])
    cluster.wait(1)
    assert seen == [f"/n{number:02}" for number in range(20)]
    cluster.network.cut(TREE, "broker-1")
    other.reads.commit([Create("/cut", b"")])
    cluster.wait(1)
    assert len(seen) == 20
    cluster.network.heal(TREE, "broker-1")
    cluster.wait(1)
    assert seen[20:] == ["/cut"]


def test_a_broker_has_its_own_change_before_the_answer_and_at_the_same_time() -> None:
    cluster, seen = Cluster(), list[tuple[str, int]]()
    session, kernel = cluster.session(), cluster.kernel
    session.follow(session.reads.position(), lambda change: seen.append((change.changes[0].path, kernel.now_us)))
    session.ask(lambda: session.reads.commit([Create("/a", b"")]), lambda _: seen.append(("answer", kernel.now_us)))
    cluster.wait(1)
    assert [what for what, _ in seen] == ["/a", "answer"]
    assert len({at_us for _, at_us in seen}) == 1


def test_one_broker_is_cut_off_and_the_others_are_not() -> None:
    cluster = Cluster()
    first, second = cluster.session(), cluster.session("broker-2")
    cluster.network.cut("broker-1", TREE)
    cluster.wait(3 * TIMEOUT_MS / 1000)
    assert (first.expired, second.expired, cluster.nodes()) == (True, False, ["broker-2"])
    with pytest.raises(TreeUnreachable):
        cluster.session("broker-1")


def test_a_session_without_a_time_out_sends_nothing_and_stays() -> None:
    cluster = Cluster(timeout_ms=None)
    session = cluster.session()
    cluster.network.cut("broker-1", TREE)
    cluster.wait(3_600)
    assert (session.expired, cluster.kernel.happened) == (False, 1)


@pytest.mark.parametrize("outlives", [True, False])
def test_a_tree_that_does_not_see_deaths_learns_of_one_when_the_time_out_is_over(outlives: bool) -> None:
    cluster, answers = Cluster(), list[str | NoAnswer]()
    cluster.host.outlives_processes = outlives
    session = cluster.session()
    commit(session, "/a", answers)
    session.abandon()
    cluster.wait(TIMEOUT_MS / 1000 - 0.1)
    assert cluster.nodes() == (["broker-1"] if outlives else [])
    cluster.wait(0.2)
    assert (cluster.nodes(), answers) == ([], [])
