"""The one table of hanging transactions: complete, and what every reason code allows."""

from __future__ import annotations

import itertools

import pytest

from oncelog.base import transaction_verdicts
from oncelog.base.transaction_verdicts import (
    DECIDED_STATES,
    NEVER_TIMES_OUT,
    ONGOING_STATE,
    REPORTED,
    REPORTED_YOUNG,
    RULES,
    CoordinatorEntry,
    ReasonCode,
    Verdict,
    classify,
    classify_without_entry,
    late_after_ms,
    leader_takes_marker,
    tool_sends_marker,
)
from oncelog.records.internal.transaction_records import STATE_NAMES

PRODUCER_ID, EPOCH = 7, 5
TIMEOUT_MS = 60_000


def entry(
    state: str, *, epoch: int = EPOCH, producer_id: int = PRODUCER_ID, listed: bool = True, timeout_ms: int = TIMEOUT_MS
) -> CoordinatorEntry:
    return CoordinatorEntry(state, timeout_ms, producer_id, epoch, listed)


def test_the_table_has_a_reason_code_for_everything_and_a_rule_for_every_reason_code() -> None:
    for state, timeout_ms, producer_id, epoch, listed in itertools.product(
        [*STATE_NAMES, "of a later Kafka"],
        (TIMEOUT_MS, NEVER_TIMES_OUT),
        (PRODUCER_ID, PRODUCER_ID + 1),
        (EPOCH - 1, EPOCH, EPOCH + 1),
        (True, False),
    ):
        code = classify(CoordinatorEntry(state, timeout_ms, producer_id, epoch, listed), PRODUCER_ID, EPOCH)
        assert code is not ReasonCode.UNANSWERED, "there is an answer"
    assert list(RULES) == list(ReasonCode)


def test_states_are_named_as_describe_transactions_names_them() -> None:
    assert {ONGOING_STATE, *DECIDED_STATES} <= set(STATE_NAMES)


def test_what_its_coordinator_lists_under_this_epoch_is_never_hanging() -> None:
    for state in STATE_NAMES:
        for timeout_ms in (TIMEOUT_MS, NEVER_TIMES_OUT):
            code = classify(entry(state, timeout_ms=timeout_ms), PRODUCER_ID, EPOCH)
            is_open = state == ONGOING_STATE or state in DECIDED_STATES
            assert (RULES[code].verdict is Verdict.HANGING) is not is_open


@pytest.mark.parametrize("state", STATE_NAMES)
def test_a_transaction_is_not_hanging_while_its_coordinator_is_behind(state: str) -> None:
    assert classify(entry(state, epoch=EPOCH - 1), PRODUCER_ID, EPOCH) is ReasonCode.BEHIND
    assert classify(entry(state, epoch=EPOCH - 1, listed=False), PRODUCER_ID, EPOCH) is ReasonCode.FORGOTTEN


def test_a_kept_transaction_of_two_phase_commit_may_have_its_next_producer() -> None:
    for producer_id, epoch in ((PRODUCER_ID, EPOCH + 1), (PRODUCER_ID + 1, 0)):
        kept = entry(ONGOING_STATE, producer_id=producer_id, epoch=epoch, timeout_ms=NEVER_TIMES_OUT)
        assert classify(kept, PRODUCER_ID, EPOCH) is ReasonCode.TWO_PHASE
        assert classify(kept._replace(lists_partition=False), PRODUCER_ID, EPOCH) is ReasonCode.MOVED_ON
        assert classify(kept._replace(timeout_ms=TIMEOUT_MS), PRODUCER_ID, EPOCH) is ReasonCode.MOVED_ON


def test_no_answer_is_no_evidence() -> None:
    assert classify_without_entry(all_answered=True) is ReasonCode.FORGOTTEN
    assert classify_without_entry(all_answered=False) is ReasonCode.UNANSWERED
    assert RULES[ReasonCode.UNANSWERED].verdict is Verdict.SUSPECTED


@pytest.mark.parametrize(
    ("code", "leader", "leader_forced", "tool", "tool_forced", "terminates"),
    [
        (ReasonCode.ONGOING, False, True, False, True, True),
        (ReasonCode.TWO_PHASE, False, False, False, False, True),
        (ReasonCode.COMPLETING, False, False, False, False, False),
        (ReasonCode.BEHIND, True, True, False, True, False),
        (ReasonCode.MOVED_ON, True, True, True, True, False),
        (ReasonCode.ENDED, True, True, True, True, False),
        (ReasonCode.NOT_LISTED, True, True, True, True, False),
        (ReasonCode.FORGOTTEN, True, True, True, True, False),
        (ReasonCode.UNANSWERED, True, True, False, True, False),
    ],
)
def test_ways_out(
    code: ReasonCode, leader: bool, leader_forced: bool, tool: bool, tool_forced: bool, terminates: bool
) -> None:
    verdict = RULES[code].verdict
    assert leader_takes_marker(code, forced=False) is leader
    assert leader_takes_marker(code, forced=True) is leader_forced
    assert tool_sends_marker(code, verdict, forced=False) is tool
    assert tool_sends_marker(code, verdict, forced=True) is tool_forced
    assert RULES[code].force_terminate is terminates


def test_a_young_one_is_ended_by_force_only() -> None:
    assert not tool_sends_marker(ReasonCode.ENDED, Verdict.SUSPECTED, forced=False)
    assert tool_sends_marker(ReasonCode.ENDED, Verdict.SUSPECTED, forced=True)


def test_words_that_users_see_stay() -> None:
    """Dashboards, scripts and docs have them: README.md, docs/metrics.md, docs/hanging-transactions.md."""
    assert [verdict.value for verdict in Verdict] == ["hanging", "suspected", "live", "two_phase"]
    assert REPORTED == ("young", "live", "completing", "two_phase", "hanging", "unknown")
    assert {rule.reported_as for rule in RULES.values()} == {*REPORTED} - {REPORTED_YOUNG}
    hanging = {rule.reported_as for rule in RULES.values() if rule.verdict is Verdict.HANGING}
    assert hanging == {transaction_verdicts.REPORTED_HANGING}


@pytest.mark.parametrize(
    ("timeout_ms", "late_ms"),
    [(60_000, 60_000), (None, 1_200_000), (-1, 1_200_000), (0, 1_200_000), (NEVER_TIMES_OUT, 1_200_000)],
)
def test_late_after_its_own_time_out_or_the_longest_and_five_minutes(timeout_ms: int | None, late_ms: int) -> None:
    assert late_after_ms(timeout_ms, 900_000) == late_ms
