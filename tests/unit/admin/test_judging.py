"""Every kind of hang and every innocent, as tables: what leader and coordinators say, and what follows."""

from __future__ import annotations

from dataclasses import replace

import pytest

from oncelog.admin.transactions.describing import NEVER_TIMES_OUT, TransactionRow
from oncelog.admin.transactions.judging import (
    Ages,
    Evidence,
    Finding,
    Standing,
    Verdict,
    ages_of,
    contradicts,
    judge,
    required_age_ms,
    weigh,
)
from oncelog.admin.transactions.producers import ProducerRow
from oncelog.base.ids import TopicName, TopicPartition

HERE, THERE = TopicPartition(TopicName("t"), 0), TopicPartition(TopicName("t"), 1)
LEADER = ProducerRow("t", 0, 1, 7, 3, 0, 1_000, 0, 100)
ONGOING = TransactionRow("x", 2, "Ongoing", 7, 3, 60_000, 900, frozenset({HERE}))
OLD = Ages(3_600_000, 3_600_000, 60_000)


def said(**changes: object) -> TransactionRow:
    return replace(ONGOING, **changes)  # type: ignore[arg-type]  # fields by name


ELSEWHERE = frozenset({THERE})
NOWHERE: frozenset[TopicPartition] = frozenset()


@pytest.mark.parametrize(
    ("row", "standing", "verdict"),
    [
        # Innocents: whatever their age, their coordinator is going to end them.
        (ONGOING, Standing.ONGOING, Verdict.LIVE),
        (said(timeout_ms=900_000), Standing.ONGOING, Verdict.LIVE),
        (said(timeout_ms=NEVER_TIMES_OUT), Standing.TWO_PHASE, Verdict.TWO_PHASE),
        (said(timeout_ms=NEVER_TIMES_OUT, producer_epoch=4), Standing.TWO_PHASE, Verdict.TWO_PHASE),
        (said(timeout_ms=NEVER_TIMES_OUT, producer_id=8, producer_epoch=3), Standing.TWO_PHASE, Verdict.TWO_PHASE),
        (said(state="PrepareCommit"), Standing.COMPLETING, Verdict.LIVE),
        (said(state="PrepareCommit", producer_epoch=4), Standing.COMPLETING, Verdict.LIVE),
        (said(state="PrepareAbort", producer_epoch=4), Standing.COMPLETING, Verdict.LIVE),
        (said(state="PrepareEpochFence"), Standing.COMPLETING, Verdict.LIVE),
        # Hangs: its coordinator is not going to write a marker here.
        (said(state="CompleteCommit", partitions=NOWHERE), Standing.ENDED, Verdict.HANGING),
        (said(state="CompleteAbort", partitions=NOWHERE), Standing.ENDED, Verdict.HANGING),
        (said(state="Empty", partitions=NOWHERE), Standing.ENDED, Verdict.HANGING),
        (said(state="PrepareCommit", partitions=ELSEWHERE), Standing.ENDED, Verdict.HANGING),
        (said(partitions=ELSEWHERE), Standing.NOT_LISTED, Verdict.HANGING),
        (said(partitions=NOWHERE), Standing.NOT_LISTED, Verdict.HANGING),
        (said(timeout_ms=NEVER_TIMES_OUT, partitions=ELSEWHERE), Standing.NOT_LISTED, Verdict.HANGING),
        (said(producer_epoch=4), Standing.MOVED_ON, Verdict.HANGING),
        (said(producer_epoch=4, state="CompleteAbort", partitions=NOWHERE), Standing.MOVED_ON, Verdict.HANGING),
        (said(producer_epoch=4, state="PrepareAbort", partitions=ELSEWHERE), Standing.MOVED_ON, Verdict.HANGING),
        (said(producer_id=8, producer_epoch=0, partitions=NOWHERE), Standing.MOVED_ON, Verdict.HANGING),
        # The coordinator has lost what it knew.
        (said(producer_epoch=2, partitions=NOWHERE), Standing.FORGOTTEN, Verdict.HANGING),
        (said(producer_epoch=2), Standing.BEHIND, Verdict.SUSPECTED),
        (said(producer_epoch=2, state="PrepareAbort"), Standing.BEHIND, Verdict.SUSPECTED),
    ],
    ids=lambda value: f"{value.state}-{value.producer_epoch}" if isinstance(value, TransactionRow) else None,
)
def test_leader_beside_coordinator(row: TransactionRow, standing: Standing, verdict: Verdict) -> None:
    found = weigh(LEADER, Evidence((row,), silence=("broker 3 did not answer",)))
    assert (found.standing, judge(found, OLD).verdict) == (standing, verdict)
    assert contradicts(found) is (verdict is Verdict.HANGING)


@pytest.mark.parametrize(
    ("evidence", "standing"),
    [
        (Evidence(), Standing.FORGOTTEN),
        (Evidence(silence=("broker 3: its transactional ids: refused",)), Standing.UNHEARD),
        (Evidence(unknown_id="x", silence=("broker 3 did not answer",)), Standing.FORGOTTEN),
        (Evidence((said(partitions=NOWHERE), said(transactional_id="y"))), Standing.ONGOING),
    ],
)
def test_who_is_not_heard_has_not_forgotten(evidence: Evidence, standing: Standing) -> None:
    assert weigh(LEADER, evidence).standing is standing


LATE = Finding(Standing.ENDED, said(state="CompleteCommit", partitions=NOWHERE), "it came after the marker")


@pytest.mark.parametrize(
    ("ages", "still_open", "verdict", "says"),
    [
        (Ages(60_000, 0, 60_000), True, Verdict.HANGING, "It came after the marker"),
        (Ages(59_999, 0, 60_000), True, Verdict.SUSPECTED, "began only 59 s ago, less than the 1 min asked for"),
        (Ages(0, 0, 0), True, Verdict.HANGING, "marker"),
        (Ages(3_600_000, 0, 0), False, Verdict.SUSPECTED, "changing just now"),
        (Ages(None, 60_000, 60_000, "deleted"), True, Verdict.HANGING, "marker"),
        (Ages(None, 59_999, 60_000, "deleted"), True, Verdict.SUSPECTED, "its age is not known: deleted"),
        (Ages(None, 0, 0, "deleted"), True, Verdict.HANGING, "marker"),
    ],
)
def test_certain_needs_the_age_asked_for_and_a_second_look(
    ages: Ages, still_open: bool, verdict: Verdict, says: str
) -> None:
    judgement = judge(LATE, ages, still_open=still_open)
    assert judgement.verdict is verdict
    assert says in judgement.reason


def test_no_age_makes_a_live_one_hang() -> None:
    for row in (ONGOING, said(state="PrepareCommit"), said(timeout_ms=NEVER_TIMES_OUT)):
        judgement = judge(weigh(LEADER, Evidence((row,))), Ages(10**12, 10**12, 0))
        assert judgement.verdict in (Verdict.LIVE, Verdict.TWO_PHASE)


def test_a_time_in_the_future_is_no_time_and_the_last_write_no_age() -> None:
    assert ages_of(1_000, 1_001, 900, 50).age_ms is None
    assert ages_of(1_000, 400, 900, 50) == Ages(600, 100, 50, None, 1_000)
    assert ages_of(1_000, None, -1, 50, "gone") == Ages(None, 0, 50, "gone", 1_000)


@pytest.mark.parametrize(
    ("row", "says"),
    [
        (ONGOING, "so see why the coordinator does not abort it"),
        (said(state="PrepareCommit"), "so see why the marker does not arrive"),
        (said(timeout_ms=NEVER_TIMES_OUT), "somebody outside has to end it"),
    ],
)
def test_what_is_overdue_by_its_coordinators_account_is_remarked_on(row: TransactionRow, says: str) -> None:
    overdue = ages_of(900 + 60_000 + 60_001, 0, 0, 0)
    assert judge(weigh(LEADER, Evidence((row,))), overdue).reason.endswith(says)
    in_time = ages_of(900 + 60_000, 0, 0, 0)
    assert "time-out has passed" not in judge(weigh(LEADER, Evidence((row,))), in_time).reason


@pytest.mark.parametrize(
    ("row", "min_age_ms", "required"),
    [
        (ONGOING, None, 60_000),
        (ONGOING, 5, 5),
        (said(timeout_ms=NEVER_TIMES_OUT), None, 900_000 + 300_000),
        (None, None, 900_000 + 300_000),
        (None, 0, 0),
    ],
)
def test_the_age_asked_for(row: TransactionRow | None, min_age_ms: int | None, required: int) -> None:
    assert required_age_ms(row, min_age_ms, 900_000) == required
