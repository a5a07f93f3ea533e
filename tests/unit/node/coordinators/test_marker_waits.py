"""Asking coordinators whether decided transactions lack their markers: this broker, and others."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from oncelog.base.ids import (
    CONSUMER_OFFSETS,
    NO_BROKER,
    TRANSACTION_STATE,
    BrokerId,
    CoordinatorEpoch,
    LeaderEpoch,
    ProducerEpoch,
    ProducerId,
    TopicPartition,
    TransactionalId,
)
from oncelog.core.controller.image.cluster_image import ClusterImage
from oncelog.core.controller.image.model import PartitionImage, TopicImage
from oncelog.core.transactions.identity import Identity
from oncelog.core.transactions.settings import TransactionSettings
from oncelog.core.transactions.shard import TransactionShard
from oncelog.core.transactions.states import TransactionState
from oncelog.core.transactions.store import record_of
from oncelog.core.transactions.transitions import Transaction
from oncelog.handlers.broker.waits import UntilMarked
from oncelog.node.brokers.messages import UNREACHABLE, AwaitMarkers, BrokerMessages, Cancel, OnAnswer
from oncelog.node.coordinators.marker_waits import MarkerWaits
from oncelog.node.kernel.deadlines import Deadlines

ME, OTHER = BrokerId(1), BrokerId(2)
HERE = TopicPartition(CONSUMER_OFFSETS, 0)
ELSEWHERE = TopicPartition(CONSUMER_OFFSETS, 1)
DECIDED, OPEN = ProducerId(7), ProducerId(8)
NOW_MS = 1000


def stored(name: str, producer_id: ProducerId, state: TransactionState) -> Transaction:
    identity = Identity(producer_id, ProducerEpoch(0))
    return Transaction(TransactionalId(name), identity, 60_000, state, 0, 0, (HERE, ELSEWHERE))


class Bench:
    """A shard with a decided and an open transaction, and tasks that wait."""

    def __init__(self, *leaders: BrokerId) -> None:
        image = [PartitionImage(leader, LeaderEpoch(0), (leader,), (leader,)) for leader in leaders]
        topic = TopicImage(TRANSACTION_STATE, b"t" * 16, tuple(image))  # type: ignore[arg-type]  # any id does
        self.metadata: Any = SimpleNamespace(image=ClusterImage(topics={TRANSACTION_STATE: topic} if image else {}))
        self.messages = BrokerMessages(ME)
        self.messages.set_sender(self.send)
        self.elsewhere: list[tuple[BrokerId, AwaitMarkers, OnAnswer]] = []
        """The questions that other brokers were asked."""
        self.deadlines = Deadlines()
        self.deadlines.now_ms = NOW_MS
        self.loading = False
        settings = TransactionSettings()
        self.shard = TransactionShard(0, CoordinatorEpoch(0), settings)
        self.shard.apply(*record_of(stored("x", DECIDED, TransactionState.PREPARE_COMMIT), settings))
        self.shard.apply(*record_of(stored("y", OPEN, TransactionState.ONGOING), settings))
        (self.markers,) = self.shard.loaded(0).markers
        self.woken: list[tuple[Any, bool]] = []
        runnable: Any = SimpleNamespace(wake=lambda task, value: self.woken.append((task, value)))
        self.waits = MarkerWaits(
            self.messages, self.metadata, self.deadlines, runnable, lambda: [self.shard], lambda: self.loading
        )

    def ask(self, *producer_ids: ProducerId, partition: TopicPartition = HERE) -> Any:
        task: Any = SimpleNamespace(alarm=None, forget=None)
        self.waits.park(task, UntilMarked(partition, frozenset(producer_ids), NOW_MS + 100))
        return task

    def outcomes(self) -> list[bool]:
        woken, self.woken = self.woken, []
        return [value for _, value in woken]

    def write(self, partition: TopicPartition) -> None:
        self.shard.markers_written(self.markers, [partition], NOW_MS)
        self.waits.marked(partition, DECIDED)

    def send(self, broker_id: BrokerId, message: AwaitMarkers, answered: OnAnswer) -> Cancel:
        requests = broker_id, message, answered
        self.elsewhere.append(requests)
        return lambda: self.elsewhere.remove(requests)


def test_only_a_decided_transaction_without_its_marker_is_waited_for() -> None:
    bench = Bench(ME)
    bench.ask(OPEN)
    bench.ask(ProducerId(9))
    assert bench.outcomes() == [True, True]
    bench.ask(OPEN, DECIDED)
    assert bench.outcomes() == []
    bench.write(ELSEWHERE)
    assert bench.outcomes() == []
    bench.write(HERE)
    assert bench.outcomes() == [True]
    bench.ask(DECIDED)
    assert bench.outcomes() == [True]


def test_nothing_is_known_while_shards_are_loading() -> None:
    bench = Bench(ME)
    bench.loading = True
    bench.ask(OPEN)
    bench.ask(DECIDED)
    assert not bench.waits.shards_changed()
    assert bench.outcomes() == []
    bench.loading = False
    assert bench.waits.shards_changed()
    assert bench.outcomes() == [True]
    bench.write(HERE)
    assert bench.outcomes() == [True]


def test_the_wait_ends_at_its_deadline_and_is_forgotten() -> None:
    bench = Bench(ME)
    bench.ask(DECIDED)
    bench.deadlines.run_due(NOW_MS + 99)
    assert bench.outcomes() == []
    bench.deadlines.run_due(NOW_MS + 100)
    assert bench.outcomes() == [False]
    assert bench.waits._queries == {}


def test_who_left_is_forgotten() -> None:
    bench = Bench(ME)
    bench.ask(DECIDED).forget()
    assert bench.waits._queries == {}


def test_every_broker_that_coordinates_transactions_is_asked_once() -> None:
    bench = Bench(ME, OTHER, ME, OTHER)
    bench.ask(OPEN)
    ((broker_id, message, answered),) = bench.elsewhere
    assert (broker_id, message) == (OTHER, AwaitMarkers(HERE, frozenset({OPEN})))
    assert bench.outcomes() == [], "the other one has not answered"
    answered(None)
    assert bench.outcomes() == [True]


@pytest.mark.parametrize("answers_first", [True, False])
def test_a_broker_that_cannot_be_reached_may_have_decided(answers_first: bool) -> None:
    bench = Bench(ME, OTHER)
    bench.ask(OPEN if answers_first else DECIDED)
    ((_, _, answered),) = bench.elsewhere
    answered(UNREACHABLE)
    assert bench.outcomes() == [False]
    assert bench.waits._queries == {}


def test_a_partition_without_a_leader_has_nobody_to_ask() -> None:
    bench = Bench(ME, OTHER)
    topic = bench.metadata.image.topics[TRANSACTION_STATE]
    orphaned = topic.partitions[1]._replace(leader=NO_BROKER)
    bench.metadata.image = ClusterImage(
        topics={TRANSACTION_STATE: topic._replace(partitions=(topic.partitions[0], orphaned))}
    )
    bench.ask(OPEN)
    assert bench.outcomes() == [False]


def test_without_transactional_ids_nothing_is_decided() -> None:
    bench = Bench()
    bench.ask(DECIDED)
    assert bench.outcomes() == [True]
