"""Ending by a stored identity against brokers that lose answers, refuse, and change between two requests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from oncelog.admin.transactions.ending import EndedTransaction, EndPlan, end_stored, plan_end
from oncelog.admin.transactions.stored_identity import EndAction, IdentityState
from oncelog.base.errors import ErrorCode
from oncelog.base.ids import TopicName, TopicPartition
from oncelog.client.errors import ClientError, ConnectionLost
from oncelog.client.machine.transaction_values import StoredTransaction
from oncelog.records.builder import build_batch
from oncelog.records.record import Record
from oncelog.wire.messages import end_txn, fetch, find_coordinator, list_groups, list_offsets
from tests.unit.admin.transactions.cluster import FakeCluster

HERE = TopicPartition(TopicName("t"), 0)
STORED = StoredTransaction("job", 7, 0)
END_OFFSET = 13


class Coordinator(FakeCluster):
    """One open transaction of three records from offset 10 on; ``ends`` are applied to the EndTxn that come."""

    def __init__(self, *ends: Callable[[], int]) -> None:
        super().__init__()
        self.open(HERE, 7)
        self.know("job", 7, HERE)
        self.ends = [*ends] or [self.carry_out]
        self.requests: list[end_txn.EndTxnRequest] = []
        self.rules[end_txn.EndTxnRequest] = self._end
        self.rules[list_offsets.ListOffsetsRequest] = self._list_offsets
        self.rules[list_groups.ListGroupsRequest] = lambda broker, message: list_groups.ListGroupsResponse()
        self.rules[find_coordinator.FindCoordinatorRequest] = self._find
        self.rules[fetch.FetchRequest] = self._records

    def carry_out(self) -> int:
        self.state("CompleteCommit" if self.requests[-1].committed else "CompleteAbort")
        self.transactions.clear()
        return ErrorCode.NONE

    def state(self, name: str, epoch: int = 0, start_ms: int = 1_000) -> None:
        entry = self.ids["job"]
        entry.transaction_state, entry.producer_epoch, entry.transaction_start_time_ms = name, epoch, start_ms

    def _end(self, broker: int, message: end_txn.EndTxnRequest) -> Any:
        self.requests.append(message)
        end = self.ends.pop(0) if len(self.ends) > 1 else self.ends[0]
        return end_txn.EndTxnResponse(error_code=end())

    def _find(self, broker: int, message: Any) -> Any:
        coordinator = find_coordinator.Coordinator(key="job", node_id=self._keeper("job"))
        return find_coordinator.FindCoordinatorResponse(coordinators=[coordinator], node_id=coordinator.node_id)

    def _list_offsets(self, broker: int, message: Any) -> Any:
        topics = []
        for topic in message.topics:
            own = topic.name == HERE.topic
            offset = 10 if own and message.isolation_level and self.transactions else END_OFFSET if own else 0
            answers = [
                list_offsets.ListOffsetsPartitionResponse(partition_index=partition.partition_index, offset=offset)
                for partition in topic.partitions
            ]
            topics.append(list_offsets.ListOffsetsTopicResponse(name=topic.name, partitions=answers))
        return list_offsets.ListOffsetsResponse(topics=topics)

    def _records(self, broker: int, message: Any) -> Any:
        """Batches of the transaction at 10 and 12, one of another producer at 11."""
        (topic,) = message.topics
        (partition,) = topic.partitions
        offset = partition.fetch_offset
        batch = build_batch(
            [Record(offset, 1_000, None, b"v", ())],
            base_offset=offset,
            producer_id=8 if offset == 11 else 7,
            producer_epoch=0,
            base_sequence=0,
            transactional=True,
        )
        data = fetch.PartitionData(partition_index=0, records=batch if offset < END_OFFSET else b"")
        return fetch.FetchResponse(responses=[fetch.FetchableTopicResponse(topic="t", partitions=[data])])

    def plan(self, *, commit: bool = True) -> EndPlan:
        return self.run(plan_end(self.cluster, STORED, commit=commit))

    def end(self, plan: EndPlan) -> EndedTransaction:
        self.outcomes: list[Any] = []
        return self.run(end_stored(self.cluster, plan, audit=lambda entry: self.outcomes.append(entry["outcome"])))


def lost() -> int:
    raise ConnectionLost("the broker has closed the connection")


@pytest.mark.parametrize("commit", [True, False])
def test_the_plan_and_its_end(driver: str, commit: bool) -> None:
    cluster = Coordinator()
    plan = cluster.plan(commit=commit)
    assert (plan.action, plan.judgement.state, plan.is_whole) == (EndAction.END, IdentityState.OPEN, True)
    (row,) = plan.contents.partitions
    assert (row.start_offset, row.records, row.last_stable_offset, row.stable_after) == (10, 2, 10, END_OFFSET + 1)
    assert (plan.times_out_ms, plan.race is not None) == (61_000, True)
    result = cluster.end(plan)
    assert (result.error, result.sent, result.warning) == (None, True, None)
    (sent,) = cluster.requests
    assert (sent.transactional_id, sent.producer_id, sent.producer_epoch, sent.committed) == (*STORED, commit)
    assert cluster.outcomes == ["sending", "committed" if commit else "aborted"]


def test_a_lost_answer_is_checked_before_it_is_repeated(driver: str) -> None:
    def carried_out_and_lost() -> int:
        cluster.carry_out()
        return lost()

    cluster = Coordinator(carried_out_and_lost)
    result = cluster.end(cluster.plan())
    assert (result.error, len(cluster.requests)) == (None, 1)
    repeated = Coordinator(lost, lambda: ErrorCode.CONCURRENT_TRANSACTIONS, lambda: repeated.carry_out())
    result = repeated.end(repeated.plan())
    assert (result.error, len(repeated.requests)) == (None, 3)


def test_nothing_is_sent_once_the_transaction_is_another(driver: str) -> None:
    for change, text in (
        (lambda cluster: cluster.state("Ongoing", 0, 5_000), "A later transaction is open under the same identity"),
        (lambda cluster: cluster.state("Ongoing", 2, 5_000), "has gone on"),
        (lambda cluster: cluster.state("CompleteAbort"), "It was aborted"),
        (lambda cluster: cluster.ids.clear(), "does not know 'job' any more"),
    ):
        cluster = Coordinator()
        plan = cluster.plan()
        change(cluster)
        result = cluster.end(plan)
        assert (result.sent, cluster.requests) == (False, [])
        assert text in (result.error or "")
        assert cluster.outcomes == ["sending", "failed"]


def test_an_end_by_somebody_else_is_no_failure(driver: str) -> None:
    cluster = Coordinator()
    plan = cluster.plan()
    cluster.state("CompleteCommit")
    result = cluster.end(plan)
    assert (result.error, result.sent) == (None, False)


def test_refusals_are_explained(driver: str) -> None:
    for code, text in (
        (ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "it needs Write on the transactional id"),
        (ErrorCode.INVALID_PRODUCER_EPOCH, "another epoch by now"),
    ):
        cluster = Coordinator(lambda code=code: code)
        result = cluster.end(cluster.plan())
        assert text in (result.error or "")
        assert len(cluster.requests) == 1


def test_a_plan_that_is_refused_sends_nothing(driver: str) -> None:
    cluster = Coordinator()
    cluster.state("Ongoing", 3)
    plan = cluster.plan()
    assert (plan.action, plan.contents.partitions, plan.times_out_ms) == (EndAction.REFUSE, (), 61_000)
    assert cluster.end(plan).error == plan.judgement.reason
    assert (cluster.requests, cluster.outcomes) == ([], ["refused"])


def test_a_coordinator_that_does_not_answer_is_no_plan(driver: str) -> None:
    cluster = Coordinator()
    cluster.denied = True
    with pytest.raises(ClientError, match="transactional id 'job'"):
        cluster.plan()
