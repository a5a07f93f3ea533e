"""Looking at a cluster of which not everything answers: what is seen is right, and what is not is told."""

from __future__ import annotations

import pytest

from oncelog.admin.transactions.cluster_scan import OpenTransaction, Scan, Scope, scan
from oncelog.admin.transactions.transactional_ids import list_transactions
from oncelog.base.ids import TRANSACTION_STATE, TopicName, TopicPartition
from oncelog.base.transaction_verdicts import ReasonCode, Verdict
from oncelog.client.errors import UnknownTopic
from oncelog.client.machine.metadata import NO_LEADER
from oncelog.wire.messages.describe_transactions import DescribeTransactionsRequest
from tests.unit.admin.transactions.cluster import FakeCluster

pytestmark = pytest.mark.usefixtures("driver")

T0, T1 = (TopicPartition(TopicName("t"), index) for index in range(2))
NOW = 1_000 + 3_600_000


@pytest.fixture
def cluster() -> FakeCluster:
    made = FakeCluster()
    made.lead({T0: 1, T1: 2})
    return made


def look(cluster: FakeCluster, scope: Scope | None = None) -> Scan:
    return scan(cluster, scope, now_ms=NOW)


def only(result: Scan) -> OpenTransaction:
    (one,) = result.transactions
    return one


def test_a_live_and_a_forgotten_one(cluster: FakeCluster) -> None:
    cluster.open(T0, 7)
    cluster.open(T1, 8)
    cluster.know("x", 7, T0)
    view = look(cluster)
    assert [
        (transaction.topic_partition, transaction.verdict, transaction.code) for transaction in view.transactions
    ] == [
        (T0, Verdict.LIVE, ReasonCode.ONGOING),
        (T1, Verdict.HANGING, ReasonCode.FORGOTTEN),
    ]
    assert (view.unanswered, view.partitions) == ([], 6)
    live = view.transactions[0].as_row()
    assert (live.transactional_id, live.coordinator, live.age_ms, live.records_behind) == ("x", 1, 3_600_000, 10)


@pytest.mark.parametrize("why", ["down", "loading", "unled", "denied"])
def test_with_a_coordinator_that_cannot_speak_nothing_is_forgotten(cluster: FakeCluster, why: str) -> None:
    cluster.open(T0, 8)
    if why == "down":
        cluster.down.add(2)
    elif why == "loading":
        cluster.loading.add(2)
    elif why == "unled":
        cluster.lead({TopicPartition(TRANSACTION_STATE, 3): NO_LEADER})
    else:
        cluster.denied = True
    view = look(cluster)
    assert (only(view).verdict, only(view).code) == (Verdict.SUSPECTED, ReasonCode.UNANSWERED)
    if why != "denied":
        assert view.unanswered, "and it is reported"


def test_a_broker_that_is_down_is_reported_and_the_rest_is_seen(cluster: FakeCluster) -> None:
    cluster.open(T0, 7)
    cluster.open(T1, 7)
    cluster.know("x", 7, T0, T1)
    cluster.down.add(2)
    view = look(cluster, Scope(("t",)))
    assert only(view).topic_partition == T0
    assert only(view).verdict is Verdict.LIVE
    assert any("broker 2" in str(item) and "cannot be reached" in str(item) for item in view.unanswered)


def test_finding_nothing_where_nothing_was_seen_is_no_finding(cluster: FakeCluster) -> None:
    assert not look(cluster, Scope(("t",))).scanned_nothing
    cluster.down.add(2)
    assert not look(cluster, Scope(("t",))).scanned_nothing
    assert look(cluster, Scope(partitions=(T1,))).scanned_nothing


def test_a_broker_that_is_not_there_is_no_broker_where_nothing_hangs(cluster: FakeCluster) -> None:
    view = look(cluster, Scope(broker=9))
    assert view.scanned_nothing
    assert "broker 9: what it leads: it is not in the cluster" in str(view.unanswered[0])
    assert list_transactions(cluster, coordinators=[9]).answered == 0


def test_a_partition_whose_leader_moved_is_asked_again(cluster: FakeCluster) -> None:
    cluster.open(T0, 7)
    cluster.know("x", 7, T0)
    cluster.not_leader.add(T0)
    view = look(cluster)
    assert (only(view).verdict, view.unanswered) == (Verdict.LIVE, [])


def test_what_ends_between_the_looks_is_not_there(cluster: FakeCluster) -> None:
    cluster.open(T0, 7)
    cluster.know("x", 7, state="CompleteCommit")
    describe = cluster.rules[DescribeTransactionsRequest]

    def ends_now(broker: int, message: object) -> object:
        cluster.transactions.clear()
        return describe(broker, message)

    cluster.rules[DescribeTransactionsRequest] = ends_now
    assert look(cluster).transactions == []


def test_a_newer_epoch_between_the_looks_is_no_certainty(cluster: FakeCluster) -> None:
    cluster.open(T0, 7)
    cluster.know("x", 7, state="CompleteCommit")
    describe = cluster.rules[DescribeTransactionsRequest]

    def goes_on(broker: int, message: object) -> object:
        (was,) = cluster.transactions[T0]
        cluster.transactions[T0] = [was.replaced(producer_epoch=1)]
        return describe(broker, message)

    cluster.rules[DescribeTransactionsRequest] = goes_on
    assert "changing just now" in only(look(cluster)).reason


def test_starts_that_do_not_fit_are_asked_for_with_more_and_alone_in_the_end(cluster: FakeCluster) -> None:
    for index, size in enumerate((100, 10_000, 500_000, 20_000_000)):
        partition = TopicPartition(TopicName("big"), index)
        cluster.open(partition, 7)
        cluster.batch_bytes[partition] = size
    cluster.open(TopicPartition(TopicName("big"), 0), 9, current_txn_start_offset=15)
    view = look(cluster, Scope(("big",)))
    assert [transaction.age_ms for transaction in view.transactions] == [3_600_000] * 5
    assert sum(type(message).__name__ == "FetchRequest" for _, message in cluster.asked) <= 8


def test_the_leader_knows_the_id_whose_producer_id_has_changed(cluster: FakeCluster) -> None:
    cluster.open(T0, 7, transactional_id="x")
    cluster.know("x", 9)
    view = only(look(cluster))
    assert (view.code, view.transactional_id, view.takes_start_offset) == (ReasonCode.MOVED_ON, "x", True)
    del cluster.ids["x"]
    view = only(look(cluster))
    assert (view.code, view.transactional_id) == (ReasonCode.FORGOTTEN, "x")


def test_scopes(cluster: FakeCluster) -> None:
    cluster.open(T0, 7)
    cluster.open(T1, 7)
    cluster.open(TopicPartition(TopicName("u"), 0), 7)
    places = {
        Scope(("t",)): [T0, T1],
        Scope(partitions=(T1,)): [T1],
        Scope(("t",), broker=2): [T1],
        Scope(broker=1): [T0, TopicPartition(TopicName("u"), 0)],
    }
    for scope, place in places.items():
        assert [transaction.topic_partition for transaction in look(cluster, scope).transactions] == place
    for wrong in (Scope(("nope",)), Scope(partitions=(TopicPartition(TopicName("t"), 9),))):
        with pytest.raises(UnknownTopic):
            look(cluster, wrong)


def test_a_list_says_who_did_not_answer(cluster: FakeCluster) -> None:
    cluster.down.add(1)
    cluster.lead({TopicPartition(TRANSACTION_STATE, 3): NO_LEADER})
    told = [str(item) for item in list_transactions(cluster).unanswered]
    assert len(told) == 2
    assert told[0].startswith("__transaction_state partition 3: it has no leader")
    assert told[1].startswith("broker 1: its transactional ids: ")
