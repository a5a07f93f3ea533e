"""Links between nodes: made on demand, ended by death, made again."""

from __future__ import annotations

from typing import Any

from oncelog.base.ids import BrokerId
from oncelog.node.brokers.broker_links import LinkPurpose
from oncelog.node.brokers.link import RECONNECT_BACKOFF_MS
from oncelog.wire.messages.list_transactions import ListTransactionsRequest
from tests.scenario.cluster.cluster import Cluster


class Bench:
    """Three brokers; the first asks the second."""

    def __init__(self) -> None:
        self.cluster = Cluster(3)
        self.answers: list[Any] = []
        self.refused: list[BrokerId] = []
        self.cluster[1].node.links.on_refused.append(self.refused.append)

    def ask(self) -> None:
        """Ask, and let what follows happen."""
        request = self.cluster[1].node.links.request
        self.cluster[1].do(
            lambda: request(BrokerId(2), LinkPurpose.CONTROL, ListTransactionsRequest(), self.answers.append)
        )


def test_brokers_ask_each_other() -> None:
    bench = Bench()
    bench.ask()
    assert [answer.transaction_states for answer in bench.answers] == [[]]
    assert {(1, 2), (2, 1)} <= {(source, target) for source, target, _ in bench.cluster.wire.sent}


def test_the_death_of_a_process_is_noticed_by_those_that_are_connected_before_its_session_ends() -> None:
    bench = Bench()
    bench.cluster[1].do(lambda: bench.cluster[1].node.links.connect(BrokerId(2), LinkPurpose.CONTROL))
    bench.cluster.advance(1000)
    bench.cluster.kill(2, session_ends=False)
    assert set(bench.refused) == {BrokerId(2)}
    bench.cluster.end_session(2)
    bench.ask()
    assert bench.answers == [None]


def test_a_broker_that_comes_back_is_asked_on_a_new_link() -> None:
    bench = Bench()
    bench.ask()
    bench.cluster.restart(2)
    bench.ask()
    assert [answer is not None for answer in bench.answers] == [True, True]


def test_what_is_asked_over_a_cut_is_answered_when_it_heals_or_its_time_passes() -> None:
    bench = Bench()
    bench.ask()
    bench.cluster.cut(1, 2)
    bench.ask()
    bench.cluster.advance(20_000)
    assert len(bench.answers) == 1
    bench.cluster.heal(1, 2)
    assert [answer is not None for answer in bench.answers] == [True, True]
    bench.cluster.wire.cut(2, 1)
    bench.ask()
    bench.cluster.advance(30_000)
    assert bench.answers[2:] == [None]
    bench.cluster.heal(1, 2)
    bench.ask()
    bench.cluster.advance(RECONNECT_BACKOFF_MS)
    assert bench.answers[3] is not None
