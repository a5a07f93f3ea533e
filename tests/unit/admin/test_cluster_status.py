"""The sorting of partitions and brokers by what they lack."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any, cast

import pytest

from oncelog.admin import cluster_status
from oncelog.admin.cluster_status import (
    ELECTION_MS,
    BrokerStatus,
    ClusterStatus,
    Controller,
    Counts,
    DirectoryStatus,
    PartitionStatus,
    assess,
    counts_of,
    partition_rows,
)
from oncelog.admin.quorum import Quorum
from oncelog.admin.reassignments import ReassignmentRow
from oncelog.base.ids import NO_TOPIC_ID, BrokerId, LeaderEpoch, TopicName
from oncelog.client.errors import RequestTimedOut
from oncelog.client.machine.metadata import PartitionInfo, TopicInfo
from oncelog.client.programs import Cluster, Program, Sleep

FULL = PartitionStatus("t", 0, 1, (1, 2, 3), (1, 2, 3), 2)


def broker(broker_id: int, **others: object) -> BrokerStatus:
    row = BrokerStatus(broker_id, "host", 9092, None, "up", broker_id == 1, 0, 0, [])
    return replace(row, **others)  # type: ignore[arg-type]  # names and values of its fields


def assessed(*partitions: PartitionStatus, brokers: list[BrokerStatus] | None = None) -> ClusterStatus:
    counts = Counts(1, len(partitions), Counter(), Counter())
    return assess("id", brokers or [broker(1), broker(2), broker(3)], list(partitions), [], counts)


def test_a_full_partition_lacks_nothing() -> None:
    result = assessed(FULL)
    assert (result.healthy, result.problems) == (True, [])
    lists = (result.without_leader, result.under_replicated, result.under_min_isr, result.at_min_isr)
    assert lists == ([], [], [], [])


def test_one_replica_out_of_sync_leaves_none_to_spare() -> None:
    result = assessed(replace(FULL, isr=(1, 3)))
    assert result.problems == ["1 partition under-replicated"]
    assert (len(result.under_replicated), len(result.at_min_isr), len(result.under_min_isr)) == (1, 1, 0)


def test_below_min_isr() -> None:
    result = assessed(replace(FULL, isr=(1,)))
    assert result.problems == ["1 partition under-replicated", "1 partition under min ISR"]
    assert result.at_min_isr == []


def test_without_a_leader() -> None:
    result = assessed(replace(FULL, leader=None, isr=()), FULL)
    assert result.problems[0] == "1 partition without leader"
    assert result.partitions == 2


def test_an_eligible_leader_may_lead_without_loss() -> None:
    row = replace(FULL, leader=None, isr=(), eligible=(3,))
    assert (row.may_lead, replace(row, isr=(3, 2)).may_lead) == ((3,), (3, 2))


def test_the_controller_is_that_of_the_quorum_or_unknown() -> None:
    counts = Counts(0, 0, Counter(), Counter())
    for controller, controller_id, lacks in (
        (Controller(100, True), 100, False),
        (Controller(None, True), None, True),
        (Controller(None, True, "not allowed"), None, False),
        (Controller(None, True, "no answer", is_silent=True), None, True),
        (Controller(), 1, False),
    ):
        result = assess("id", [broker(1)], [], [], counts, controller)
        assert (result.controller_id, result.lacks_controller) == (controller_id, lacks)
        assert result.healthy is not lacks


def test_min_isr_above_the_number_of_replicas_counts_as_that_number() -> None:
    result = assessed(replace(FULL, replicas=(1,), isr=(1,), min_isr=2))
    assert (result.healthy, len(result.at_min_isr)) == (True, 1)


def test_a_configuration_that_may_not_be_read_is_no_fault() -> None:
    result = assessed(replace(FULL, min_isr=None))
    assert (result.healthy, result.at_min_isr) == (True, [])


def test_a_replica_that_is_being_added_is_not_missed_yet() -> None:
    assert assessed(replace(FULL, replicas=(1, 2, 3, 4), adding=(4,))).healthy
    assert not assessed(replace(FULL, replicas=(1, 2, 3, 4), isr=(1, 2), adding=(4,))).healthy


def test_brokers_that_are_not_up() -> None:
    brokers = [
        broker(1),
        broker(2, state="fenced", replicas=1),
        broker(5, state="fenced"),
        broker(3, state="absent"),
        broker(4, state="unreachable"),
    ]
    result = assessed(FULL, brokers=brokers)
    assert result.problems == ["broker 2 is fenced", "broker 3 is absent", "broker 4 is unreachable"]


def test_without_a_controller() -> None:
    assert assessed(FULL, brokers=[broker(2)]).problems == ["no controller"]
    assert assessed(FULL, brokers=[broker(2)]).controller_id is None


def test_an_offline_directory() -> None:
    bad = DirectoryStatus(2, "/disk2", "KAFKA_STORAGE_ERROR", None, None)
    good = DirectoryStatus(2, "/disk1", None, 10, 5)
    result = assessed(FULL, brokers=[broker(1), broker(2, directories=[good, bad]), broker(3)])
    assert (result.problems, result.offline_directories) == (["/disk2 of broker 2 is offline"], [bad])


def test_rows_of_partitions_come_in_order_and_know_of_their_reassignment() -> None:
    def partition(index: int, leader: int) -> PartitionInfo:
        return PartitionInfo(index, BrokerId(leader), LeaderEpoch(5), (1, 2, 3), (1, 2))

    topics = [
        TopicInfo(TopicName("b"), NO_TOPIC_ID, {0: partition(0, 1)}),
        TopicInfo(TopicName("a"), NO_TOPIC_ID, {1: partition(1, -1), 0: partition(0, 2)}),
    ]
    moving = [ReassignmentRow("b", 0, (1, 2, 3), (3,), (1,))]
    rows = partition_rows(topics, moving, {"a": 2})
    assert [(row.topic, row.partition, row.leader, row.min_isr, row.adding) for row in rows] == [
        ("a", 0, 2, 2, ()),
        ("a", 1, None, 2, ()),
        ("b", 0, 1, None, (3,)),
    ]
    counts = counts_of(topics)
    assert (counts.topics, counts.partitions) == (2, 3)
    assert ([counts.leads[number] for number in (1, 2, 3)], counts.replicas[3]) == ([1, 1, 0], 3)


def test_a_reassignment_knows_what_will_be_left() -> None:
    assert ReassignmentRow("t", 0, (4, 2, 3, 1), (4,), (1,)).target == (4, 2, 3)


def test_an_election_is_no_lack_of_a_controller(monkeypatch: pytest.MonkeyPatch) -> None:
    """One leads again after a moment, and one slow broker is no proof."""

    def looked_for(*leaders: int | None) -> tuple[list[Any], Any]:
        looks = iter(leaders)

        def quorum(cluster: Cluster) -> Program[Quorum]:
            yield from ()
            if (leader := next(looks)) == -1:
                raise RequestTimedOut("no answer")
            return Quorum(leader, 1, 0, [], [])

        monkeypatch.setattr(cluster_status, "describe_quorum", quorum)
        program = cluster_status._controller(cast("Cluster", None))
        steps: list[Any] = []
        while True:
            try:
                steps.append(next(program))
            except StopIteration as end:
                return steps, end.value

    assert looked_for(3) == ([], Controller(3, True))
    for first in (None, -1):
        steps, controller = looked_for(first, 3)
        assert (steps, controller) == ([Sleep(ELECTION_MS)], Controller(3, True))
    assert looked_for(None, None)[1].is_missing
    assert looked_for(-1, -1)[1].is_silent
