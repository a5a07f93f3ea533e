"""Transactions over two brokers: the coordinator on one, the partitions on both."""

from __future__ import annotations

import pytest

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import CONSUMER_OFFSETS, TRANSACTION_STATE
from oncelog.wire.messages.find_coordinator import FindCoordinatorRequest
from oncelog.wire.messages.init_producer_id import InitProducerIdRequest
from oncelog.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from oncelog.wire.messages.write_txn_markers import WritableTxnMarker, WritableTxnMarkerTopic, WriteTxnMarkersRequest
from tests.scenario.cluster.client import ClusterClient
from tests.scenario.cluster.cluster import Cluster
from tests.scenario.node.requests import create_topic
from tests.scenario.transactions.node_client import GROUP, SOURCE, TOPIC, Client, read, state_of

ID = "x"
WRITE_TXN_MARKERS = 27


class Bench:
    """Two brokers, a topic with a partition on each, and the internal topics."""

    def __init__(self, **config: str) -> None:
        self.cluster = Cluster(2, {key.replace("_", "."): value for key, value in config.items()})
        self.client = ClusterClient(self.cluster)
        create_topic(self.client.peer(1), TOPIC, 2)
        create_topic(self.client.peer(1), SOURCE, 1)
        for key_type, key in ((1, ID), (0, GROUP)):
            self.client.ask(FindCoordinatorRequest(coordinator_keys=[key], key_type=key_type), 4)
        self.here = self.client.coordinator(TRANSACTION_STATE, ID)
        """The coordinator."""
        self.elsewhere = 3 - self.here
        (self.partition,) = [p for p in (0, 1) if self.client.leader(TOPIC, p) == self.elsewhere]
        """The partition that the coordinator does not lead."""

    def values(self, partition: int) -> list[bytes]:
        """The values that a consumer of committed records sees."""
        values, *_ = read(self.cluster[self.client.leader(TOPIC, partition)], partition)
        return values


@pytest.mark.parametrize("v2", [True, False])
@pytest.mark.parametrize("committed", [True, False])
def test_a_transaction_over_two_brokers(v2: bool, committed: bool) -> None:
    bench = Bench()
    client = Client(ID, v2)
    bench.client.run(client.initialise())
    began_ms = bench.cluster.now_ms
    bench.client.run(client.transaction("a", [0, 1], committed, None))
    assert bench.cluster.now_ms == began_ms, "nothing waits for time to pass"
    for partition in (0, 1):
        assert len(bench.values(partition)) == (2 if committed else 0)
        _, stable, end = read(bench.cluster[bench.client.leader(TOPIC, partition)], partition)
        assert (stable, end) == (3, 3), "two records and the marker"
    state = "CompleteCommit" if committed else "CompleteAbort"
    assert state_of(bench.cluster[bench.here], ID) == state


def test_without_enough_replicas_an_epoch_does_not_rise() -> None:
    """KIP-360: each attempt would fence the producer of the attempt before."""
    bench = Bench(transaction_state_log_replication_factor="2", transaction_state_log_min_isr="2")
    client, successor = Client(ID), Client(ID)
    bench.client.run(client.initialise())
    bench.cluster.kill(bench.elsewhere)
    bench.cluster.advance(1_000)
    for _ in range(2):
        answer = bench.client.ask(InitProducerIdRequest(transactional_id=ID, transaction_timeout_ms=10_000), 5)
        assert answer.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    bench.cluster.start(bench.elsewhere)
    bench.cluster.advance(3_000)
    bench.client.run(successor.initialise())
    assert successor.epoch == client.epoch + 1


def test_a_partition_that_was_not_added_is_refused_by_the_remote_coordinator() -> None:
    """V1: the leader asks, and believes no answer but yes."""
    bench = Bench()
    client = Client(ID, v2=False)
    bench.client.run(client.initialise())
    client.begin()
    assert bench.client.run(client.add(1 - bench.partition)) == ErrorCode.NONE
    error_code, _ = bench.client.run(client.produce(bench.partition, b"late"))
    assert error_code == ErrorCode.TRANSACTION_ABORTABLE
    assert read(bench.cluster[bench.elsewhere], bench.partition)[2] == 0


def test_an_old_epoch_is_refused_by_the_remote_coordinator() -> None:
    bench = Bench()
    zombie, client = Client(ID), Client(ID)
    for item in (zombie, client):
        bench.client.run(item.initialise())
    zombie.begin()
    error_code, _ = bench.client.run(zombie.produce(bench.partition, b"late"))
    assert error_code == ErrorCode.INVALID_PRODUCER_EPOCH


def test_no_answer_of_the_coordinator_is_no_yes() -> None:
    bench = Bench(request_timeout_ms="2000")
    client = Client(ID)
    bench.client.run(client.initialise())
    client.begin()
    bench.cluster.cut(bench.here, bench.elsewhere)
    request, version = client.produce_request(bench.partition, b"1")
    answer = bench.client.ask(request, version).responses[0].partition_responses[0]
    assert answer.error_code == ErrorCode.NOT_ENOUGH_REPLICAS
    bench.cluster.heal(bench.here, bench.elsewhere)
    error_code, offset = bench.client.run(client.produce(bench.partition, b"1"))
    assert (error_code, offset) == (ErrorCode.NONE, 0)


def test_markers_wait_for_a_broker_that_is_away() -> None:
    bench = Bench(request_timeout_ms="2000")
    client = Client(ID)
    bench.client.run(client.initialise())
    bench.client.run(client.transaction("a", [0, 1], None, None))
    bench.cluster.cut(bench.here, bench.elsewhere)
    assert bench.client.run(client.end(committed=True)) == ErrorCode.NONE
    bench.cluster.advance(10_000)
    assert state_of(bench.cluster[bench.here], ID) == "PrepareCommit"
    assert len(bench.values(1 - bench.partition)) == 2
    assert bench.values(bench.partition) == []
    bench.cluster.heal(bench.here, bench.elsewhere)
    bench.cluster.advance(3_000)
    assert state_of(bench.cluster[bench.here], ID) == "CompleteCommit"
    assert len(bench.values(bench.partition)) == 2


def test_a_transaction_that_is_not_completed_holds_others_up_for_a_moment_only() -> None:
    """They share a connection to the coordinator."""
    bench = Bench()
    stuck, other = Client("stuck"), Client("other")
    for item in (stuck, other):
        bench.client.run(item.initialise())
        item.begin()
    assert bench.client.run(stuck.produce(bench.partition, b"1"))[0] == ErrorCode.NONE
    bench.cluster.wire.held_requests.add(WRITE_TXN_MARKERS)
    assert bench.client.run(stuck.end(committed=True)) == ErrorCode.NONE
    peers = [bench.cluster.connect(bench.elsewhere) for _ in range(2)]
    for client, peer in zip((stuck, other), peers, strict=True):
        peer.send(*client.produce_request(bench.partition, b"2"))
    bench.cluster.advance(99)
    assert [len(peer.responses) for peer in peers] == [0, 0]
    bench.cluster.advance(1)
    answers = [peer.responses[0].responses[0].partition_responses[0] for peer in peers]
    assert [answer.error_code for answer in answers] == [ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.NONE]


class DecidedOffsets:
    """A transaction with offsets of a group, decided, and none of its markers has arrived at another broker."""

    def __init__(self) -> None:
        self.bench = Bench(transaction_state_log_num_partitions="2", offsets_topic_num_partitions="2")
        bench, client = self.bench, self.bench.client
        self.group = client.coordinator(CONSUMER_OFFSETS, GROUP)
        names = (f"x{number}" for number in range(100))
        name = next(name for name in names if client.coordinator(TRANSACTION_STATE, name) != self.group)
        self.coordinator = client.coordinator(TRANSACTION_STATE, name)
        producer = Client(name)
        client.run(producer.initialise())
        client.run(producer.transaction("a", [0], None, 42))
        bench.cluster.wire.held_requests.add(WRITE_TXN_MARKERS)
        assert client.run(producer.end(committed=True)) == ErrorCode.NONE
        assert state_of(bench.cluster[self.coordinator], name) == "PrepareCommit"
        self.peer = client.peer(self.group)
        topics = [OffsetFetchRequestTopic(name=SOURCE, partition_indexes=[0])]
        self.peer.send(OffsetFetchRequest(group_id=GROUP, topics=topics), 7)

    def release(self) -> None:
        """Let the markers arrive."""
        self.bench.cluster.wire.held_requests.clear()
        self.bench.cluster.settle()

    def answer(self) -> tuple[ErrorCode, int]:
        """The error and the offset that were answered."""
        (response,) = self.peer.responses
        partition = response.topics[0].partitions[0]
        return ErrorCode(partition.error_code or response.error_code), partition.committed_offset


def test_offsets_of_a_decided_transaction_are_waited_for_though_its_coordinator_is_elsewhere() -> None:
    """Invariant O8: EndTxn is answered before its markers are written; who asks then sees what was committed."""
    decided = DecidedOffsets()
    decided.bench.cluster.advance(1000)
    assert not decided.peer.responses
    decided.release()
    assert decided.answer() == (ErrorCode.NONE, 42)


def test_a_marker_that_does_not_come_is_not_waited_for_for_ever() -> None:
    decided = DecidedOffsets()
    decided.bench.cluster.advance(5_000)
    (response,) = decided.peer.responses
    assert response.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


def test_a_coordinator_that_cannot_be_asked_may_have_decided() -> None:
    decided = DecidedOffsets()
    decided.bench.cluster.kill(decided.coordinator)
    decided.bench.cluster.advance(1000)
    (response,) = decided.peer.responses
    assert response.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


def test_what_coordinators_write_on_other_brokers_is_no_end_from_outside() -> None:
    bench = Bench()
    client = Client(ID)
    bench.client.run(client.initialise())
    bench.client.run(client.transaction("a", [0, 1], True, None))
    assert bench.cluster[bench.elsewhere].audited == []


def test_nor_what_one_writes_that_others_took_for_dead_before_it_knows_of_that() -> None:
    bench = Bench()
    bench.cluster.kill(bench.here)  # its registration has ended
    present = bench.cluster[bench.elsewhere]
    topic = WritableTxnMarkerTopic(name=TOPIC, partition_indexes=[bench.partition])
    marker = WritableTxnMarker(producer_id=5, producer_epoch=0, coordinator_epoch=1, topics=[topic])
    audited = {}
    for broker_id in (bench.here, 77):
        peer = bench.cluster.connect(bench.elsewhere)
        peer.client_id = f"broker-{broker_id}-markers"
        peer.send(WriteTxnMarkersRequest(markers=[marker]), 1)
        audited[broker_id] = len(present.audited)
    assert audited == {bench.here: 0, 77: 1}
