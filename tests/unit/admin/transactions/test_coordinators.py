"""The answer of a coordinator counts only while it coordinates the id, by the word of all brokers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from oncelog.admin.transactions.abort_marker import abort, find_one
from oncelog.admin.transactions.cluster_scan import OpenTransaction, scan
from oncelog.base.errors import ErrorCode
from oncelog.base.ids import NO_TOPIC_ID, TRANSACTION_STATE, TopicName, TopicPartition
from oncelog.base.transaction_verdicts import ReasonCode, Verdict
from oncelog.client.machine.metadata import NO_LEADER, TopicInfo
from oncelog.wire.messages.describe_transactions import DescribeTransactionsRequest
from oncelog.wire.messages.list_transactions import ListTransactionsRequest
from oncelog.wire.messages.metadata import MetadataRequest, MetadataResponse
from oncelog.wire.messages.write_txn_markers import WriteTxnMarkersRequest
from tests.unit.admin.transactions.cluster import FakeCluster

pytestmark = pytest.mark.usefixtures("driver")

T0 = TopicPartition(TopicName("t"), 0)
OF_X, *OTHERS = (TopicPartition(TRANSACTION_STATE, index) for index in range(4))
"""The partition of id x, and those of other ids."""
NOW = 1_000 + 3_600_000


@pytest.fixture
def cluster() -> FakeCluster:
    """Broker 1 leads t-0, where x has a transaction open, and coordinates x by the client's view."""
    made = FakeCluster()
    made.lead({T0: 1})
    made.open(T0, 7)
    made.know("x", 7, T0)
    return made


def look(cluster: FakeCluster) -> OpenTransaction:
    (one,) = scan(cluster, now_ms=NOW).transactions
    return one


def forget_partitions(cluster: FakeCluster, brokers: set[int]) -> None:
    """Let these brokers have x Ongoing without a partition, as it was before the partition was added."""
    describe = cluster.rules[DescribeTransactionsRequest]

    def answer(broker: int, message: Any) -> Any:
        told = describe(broker, message)
        if broker in brokers:
            told.transaction_states = [state.replaced(topics=[]) for state in told.transaction_states]
        return told

    cluster.rules[DescribeTransactionsRequest] = answer


def replaced(cluster: FakeCluster) -> None:
    """Let broker 2 coordinate x in broker 1's place, who does not know it and answers as before."""
    forget_partitions(cluster, {1})
    list_all = cluster.rules[ListTransactionsRequest]
    cluster.rules[ListTransactionsRequest] = lambda _, message: list_all(1, message)
    cluster.tell(2, OF_X, leader=2, leader_epoch=1)


def confirmations(cluster: FakeCluster) -> list[tuple[int, list[str]]]:
    return [
        (broker, [topic.name or "" for topic in message.topics or ()])
        for broker, message in cluster.asked
        if isinstance(message, MetadataRequest)
    ]


def test_a_coordinator_that_was_replaced_and_does_not_know_is_not_believed(cluster: FakeCluster) -> None:
    replaced(cluster)
    view = look(cluster)
    assert (view.code, view.verdict) == (ReasonCode.NOT_LISTED, Verdict.SUSPECTED)
    assert view.reason.endswith(
        "; but broker 1, which has answered as a coordinator, does not lead __transaction_state-0 any more: "
        "broker 2 does; look again"
    )


def test_the_later_coordinator_is_asked_the_next_time(cluster: FakeCluster) -> None:
    replaced(cluster)
    look(cluster)
    again = look(cluster)
    assert (again.coordinator, again.verdict) == (2, Verdict.LIVE)


def test_nothing_is_ended_on_the_word_of_a_coordinator_that_was_replaced(cluster: FakeCluster) -> None:
    forget_partitions(cluster, {1})
    result = find_one(cluster, T0, 10)
    assert result.verdict is Verdict.HANGING
    cluster.tell(2, OF_X, leader=2, leader_epoch=1)
    assert "has answered as a coordinator" in str(abort(cluster, result).error)
    assert not [message for _, message in cluster.asked if isinstance(message, WriteTxnMarkersRequest)]


def test_coordinators_are_confirmed_with_the_questions_about_leaders(cluster: FakeCluster) -> None:
    forget_partitions(cluster, {1, 2})
    assert look(cluster).verdict is Verdict.HANGING
    assert confirmations(cluster) == [(1, [TRANSACTION_STATE, "t"]), (2, [TRANSACTION_STATE, "t"])]


def test_where_nothing_is_contradicted_nobody_is_asked(cluster: FakeCluster) -> None:
    assert look(cluster).verdict is Verdict.LIVE
    assert confirmations(cluster) == []


def test_coordinators_of_other_ids_do_not_matter(cluster: FakeCluster) -> None:
    forget_partitions(cluster, {1, 2})
    for other in OTHERS:
        cluster.tell(2, other, NO_LEADER, leader_epoch=9)
    assert look(cluster).verdict is Verdict.HANGING


def test_an_id_that_is_unknown_to_a_coordinator_that_was_replaced_is_not_forgotten(cluster: FakeCluster) -> None:
    cluster.transactions.clear()
    cluster.open(T0, 7, transactional_id="x")
    cluster.ids.clear()
    cluster.tell(2, OTHERS[0], NO_LEADER, leader_epoch=9)
    assert (look(cluster).code, look(cluster).verdict) == (ReasonCode.FORGOTTEN, Verdict.HANGING)
    cluster.tell(2, OF_X, leader=2, leader_epoch=1)
    view = look(cluster)
    assert (view.code, view.verdict) == (ReasonCode.FORGOTTEN, Verdict.SUSPECTED)
    assert "does not lead __transaction_state-0 any more" in view.reason


@pytest.mark.parametrize("moved", [OF_X, *OTHERS])
def test_a_producer_id_is_forgotten_only_if_no_coordinator_has_moved(
    cluster: FakeCluster, moved: TopicPartition
) -> None:
    cluster.ids.clear()
    assert (look(cluster).code, look(cluster).verdict) == (ReasonCode.FORGOTTEN, Verdict.HANGING)
    leader = 3 - (cluster.view.leader(moved) or 0)
    cluster.tell(2, moved, leader, leader_epoch=1)
    assert f"does not lead {moved} any more: broker {leader} does" in look(cluster).reason


def test_a_coordinator_that_joined_after_the_view_s_broker_was_cut_off_is_missed(cluster: FakeCluster) -> None:
    cluster.ids.clear()
    cluster.lead(dict.fromkeys([OF_X, *OTHERS], 1))
    del cluster.view.brokers[2]
    cluster.tell(2, OF_X, leader=2, leader_epoch=1)
    view = look(cluster)
    assert view.verdict is Verdict.SUSPECTED
    assert "does not lead __transaction_state-0 any more" in view.reason


def test_a_coordinator_that_is_not_in_the_cluster_has_not_spoken(cluster: FakeCluster) -> None:
    cluster.ids.clear()
    cluster.lead({OTHERS[-1]: 9})
    assert look(cluster).code is ReasonCode.UNANSWERED


def test_an_id_that_another_than_its_coordinator_lists_is_no_certainty(cluster: FakeCluster) -> None:
    forget_partitions(cluster, {1, 2})
    cluster.lead({OF_X: 2})
    view = look(cluster)
    assert (view.coordinator, view.verdict) == (1, Verdict.SUSPECTED)
    assert "broker 1 has answered for 'x' and was not its coordinator a moment before; look again" in view.reason


def test_a_coordinator_that_moves_when_it_is_asked_is_no_certainty(cluster: FakeCluster) -> None:
    forget_partitions(cluster, {1, 2})
    describe = cluster.rules[DescribeTransactionsRequest]

    def moves(broker: int, message: Any) -> Any:
        told = describe(broker, message)
        if broker == 1:
            cluster.view.leader_moved(OF_X, 2, 1)
            told.transaction_states[0].error_code = ErrorCode.NOT_COORDINATOR
        return told

    cluster.rules[DescribeTransactionsRequest] = moves
    view = look(cluster)
    assert (view.coordinator, view.verdict) == (2, Verdict.SUSPECTED)
    assert "broker 2 has answered for 'x' and was not its coordinator a moment before" in view.reason
    assert look(cluster).coordinator == 2


def test_a_silent_broker_matters_if_it_may_coordinate_the_id(cluster: FakeCluster) -> None:
    forget_partitions(cluster, {1, 2})
    alone = replace(cluster.view.topics["t"].partitions[0], replicas=(1,))
    cluster.view.topics["t"] = replace(cluster.view.topics["t"], partitions={0: alone})
    describe = cluster.rules[DescribeTransactionsRequest]

    def dies(broker: int, message: Any) -> Any:
        cluster.down.add(2)
        return describe(broker, message)

    cluster.rules[DescribeTransactionsRequest] = dies
    assert "broker 2 may lead __transaction_state-0 by now and did not answer" in look(cluster).reason


@pytest.mark.parametrize("code", [ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION])
def test_who_may_not_see_the_transaction_log_has_no_doubt_for_that_alone(cluster: FakeCluster, code: ErrorCode) -> None:
    forget_partitions(cluster, {1, 2})
    cluster.view.topics[TRANSACTION_STATE] = TopicInfo(TRANSACTION_STATE, NO_TOPIC_ID, error_code=code)
    assert look(cluster).verdict is Verdict.HANGING
    assert confirmations(cluster) == [(1, ["t"]), (2, ["t"])]


def test_a_broker_that_does_not_show_the_transaction_log_confirms_nothing(cluster: FakeCluster) -> None:
    forget_partitions(cluster, {1, 2})
    metadata = cluster.rules[MetadataRequest]

    def answer(broker: int, message: Any) -> MetadataResponse:
        told: MetadataResponse = metadata(broker, message)
        if broker == 2:
            told.topics[0] = told.topics[0].replaced(error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, partitions=[])
        return told

    cluster.rules[MetadataRequest] = answer
    assert "but broker 2 says of __transaction_state-0: " in look(cluster).reason
