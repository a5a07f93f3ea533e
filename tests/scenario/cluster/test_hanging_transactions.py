"""Hanging transactions where the coordinator is on another broker than the partition's leader."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import TRANSACTION_STATE, ProducerEpoch, ProducerId, TopicPartition, TransactionalId
from oncelog.core.transactions.classification import Finding
from oncelog.core.transactions.identity import Identity
from oncelog.node.hanging.watch import RECHECK_MS
from oncelog.node.kernel.events import DeadlineReached
from oncelog.storage.transactions.open_transactions import OpenTransaction
from oncelog.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from oncelog.wire.messages.describe_transactions import DescribeTransactionsRequest
from oncelog.wire.messages.end_txn import EndTxnRequest
from oncelog.wire.messages.find_coordinator import FindCoordinatorRequest
from oncelog.wire.messages.init_producer_id import InitProducerIdRequest
from oncelog.wire.messages.write_txn_markers import WritableTxnMarker, WritableTxnMarkerTopic, WriteTxnMarkersRequest
from tests.scenario.cluster.client import ClusterClient
from tests.scenario.cluster.cluster import Cluster, ClusterDriver
from tests.scenario.cluster.replicated import PARTITION, create_replicated, replace_unheard, replica, state
from tests.scenario.node.requests import batch, produce, produced

TIMEOUT_MS = 12_000
"""Of the transactions: their coordinator tells it with the first look, after ten seconds."""
SOON_MS = TIMEOUT_MS + 3_000
NAME = "x"
DESCRIBE_TRANSACTIONS = 65
LIST_TRANSACTIONS = 66
COORDINATOR = TopicPartition(TRANSACTION_STATE, 0)
TWO_PHASE = {"transaction.two.phase.commit.enable": "true"}
ABORTS = {"transaction.hanging.action": "abort", "transaction.hanging.grace.ms": "5000"}


class Bench:
    """Three brokers; ``t-0`` is led by one that does not coordinate, and followed by the third."""

    def __init__(self, **config: str) -> None:
        never = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "3600000"}
        unverified = {"transaction.partition.verification.enable": "false", **never}
        self.cluster = Cluster(3, {**unverified, **config})
        self.client = ClusterClient(self.cluster)
        self.client.ask(FindCoordinatorRequest(coordinator_keys=[NAME], key_type=1), 4)
        self.coordinator = self.client.coordinator(TRANSACTION_STATE, NAME)
        self.leader, self.follower = (number for number in (1, 2, 3) if number != self.coordinator)
        create_replicated(self.client.peer(1), [self.leader, self.follower])
        self.sequence = 0
        init = InitProducerIdRequest(transactional_id=NAME, transaction_timeout_ms=TIMEOUT_MS)
        reply = self.client.ask(init, 4)
        assert reply.error_code == ErrorCode.NONE
        self.producer_id, self.epoch = reply.producer_id, reply.producer_epoch

    @property
    def driver(self) -> ClusterDriver:
        """The node that leads the partition."""
        return self.cluster[self.leader]

    def add(self) -> None:
        """AddPartitionsToTxn."""
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=NAME,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name="t", partitions=[0])],
        )
        topic = self.client.ask(request, 3).results_by_topic_v3_and_below[0]
        assert [p.partition_error_code for p in topic.results_by_partition] == [0]

    def write(self) -> int:
        """Produce one record; its offset."""
        records = batch(
            self.driver,
            b"v",
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=self.sequence,
            transactional=True,
        )
        self.sequence += 1
        request = produce("t", records)
        request.transactional_id = NAME
        error_code, offset = produced(self.client.ask(request, 9, self.leader))
        assert error_code == ErrorCode.NONE
        return offset

    def hang(self) -> int:
        """A transaction, and a write that comes after its marker; where that begins."""
        self.add()
        self.write()
        end = EndTxnRequest(
            transactional_id=NAME, producer_id=self.producer_id, producer_epoch=self.epoch, committed=True
        )
        assert self.client.ask(end, 3).error_code == ErrorCode.NONE
        return self.write()

    def prepare(self) -> int:
        """Begin a transaction in two-phase commit; where it begins."""
        init = InitProducerIdRequest(transactional_id=NAME, transaction_timeout_ms=TIMEOUT_MS, enable2_pc=True)
        reply = self.client.ask(init, 6)
        assert reply.error_code == ErrorCode.NONE
        self.producer_id, self.epoch, self.sequence = reply.producer_id, reply.producer_epoch, 0
        self.add()
        return self.write()

    def lose_name(self) -> None:
        """Let another replica lead that has restarted before the name was written down."""
        self.cluster.kill(self.leader)
        self.cluster.restart(self.follower)
        self.leader, self.follower = self.follower, self.leader
        self.cluster.advance(100)
        assert self.opened(self.leader).transactional_id is None

    def opened(self, broker_id: int) -> OpenTransaction:
        """The open transaction as a replica knows it."""
        value = self.cluster[broker_id].node.logs.transactions.get(PARTITION, self.producer_id)
        assert value is not None
        return value

    def is_open(self) -> bool:
        """True while the leader has a transaction open."""
        return self.driver.node.logs.transactions.get(PARTITION, self.producer_id) is not None

    def abort(self, start_offset: int, *, ends_live: bool = False) -> Iterator[None]:
        """An administrator's marker, sent by the first step; its outcome is the value of the second."""
        marker = WritableTxnMarker(
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            coordinator_epoch=-1,
            start_offset=start_offset,
            ends_live=ends_live,
            topics=[WritableTxnMarkerTopic(name="t", partition_indexes=[0])],
        )
        peer = self.cluster.connect(self.leader)
        peer.send(WriteTxnMarkersRequest(markers=[marker]), 1)
        yield
        (response,) = peer.responses
        return ErrorCode(response.markers[0].topics[0].partitions[0].error_code)

    def aborted(self, start_offset: int, *, ends_live: bool = False) -> ErrorCode:
        """An administrator's marker; its outcome."""
        return outcome(self.abort(start_offset, ends_live=ends_live))


def outcome(request: Iterator[None]) -> ErrorCode:
    """Run to the end."""
    try:
        while True:
            next(request)
    except StopIteration as stop:
        return stop.value


def described(driver: ClusterDriver, *names: str) -> list[int]:
    """The error codes that a broker has for transactional ids."""
    response = driver.connect().ask(DescribeTransactionsRequest(transactional_ids=list(names)), 0)
    return [item.error_code for item in response.transaction_states]


def warned(driver: ClusterDriver) -> list[str]:
    return [text for text in driver.reports if text.startswith("hanging transaction")]


class TestTheWatch:
    def test_it_asks_the_coordinator_on_another_broker(self) -> None:
        bench = Bench()
        start = bench.hang()
        bench.cluster.advance(SOON_MS)
        (line,) = warned(bench.driver)
        assert f"transactional id 'x', producer {bench.producer_id}" in line
        assert f"from offset {start}" in line
        assert "its coordinator has nothing open: CompleteCommit" in line
        assert bench.opened(bench.leader).verdict == "hanging"
        assert warned(bench.cluster[bench.follower]) == []

    def test_a_leader_that_was_replaced_and_has_not_heard_of_it_finds_nothing(self) -> None:
        bench = Bench(**ABORTS)
        start, old = bench.hang(), bench.driver
        replace_unheard(bench.cluster, old, bench.cluster[bench.follower], [bench.follower])
        bench.leader, bench.follower = bench.follower, bench.leader
        assert bench.aborted(start) == ErrorCode.NONE
        bench.cluster.advance(SOON_MS + RECHECK_MS)
        assert old.node.logs.transactions.get(PARTITION, bench.producer_id) is not None
        assert (warned(old), old.node.hanging_watch.found_count, old.node.hanging_watch.aborted) == ([], 0, 0)

    def test_a_live_one_is_live_though_it_is_old(self) -> None:
        bench = Bench(**ABORTS)
        bench.add()
        bench.write()
        bench.cluster.advance(SOON_MS + RECHECK_MS)
        assert bench.opened(bench.leader).verdict == "live"

    @pytest.mark.parametrize("dead", [True, False])
    def test_no_answer_is_no_evidence(self, dead: bool) -> None:
        bench = Bench(**ABORTS)
        bench.hang()
        bench.cluster.advance(11_000)
        if dead:
            bench.cluster.kill(bench.coordinator)
        else:
            bench.cluster.cut(bench.leader, bench.coordinator)
        bench.cluster.advance(RECHECK_MS)
        assert (warned(bench.driver), bench.is_open()) == ([], True)

    def test_it_ends_what_hangs_if_it_is_told_to(self) -> None:
        bench = Bench(**ABORTS)
        bench.hang()
        bench.cluster.advance(SOON_MS)
        assert bench.is_open()
        bench.cluster.advance(5_000)
        assert not bench.is_open()
        assert bench.driver.node.hanging_watch.aborted == 1
        follower = replica(bench.cluster[bench.follower])
        assert follower.log_end_offset == replica(bench.driver).log_end_offset
        assert follower.last_stable_offset == follower.high_watermark

    def test_what_its_producer_writes_to_while_the_coordinator_is_asked_is_not_ended(self) -> None:
        bench = Bench(**ABORTS)
        bench.hang()
        bench.cluster.advance(SOON_MS)
        bench.cluster.wire.held_requests.add(DESCRIBE_TRANSACTIONS)
        bench.cluster.advance(10_000)
        bench.add()
        bench.write()
        bench.cluster.wire.held_requests.clear()
        bench.cluster.settle()
        assert bench.is_open()
        bench.cluster.advance(RECHECK_MS)
        assert bench.opened(bench.leader).verdict == "live"

    def test_a_name_that_was_lost_is_asked_for_by_the_producer(self) -> None:
        bench = Bench(**TWO_PHASE)
        bench.prepare()
        bench.lose_name()
        bench.cluster.advance(SOON_MS)
        opened = bench.opened(bench.leader)
        assert (opened.transactional_id, opened.verdict) == (NAME, "two_phase")

    def test_without_a_name_and_an_answer_nothing_is_certain(self) -> None:
        bench = Bench(**ABORTS, **{"transaction.max.timeout.ms": "60000"})
        bench.hang()
        bench.lose_name()
        bench.cluster.cut(bench.leader, bench.coordinator)
        bench.cluster.advance(8 * RECHECK_MS)
        assert (bench.opened(bench.leader).verdict, bench.is_open()) == ("unknown", True)

    def test_the_answer_of_a_coordinator_that_was_before_does_not_count(self) -> None:
        bench = Bench(**ABORTS, **{"transaction.state.log.replication.factor": "3"})
        bench.hang()
        bench.cluster.advance(SOON_MS)
        bench.cluster.wire.cut(bench.coordinator, bench.leader)
        bench.cluster.advance(10_000)
        before = state(bench.driver, COORDINATOR)
        bench.cluster.end_session(bench.coordinator)
        assert state(bench.driver, COORDINATOR).leader_epoch > before.leader_epoch
        bench.cluster.wire.heal(bench.coordinator, bench.leader)
        bench.cluster.settle()
        assert bench.is_open()

    def test_a_coordinator_that_was_replaced_and_has_not_heard_of_it_is_not_believed(self) -> None:
        bench = Bench(**ABORTS, **{"transaction.state.log.replication.factor": "3"})
        bench.add()
        bench.write()
        bench.cluster.advance(1_000)
        old = bench.cluster[bench.coordinator]
        others = [broker.broker_id for broker in bench.cluster.running if broker is not old]
        replace_unheard(bench.cluster, old, bench.driver, others, COORDINATOR)
        assert described(old, NAME, "unknown") == [ErrorCode.NOT_COORDINATOR] * 2
        assert described(bench.driver, NAME, "unknown") == [ErrorCode.NONE, ErrorCode.TRANSACTIONAL_ID_NOT_FOUND]
        results: list[Finding | None] = []
        identity = Identity(ProducerId(bench.producer_id), ProducerEpoch(bench.epoch))
        old.node._queries.query(TransactionalId(NAME), identity, PARTITION, results.append)
        old.dispatch(DeadlineReached())
        bench.cluster.settle()
        assert results == [None]

    def test_a_coordinator_that_cannot_tell_whether_it_was_replaced_says_nothing(self) -> None:
        bench = Bench(**{"transaction.state.log.replication.factor": "3"})
        bench.cluster.advance(1_000)
        old = bench.cluster[bench.coordinator]
        old.reads_fail = True
        for other in (bench.leader, bench.follower):
            bench.cluster.cut(bench.coordinator, other)
        peer = old.connect()
        peer.send(DescribeTransactionsRequest(transactional_ids=[NAME]), 0)
        bench.cluster.advance(6_000)
        (response,) = peer.responses
        assert [item.error_code for item in response.transaction_states] == [ErrorCode.COORDINATOR_NOT_AVAILABLE]


class TestAnAdministratorsMarker:
    def test_the_leader_asks_the_coordinator_on_another_broker(self) -> None:
        bench = Bench()
        assert bench.aborted(bench.hang()) == ErrorCode.NONE
        assert not bench.is_open()

    @pytest.mark.parametrize("forced", [True, False])
    def test_a_live_one_is_ended_only_by_force(self, forced: bool) -> None:
        bench = Bench()
        bench.add()
        expected = ErrorCode.NONE if forced else ErrorCode.INVALID_TXN_STATE
        assert bench.aborted(bench.write(), ends_live=forced) == expected
        assert bench.is_open() is not forced

    def test_nothing_is_ended_while_the_coordinator_cannot_say(self) -> None:
        bench = Bench(**{"request.timeout.ms": "5000"})
        start = bench.hang()
        bench.cluster.cut(bench.leader, bench.coordinator)
        abort = bench.abort(start, ends_live=True)
        next(abort)
        bench.cluster.advance(10_000)
        assert outcome(abort) == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert bench.is_open()

    def test_nothing_is_ended_that_has_changed_since_the_question(self) -> None:
        bench = Bench()
        start = bench.hang()
        bench.cluster.wire.held_requests.add(DESCRIBE_TRANSACTIONS)
        abort = bench.abort(start, ends_live=True)
        next(abort)
        bench.add()
        bench.write()
        bench.cluster.wire.held_requests.clear()
        bench.cluster.settle()
        assert outcome(abort) == ErrorCode.INVALID_TXN_STATE
        assert bench.is_open()


class TestAMarkerForATransactionWithoutAName:
    @pytest.mark.parametrize("forced", [True, False])
    def test_what_is_prepared_on_another_broker_is_not_ended(self, forced: bool) -> None:
        bench = Bench(**TWO_PHASE)
        start = bench.prepare()
        bench.lose_name()
        assert bench.aborted(start, ends_live=forced) == ErrorCode.INVALID_TXN_STATE
        assert bench.is_open()

    def test_what_no_coordinator_knows_is_ended(self) -> None:
        bench = Bench()
        start = bench.hang()
        bench.lose_name()
        assert bench.aborted(start) == ErrorCode.NONE
        assert not bench.is_open()

    def test_nothing_is_ended_while_a_coordinator_cannot_say(self) -> None:
        bench = Bench(**{"request.timeout.ms": "5000"}, **TWO_PHASE)
        start = bench.prepare()
        bench.lose_name()
        bench.cluster.cut(bench.leader, bench.coordinator)
        abort = bench.abort(start, ends_live=True)
        next(abort)
        bench.cluster.advance(10_000)
        assert outcome(abort) == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert bench.is_open()

    def test_nothing_is_ended_that_has_changed_since_the_question(self) -> None:
        bench = Bench()
        start = bench.hang()
        bench.lose_name()
        bench.cluster.wire.held_requests.add(LIST_TRANSACTIONS)
        abort = bench.abort(start, ends_live=True)
        next(abort)
        bench.add()
        bench.write()
        bench.cluster.wire.held_requests.clear()
        bench.cluster.settle()
        assert outcome(abort) == ErrorCode.INVALID_TXN_STATE
        assert bench.is_open()


class TestIdsOfAFollower:
    def test_a_follower_knows_whose_a_transaction_is_and_since_when(self) -> None:
        bench = Bench()
        bench.hang()
        first, second = bench.opened(bench.leader), bench.opened(bench.follower)
        assert (second.transactional_id, second.started_ms) == (NAME, first.started_ms)

    def test_a_failover_forgets_no_id(self) -> None:
        bench = Bench()
        start = bench.hang()
        bench.cluster.advance(5_000)
        bench.cluster.restart(bench.follower)
        bench.cluster.advance(5_000)
        bench.cluster.kill(bench.leader)
        bench.cluster.advance(2 * RECHECK_MS)
        assert bench.client.leader("t") == bench.follower
        (line,) = warned(bench.cluster[bench.follower])
        assert f"transactional id 'x', producer {bench.producer_id}" in line
        assert f"from offset {start}" in line

    def test_a_follower_that_lost_its_file_is_told_again(self) -> None:
        bench = Bench()
        bench.hang()
        bench.cluster.restart(bench.follower)  # before the ids were written
        bench.cluster.advance(1_000)
        assert bench.opened(bench.follower).transactional_id == TransactionalId(NAME)
