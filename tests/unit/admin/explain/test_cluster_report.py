"""The list of everything that is wrong: its order, its counts, and what is healthy, from facts alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from oncelog.admin.cluster_status import BrokerStatus, ClusterStatus, PartitionStatus
from oncelog.admin.explain.cluster_problems import (
    LINGERING_MS,
    PREPARED_MS,
    group_problem,
    status_problems,
    transaction_problems,
)
from oncelog.admin.explain.cluster_report import ClusterReport, GroupSummary, Problem, report_of
from oncelog.admin.explain.findings import Cause, Finding, Severity
from oncelog.admin.transactions.cluster_scan import OpenTransaction
from oncelog.admin.transactions.history.lost_markers import LostMarker
from oncelog.base.ids import TopicName, TopicPartition
from tests.unit.admin.transactions.samples import HANGING, LIVE, NOW, ONGOING, SUSPECTED, TWO_PHASE, YOUNG

BROKER = BrokerStatus(1, "a", 9092, None, "up", True, 1, 1, [])
STATUS = ClusterStatus(True, [], "c", 1, [BROKER], 2, 4, [], [], [], [], [], [])


def of(
    transaction: OpenTransaction, partition: int, name: str | None = None, age_ms: int | None = None
) -> OpenTransaction:
    """A transaction in another partition, held at its start, of another producer."""
    producer = replace(transaction.producer, partition=partition, producer_id=hash(name) % 1000)
    start = replace(transaction.start, last_stable_offset=transaction.start_offset)
    moved = replace(transaction, producer=producer, transactional_id=name, start=start)
    if age_ms is None:
        return moved
    row = None if moved.row is None else replace(moved.row, start_ms=NOW - age_ms)
    return replace(moved, row=row, age_ms=age_ms)


def reported(
    transactions: Sequence[OpenTransaction],
    waiting: Mapping[int, Sequence[str]] | None = None,
    more: Sequence[Problem] = (),
    status: ClusterStatus = STATUS,
) -> ClusterReport:
    groups = {
        TopicPartition(TopicName("t"), partition): dict.fromkeys(names, 10)
        for partition, names in (waiting or {}).items()
    }
    problems = transaction_problems(transactions, groups, {}, NOW, "")
    return report_of(status, transactions, [*problems, *more], [], [], NOW)


def test_a_hang_is_above_fifty_routine_transactions_with_more_lag() -> None:
    routine = [of(LIVE, partition, f"job-{partition}", age_ms=50_000) for partition in range(1, 60)]
    hang = of(HANGING, 0, "late")
    waiting = {0: ["billing"], **{partition: [f"g{n}" for n in range(9)] for partition in range(1, 60)}}
    report = reported([*routine, hang], waiting)
    assert (report.problems[0].name, report.problems[0].groups) == ("late", ("billing",))
    assert len(report.problems) == 60, "no line is cut"
    assert (report.counts["groups_stuck"], report.counts["groups_waiting"]) == (1, 9), "groups, not rows"
    assert report.is_stuck
    assert report.summary == "1 hanging transaction and 1 stuck group."


def test_a_healthy_job_is_never_on_the_list() -> None:
    jobs = [of(LIVE, partition, "job", age_ms=300) for partition in range(6)]
    report = reported(jobs, {partition: ["readers"] for partition in range(6)})
    assert (report.problems, report.is_stuck, report.counts["urgent"]) == ([], False, 0)
    assert report.counts["live"] == 1, "one transaction, whatever its partitions"
    prepared = reported([of(TWO_PHASE, 0, "flink", age_ms=2_000)], {0: ["readers"]})
    assert prepared.problems == []


@pytest.mark.parametrize(
    ("transaction", "age_ms", "severity", "verdict", "is_urgent"),
    [
        (LIVE, LINGERING_MS, Severity.NOTE, "live", False),
        (replace(LIVE, overdue_ms=90_000), 150_000, Severity.STUCK, "overdue", True),
        (TWO_PHASE, LINGERING_MS, Severity.NOTE, "two_phase", False),
        (TWO_PHASE, PREPARED_MS, Severity.RISK, "two_phase", False),
        (SUSPECTED, 10, Severity.STUCK, "suspected", True),
        (YOUNG, 10, Severity.STUCK, "suspected", True),
        (HANGING, 7_200_000, Severity.STUCK, "hanging", True),
    ],
)
def test_a_transaction_is_judged_by_its_verdict_and_its_time_out(
    transaction: OpenTransaction, age_ms: int, severity: Severity, verdict: str, is_urgent: bool
) -> None:
    [problem] = reported([of(transaction, 0, "x", age_ms)], {0: ["g"]}).problems
    assert (problem.severity, problem.verdict, problem.is_urgent) == (severity, verdict, is_urgent)


def test_the_age_of_a_live_transaction_is_its_coordinators() -> None:
    """Its records may have the times of events of last year."""
    row = replace(ONGOING, start_ms=NOW - 300)
    replayed = replace(of(LIVE, 0, "replay"), row=row, age_ms=365 * 86_400_000)
    assert reported([replayed], {0: ["g"]}).problems == []


def test_a_marker_that_was_probably_lost_has_whole_sentences() -> None:
    hang = of(HANGING, 0, "late")
    lost = {(hang.topic_partition, hang.start_offset): LostMarker(None, None, 3, 5, 101, is_proven=False)}
    [problem] = transaction_problems([hang], {}, {}, NOW, "", lost)
    assert problem.cause is Cause.LOST_MARKER
    assert problem.text.endswith("are lost as well.")


def test_one_line_has_all_partitions_of_a_transaction_and_all_groups_that_wait() -> None:
    hang = [
        replace(of(HANGING, partition, "late"), producer=replace(HANGING.producer, partition=partition))
        for partition in range(6)
    ]
    [problem] = reported(hang, {0: ["a"], 1: ["a", "b"]}).problems
    assert (len(problem.partitions), problem.groups, problem.unread) == (6, ("a", "b"), 30)
    assert "and so in 5 more partitions" in problem.text
    assert problem.commands[0] == "oncelog txn abort --topic t --partition 0 --start-offset 100"


def test_partitions_that_lack_the_same_broker_are_one_line() -> None:
    rows = [PartitionStatus("t", index, 1, (1, 3), (1,), 2) for index in range(6)]
    other = PartitionStatus("u", 0, None, (3,), (), 1)
    status = replace(STATUS, without_leader=[other], under_min_isr=[*rows, other], under_replicated=[*rows, other])
    down = replace(BROKER, broker_id=3, state="fenced", is_controller=False)
    status = replace(status, brokers=[BROKER, down])
    problems = status_problems(status, lambda partitions: ("g",), "")
    report = reported([], more=problems, status=status)
    assert [(problem.cause, len(problem.partitions)) for problem in report.problems] == [
        (Cause.NO_LEADER, 1),
        (Cause.UNDER_MIN_ISR, 6),
        (Cause.BROKER_DOWN, 0),
    ]
    assert "t-0, t-1, t-2 and 3 more have fewer replicas in sync" in report.problems[1].text
    assert (report.counts["brokers_up"], report.counts["brokers"]) == (1, 2)


def finding(cause: Cause, severity: Severity = Severity.STUCK, about: str = "t-0") -> Finding:
    return Finding(cause, severity, about, [f"{about} because of {cause.value}."])


def test_a_group_is_one_line_with_its_worst_cause() -> None:
    assert group_problem("fine", [finding(Cause.BUSY, Severity.NOTE)], 0, "") is None
    causes = [
        finding(Cause.REBALANCES_REPEATEDLY, Severity.RISK),
        finding(Cause.NO_MEMBERS),
        finding(Cause.BEYOND_END),
        finding(Cause.BEYOND_END, about="t-1"),
    ]
    problem = group_problem("g", causes, 7, "")
    assert problem is not None
    assert (problem.cause, problem.more, problem.unread) == (Cause.BEYOND_END, 2, 7)
    assert problem.text.endswith("(and so in 1 more)")
    assert problem.explain == "oncelog explain group g"


def test_groups_without_members_are_last_and_not_urgent() -> None:
    idle = [group_problem(f"old-{index}", [finding(Cause.NO_MEMBERS)], 1000, "") for index in range(3)]
    stuck = group_problem("new", [finding(Cause.NOTHING_COMMITTED)], 0, "")
    report = reported([], more=[problem for problem in (*idle, stuck) if problem is not None])
    assert [problem.name for problem in report.problems] == ["new", "old-0", "old-1", "old-2"]
    assert [problem.is_urgent for problem in report.problems] == [True, False, False, False]
    assert (report.counts["groups_stuck"], report.counts["groups_without_members"]) == (1, 3)
    assert report.summary == "1 stuck group and 3 groups without members that have records to read."


def test_nothing_wrong_is_said_with_what_was_looked_at() -> None:
    groups = [GroupSummary("g", "Stable", "classic", "consumer", 1, 1, {})]
    assert report_of(STATUS, [], [], groups, [], NOW).summary == "Nothing is stuck in 1 group, 2 topics and 1 broker."
    partly = report_of(STATUS, [], [], groups, ["broker 2: its groups: down"], NOW).summary
    assert partly.endswith("as far as could be seen.")


def test_a_broker_that_others_find_frozen_is_named_with_them_and_the_time() -> None:
    suspected = replace(BROKER, broker_id=3, is_controller=False, suspected_by=(1, 2), suspected_since_ms=NOW - 5_000)
    silent = replace(suspected, broker_id=4, state="unreachable", error="no answer", suspected_by=(1,))
    status = replace(STATUS, brokers=[BROKER, suspected, silent])
    answering, unreachable = status_problems(status, lambda partitions: (), "")
    assert (answering.cause, answering.since_ms) == (Cause.BROKER_SUSPECTED, NOW - 5_000)
    assert "For brokers 1 and 2 it is frozen" in answering.text
    assert (unreachable.cause, unreachable.since_ms) == (Cause.BROKER_DOWN, NOW - 5_000)
    assert "no answer. For broker 1 it is frozen" in unreachable.text
