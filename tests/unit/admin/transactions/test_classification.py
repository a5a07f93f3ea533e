"""Every kind of hang and every innocent, as tables: what leader and coordinators say, and what follows."""

from __future__ import annotations

import pytest

from oncelog.admin.transactions.classification import (
    CHANGING,
    Ages,
    Evidence,
    Finding,
    ages_of,
    classify,
    finding_of,
    needs_recheck,
    required_age_ms,
)
from oncelog.admin.transactions.transactional_ids import TransactionRow
from oncelog.base.ids import TopicPartition
from oncelog.base.transaction_verdicts import NEVER_TIMES_OUT, ReasonCode, Verdict
from tests.unit.admin.transactions.samples import LEADER, ONGOING, THERE, said

OLD = Ages(3_600_000, 3_600_000, 60_000)
ELSEWHERE = frozenset({THERE})
NOWHERE: frozenset[TopicPartition] = frozenset()


@pytest.mark.parametrize(
    ("row", "code", "verdict"),
    [
        # Innocents: whatever their age, their coordinator is going to end them.
        (ONGOING, ReasonCode.ONGOING, Verdict.LIVE),
        (said(timeout_ms=900_000), ReasonCode.ONGOING, Verdict.LIVE),
        (said(timeout_ms=NEVER_TIMES_OUT), ReasonCode.TWO_PHASE, Verdict.TWO_PHASE),
        (said(timeout_ms=NEVER_TIMES_OUT, producer_epoch=4), ReasonCode.TWO_PHASE, Verdict.TWO_PHASE),
        (said(timeout_ms=NEVER_TIMES_OUT, producer_id=8, producer_epoch=3), ReasonCode.TWO_PHASE, Verdict.TWO_PHASE),
        (said(state="PrepareCommit"), ReasonCode.COMPLETING, Verdict.LIVE),
        (said(state="PrepareCommit", producer_epoch=4), ReasonCode.COMPLETING, Verdict.LIVE),
        (said(state="PrepareAbort", producer_epoch=4), ReasonCode.COMPLETING, Verdict.LIVE),
        (said(state="PrepareEpochFence"), ReasonCode.COMPLETING, Verdict.LIVE),
        # Hangs: its coordinator is not going to write a marker here.
        (said(state="CompleteCommit", partitions=NOWHERE), ReasonCode.ENDED, Verdict.HANGING),
        (said(state="CompleteAbort", partitions=NOWHERE), ReasonCode.ENDED, Verdict.HANGING),
        (said(state="Empty", partitions=NOWHERE), ReasonCode.ENDED, Verdict.HANGING),
        (said(state="PrepareCommit", partitions=ELSEWHERE), ReasonCode.ENDED, Verdict.HANGING),
        (said(partitions=ELSEWHERE), ReasonCode.NOT_LISTED, Verdict.HANGING),
        (said(partitions=NOWHERE), ReasonCode.NOT_LISTED, Verdict.HANGING),
        (said(timeout_ms=NEVER_TIMES_OUT, partitions=ELSEWHERE), ReasonCode.NOT_LISTED, Verdict.HANGING),
        (said(producer_epoch=4), ReasonCode.MOVED_ON, Verdict.HANGING),
        (said(producer_epoch=4, state="CompleteAbort", partitions=NOWHERE), ReasonCode.MOVED_ON, Verdict.HANGING),
        (said(producer_epoch=4, state="PrepareAbort", partitions=ELSEWHERE), ReasonCode.MOVED_ON, Verdict.HANGING),
        (said(producer_id=8, producer_epoch=0, partitions=NOWHERE), ReasonCode.MOVED_ON, Verdict.HANGING),
        # The coordinator has lost what it knew.
        (said(producer_epoch=2, partitions=NOWHERE), ReasonCode.FORGOTTEN, Verdict.HANGING),
        (said(producer_epoch=2), ReasonCode.BEHIND, Verdict.SUSPECTED),
        (said(producer_epoch=2, state="PrepareAbort"), ReasonCode.BEHIND, Verdict.SUSPECTED),
    ],
    ids=lambda value: f"{value.state}-{value.producer_epoch}" if isinstance(value, TransactionRow) else None,
)
def test_leader_beside_coordinator(row: TransactionRow, code: ReasonCode, verdict: Verdict) -> None:
    finding = finding_of(LEADER, Evidence((row,), unanswered=("broker 3 did not answer",)))
    assert (finding.code, classify(finding, OLD).verdict) == (code, verdict)
    assert needs_recheck(finding) is (verdict is Verdict.HANGING)


@pytest.mark.parametrize(
    ("evidence", "code"),
    [
        (Evidence(), ReasonCode.FORGOTTEN),
        (Evidence(unanswered=("broker 3: its transactional ids: refused",)), ReasonCode.UNANSWERED),
        (Evidence(unknown_id="x", unanswered=("broker 3 did not answer",)), ReasonCode.FORGOTTEN),
        (Evidence((said(partitions=NOWHERE), said(transactional_id="y"))), ReasonCode.ONGOING),
    ],
)
def test_who_is_not_heard_has_not_forgotten(evidence: Evidence, code: ReasonCode) -> None:
    assert finding_of(LEADER, evidence).code is code


LATE = Finding(ReasonCode.ENDED, said(state="CompleteCommit", partitions=NOWHERE), "it came after the marker")


@pytest.mark.parametrize(
    ("ages", "doubt", "verdict", "says"),
    [
        (Ages(60_000, 0, 60_000), None, Verdict.HANGING, "It came after the marker"),
        (Ages(59_999, 0, 60_000), None, Verdict.SUSPECTED, "began only 59 s ago, and counts as hanging from 1 min on"),
        (Ages(0, 0, 0), None, Verdict.HANGING, "marker"),
        (Ages(3_600_000, 0, 0), CHANGING, Verdict.SUSPECTED, "marker; but it is changing just now"),
        (Ages(None, 60_000, 60_000, "deleted"), None, Verdict.HANGING, "marker"),
        (Ages(None, 59_999, 60_000, "deleted"), None, Verdict.SUSPECTED, "its age is not known: deleted"),
        (Ages(None, 0, 0, "deleted"), None, Verdict.HANGING, "marker"),
    ],
)
def test_certain_needs_the_age_asked_for_and_a_second_look(
    ages: Ages, doubt: str | None, verdict: Verdict, says: str
) -> None:
    classified = classify(LATE, ages, doubt=doubt)
    assert classified.verdict is verdict
    assert says in classified.reason


def test_no_age_makes_a_live_one_hang() -> None:
    for row in (ONGOING, said(state="PrepareCommit"), said(timeout_ms=NEVER_TIMES_OUT)):
        classified = classify(finding_of(LEADER, Evidence((row,))), Ages(10**12, 10**12, 0))
        assert classified.verdict in (Verdict.LIVE, Verdict.TWO_PHASE)


def test_a_time_in_the_future_is_no_time_and_the_last_write_no_age() -> None:
    assert ages_of(1_000, 1_001, 900, 50).age_ms is None
    assert ages_of(1_000, 400, 900, 50) == Ages(600, 100, 50, None, 1_000)
    assert ages_of(1_000, None, -1, 50, "gone") == Ages(None, 0, 50, "gone", 1_000)


@pytest.mark.parametrize(
    ("row", "says"),
    [
        (ONGOING, "so see why the coordinator does not abort it"),
        (said(state="PrepareCommit"), "so see why the marker does not arrive"),
        (said(timeout_ms=NEVER_TIMES_OUT), "the application that prepared it ends it"),
    ],
)
def test_what_is_overdue_by_its_coordinators_account_is_remarked_on(row: TransactionRow, says: str) -> None:
    overdue = ages_of(900 + 60_000 + 60_001, 0, 0, 0)
    assert classify(finding_of(LEADER, Evidence((row,))), overdue).reason.endswith(says)
    in_time = ages_of(900 + 60_000, 0, 0, 0)
    assert "time-out has passed" not in classify(finding_of(LEADER, Evidence((row,))), in_time).reason


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
