"""A broker that has a transaction open is believed only while it leads the partition, by the word of all brokers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from oncelog.admin.transactions.abort_marker import abort, find_one
from oncelog.admin.transactions.cluster_scan import OpenTransaction, scan
from oncelog.base.errors import ErrorCode
from oncelog.base.ids import TopicId, TopicName, TopicPartition
from oncelog.base.transaction_verdicts import Verdict
from oncelog.client.machine.metadata import NO_LEADER
from oncelog.wire.messages.describe_transactions import DescribeTransactionsRequest
from oncelog.wire.messages.metadata import MetadataRequest, MetadataResponse, MetadataResponseTopic
from oncelog.wire.messages.write_txn_markers import WriteTxnMarkersRequest
from tests.unit.admin.transactions.cluster import FakeCluster

pytestmark = pytest.mark.usefixtures("driver")

T0, T1 = (TopicPartition(TopicName("t"), index) for index in range(2))
NOW = 1_000 + 3_600_000


@pytest.fixture
def cluster() -> FakeCluster:
    """Broker 1 leads t-0, and has a transaction open there that its coordinator says is complete."""
    made = FakeCluster()
    made.lead({T0: 1})
    made.open(T0, 7)
    made.know("x", 7, state="CompleteCommit")
    return made


def look(cluster: FakeCluster) -> OpenTransaction:
    (one,) = scan(cluster, now_ms=NOW).transactions
    return one


def test_what_all_brokers_agree_on_hangs(cluster: FakeCluster) -> None:
    assert look(cluster).verdict is Verdict.HANGING


def test_brokers_are_asked_of_what_is_doubted_only(cluster: FakeCluster) -> None:
    cluster.know("x", 7, T0)
    assert look(cluster).verdict is Verdict.LIVE
    assert not [message for _, message in cluster.asked if isinstance(message, MetadataRequest)]


def test_a_leader_that_was_replaced_and_does_not_know_is_not_believed(cluster: FakeCluster) -> None:
    cluster.tell(2, T0, leader=2, leader_epoch=1)
    view = look(cluster)
    assert view.verdict is Verdict.SUSPECTED
    assert "but broker 1, which has it open, does not lead the partition any more: broker 2 does" in view.reason


def test_the_later_leader_is_asked_the_next_time(cluster: FakeCluster) -> None:
    cluster.tell(2, T0, leader=2, leader_epoch=1)
    look(cluster)
    again = look(cluster)
    assert (again.producer.leader, again.verdict) == (2, Verdict.HANGING)


def test_nothing_is_ended_on_the_word_of_a_leader_that_was_replaced(cluster: FakeCluster) -> None:
    result = find_one(cluster, T0, 10)
    cluster.tell(2, T0, leader=2, leader_epoch=1)
    done = abort(cluster, result)
    assert done.error is not None
    assert "does not lead the partition any more" in done.error
    assert not [message for _, message in cluster.asked if isinstance(message, WriteTxnMarkersRequest)]


def test_a_broker_that_is_behind_refutes_nothing(cluster: FakeCluster) -> None:
    cluster.view.leader_moved(T0, 1, 5)
    cluster.tell(2, T0, leader=2, leader_epoch=4)
    assert look(cluster).verdict is Verdict.HANGING


@pytest.mark.parametrize("epoch", [0, -1])
def test_two_leaders_in_one_epoch_or_without_epochs_are_no_certainty(cluster: FakeCluster, epoch: int) -> None:
    if epoch < 0:
        cluster.lead({T0: 1}, epoch)
    cluster.tell(2, T0, leader=2, leader_epoch=epoch)
    assert look(cluster).verdict is Verdict.SUSPECTED
    cluster.tell(2, T0, leader=1, leader_epoch=epoch)
    assert look(cluster).verdict is Verdict.HANGING


def test_a_leader_that_was_elected_again_may_have_missed_nothing_but_is_asked_again(cluster: FakeCluster) -> None:
    cluster.tell(1, T0, leader=1, leader_epoch=1)
    assert "has become the leader of the partition just now" in look(cluster).reason
    assert look(cluster).verdict is Verdict.HANGING


def test_a_partition_without_a_leader_is_no_certainty(cluster: FakeCluster) -> None:
    cluster.tell(2, T0, NO_LEADER, leader_epoch=1)
    assert "no broker leads the partition at the moment; look again" in look(cluster).reason


def test_a_leader_elected_while_coordinators_were_asked_is_no_certainty(cluster: FakeCluster) -> None:
    describe = cluster.rules[DescribeTransactionsRequest]

    def moves(broker: int, message: object) -> object:
        cluster.view.leader_moved(T0, 2, 1)
        return describe(broker, message)

    cluster.rules[DescribeTransactionsRequest] = moves
    assert "changing just now" in look(cluster).reason


def test_a_silent_broker_matters_if_it_has_a_replica(cluster: FakeCluster) -> None:
    describe = cluster.rules[DescribeTransactionsRequest]

    def dies(broker: int, message: object) -> object:
        cluster.down.add(2)
        return describe(broker, message)

    cluster.rules[DescribeTransactionsRequest] = dies
    scanned = scan(cluster, now_ms=NOW)
    assert "but broker 2 may lead the partition by now and did not answer; look again" in scanned.transactions[0].reason
    assert [str(item) for item in scanned.unanswered] == [
        "broker 2: who leads the partitions: broker 2 cannot be reached"
    ]
    cluster.down.clear()
    for topic, info in cluster.view.topics.items():
        alone = {index: replace(one, replicas=(one.leader,)) for index, one in info.partitions.items()}
        cluster.view.topics[topic] = replace(info, partitions=alone)
    assert look(cluster).verdict is Verdict.HANGING


def test_a_silent_broker_that_is_not_in_the_cluster_any_more_does_not_matter(cluster: FakeCluster) -> None:
    cluster.registered = {1}
    describe = cluster.rules[DescribeTransactionsRequest]

    def dies(broker: int, message: object) -> object:
        cluster.down.add(2)
        return describe(broker, message)

    cluster.rules[DescribeTransactionsRequest] = dies
    assert look(cluster).verdict is Verdict.HANGING


@pytest.mark.parametrize(
    ("topic", "says"),
    [
        (MetadataResponseTopic(name="t", error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), "broker 2 says"),
        (MetadataResponseTopic(name="t", topic_id=b"2" * 16), "broker 2 says"),
        (None, "broker 2 says"),
    ],
)
def test_a_broker_that_does_not_know_the_partition_is_no_certainty(
    cluster: FakeCluster, topic: MetadataResponseTopic | None, says: str
) -> None:
    metadata = cluster.rules[MetadataRequest]

    def answer(broker: int, message: object) -> MetadataResponse:
        told: MetadataResponse = metadata(broker, message)
        if broker == 2:
            told.topics = [topic] if topic is not None else []
        return told

    cluster.rules[MetadataRequest] = answer
    assert says in look(cluster).reason


def test_another_topic_of_the_name_is_no_certainty(cluster: FakeCluster) -> None:
    cluster.view.topics["t"] = replace(cluster.view.topics["t"], topic_id=TopicId(b"1" * 16))
    assert look(cluster).verdict is Verdict.HANGING
    metadata = cluster.rules[MetadataRequest]

    def answer(broker: int, message: object) -> MetadataResponse:
        told: MetadataResponse = metadata(broker, message)
        if broker == 2:
            (t,) = (topic for topic in told.topics if topic.name == "t")
            t.topic_id = b"2" * 16
        return told

    cluster.rules[MetadataRequest] = answer
    assert "the topic is another one by now" in look(cluster).reason
