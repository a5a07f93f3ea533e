"""Causes about transactional ids, from facts alone: time-outs, unfinished transactions, ids that are not used again."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from oncelog.admin.explain.findings import Cause, Severity
from oncelog.admin.explain.id_facts import still_open
from oncelog.admin.explain.id_problems import expression_of, time_out_problems, unfinished_problems, unused_problems
from oncelog.admin.explain.time_outs import time_out_findings
from oncelog.admin.transactions.history import recent_ends
from oncelog.admin.transactions.history.recent_ends import MANY, Changes, IdEnds, RecentEnds
from oncelog.admin.transactions.history.unused_ids import UnusedIds, pattern_of
from oncelog.admin.transactions.stored_identity import PastTransaction
from oncelog.base.transaction_verdicts import NEVER_TIMES_OUT
from oncelog.records.internal.transaction_records import encode_key, encode_value
from tests.unit.admin.transactions.samples import HERE, NOW, ONGOING
from tests.unit.admin.transactions.test_coordinator_log import change

MINUTE = 60_000
TIMED_OUT = PastTransaction(7, 3, NOW - 120_000, NOW - 60_000, committed=False, after_timeout=True)
ABORTED = TIMED_OUT._replace(after_timeout=False)
ENDED = replace(ONGOING, state="CompleteAbort", partitions=frozenset(), client_id="etl", client_host="/10.0.0.9")


def test_an_abort_by_the_producer_is_no_time_out() -> None:
    assert time_out_findings(ENDED, [ABORTED], NOW) == []
    committed = ABORTED._replace(committed=True)
    assert time_out_findings(ENDED, [TIMED_OUT, committed], NOW) == [], "it went on, and it was once"


def test_the_last_transaction_ended_at_its_time_out() -> None:
    [told] = time_out_findings(ENDED, [ABORTED, TIMED_OUT], NOW)
    assert (told.cause, told.severity) == (Cause.ABORTED_AT_TIME_OUT, Severity.RISK)
    assert "client 'etl' on 10.0.0.9" in told.sentences[0]
    assert "INVALID_PRODUCER_EPOCH" in told.sentences[1]
    [second] = time_out_findings(ENDED, [TIMED_OUT._replace(client_version=2)], NOW)
    assert "INVALID_TXN_STATE by Apache Kafka up to 4.4.0 (KAFKA-20785)" in second.sentences[1]
    [begun] = time_out_findings(replace(ENDED, state="Empty"), [TIMED_OUT], NOW)
    assert "has initialised the id since" in begun.sentences[2]


def test_many_time_outs_are_one_finding_with_their_number() -> None:
    [told] = time_out_findings(ENDED, [TIMED_OUT] * MANY + [ABORTED._replace(committed=None)], NOW)
    assert (told.cause, told.evidence["timed_out"]) == (Cause.TIMES_OUT, MANY)


def test_ends_are_counted_from_the_records_of_many_ids() -> None:
    changes = Changes()
    for start_ms in range(0, 5_000 * MANY, 5_000):
        for name, epoch, age_ms in (("late", 1, 1_500), ("own", 0, 1_500), ("quick", 1, 500)):
            changes.add(
                (encode_key(name), encode_value(change(state, raised, start_ms, start_ms + at_ms), 1))
                for state, raised, at_ms in (
                    ("Ongoing", 0, 0),
                    ("PrepareAbort", epoch, age_ms),
                    ("CompleteAbort", epoch, age_ms + 1),
                )
            )
    changes.add([(encode_key("late"), b""), (b"?", encode_value(change("CompleteAbort", 1, 0, 9_000), 0))])
    assert [*changes.timed_out] == ["late"], "a raised epoch, and an age beyond the time-out"
    [repeated] = RecentEnds(0, changes.timed_out).repeated
    assert (len(repeated.timed_out_ms), repeated.ended, repeated.producer_id) == (MANY, MANY, 7)


def test_the_ids_that_are_watched_take_bounded_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    begun, aborted = encode_value(change("Ongoing", 0, 0, 0), 1), encode_value(change("PrepareAbort", 1, 0, 1_500), 1)
    monkeypatch.setattr(recent_ends, "MOST_IDS_BYTES", 2 * (len(begun) + len(encode_key("id-0"))))
    changes = Changes()
    changes.add((encode_key(f"id-{number}"), value) for value in (begun, aborted) for number in range(9))
    assert [*changes.timed_out] == ["id-0", "id-1"]
    changes.add((encode_key(f"id-{number}"), value) for value in (begun, aborted) for number in (0, 1, 5))
    assert [(ends.transactional_id, ends.ended) for ends in changes.timed_out.values()] == [("id-0", 2), ("id-1", 2)]


def test_producers_that_time_out_are_named_with_their_client() -> None:
    ends = IdEnds("late", 7, 1_000, [NOW - 9_000, NOW - 5_000, NOW - 1_000], 4)
    [told] = time_out_problems([ends], {"late": ENDED}, " -X …")
    assert told.text.startswith("3 transactions of 'late' (producer id 7) of client 'etl' on 10.0.0.9, of 4 that ended")
    assert (told.kind, told.severity, told.since_ms) == ("id", Severity.RISK, NOW - 9_000)
    [unnamed] = time_out_problems([ends], {}, "")
    assert "client" not in unnamed.text


@pytest.mark.parametrize(
    ("state", "timeout_ms", "age_ms", "text"),
    [
        ("Ongoing", MINUTE, 3 * MINUTE, "does not abort it"),
        ("Ongoing", MINUTE, 90_000, None),
        ("PrepareCommit", MINUTE, 2 * MINUTE, "has decided to commit 'x'"),
        ("PrepareAbort", MINUTE, 2 * MINUTE, "lacks the markers of t-0"),
        ("PrepareAbort", MINUTE, 30_000, None),
        ("Ongoing", NEVER_TIMES_OUT, 20 * MINUTE, "two-phase commit"),
        ("Ongoing", NEVER_TIMES_OUT, 3 * MINUTE, None),
        ("CompleteCommit", MINUTE, 20 * MINUTE, None),
    ],
)
def test_transactions_that_no_partition_shows(state: str, timeout_ms: int, age_ms: int, text: str | None) -> None:
    row = replace(ONGOING, state=state, timeout_ms=timeout_ms, start_ms=NOW - age_ms)
    problems = list(unfinished_problems([row], set(), NOW, ""))
    assert [problem.cause for problem in problems] == ([] if text is None else [Cause.UNFINISHED_TRANSACTION])
    if text is not None:
        assert text in problems[0].text
        assert problems[0].partitions == (HERE,)
    assert list(unfinished_problems([row], {"x"}, NOW, "")) == [], "listed with its partition"


def test_a_long_transaction_that_is_just_ending_is_none() -> None:
    """A checkpoint of ten minutes commits all its ids at one moment."""
    ending, stuck, open_row = (
        replace(ONGOING, transactional_id=name, state=state)
        for name, state in (("ending", "PrepareCommit"), ("stuck", "PrepareCommit"), ("open", "Ongoing"))
    )
    rows = {row.transactional_id: row for row in (ending, stuck, open_row)}
    later = {"ending": replace(ending, state="CompleteCommit"), "stuck": stuck}
    assert still_open(rows, {"ending", "stuck"}, later) == (stuck, open_row)
    again = {"ending": replace(ending, start_ms=NOW), "stuck": stuck}
    assert still_open(rows, {"ending", "stuck"}, again) == (stuck, open_row), "its next transaction"
    assert still_open(rows, {"ending", "stuck"}, {}) == (open_row,), "a missing answer proves nothing"


@pytest.mark.parametrize(
    ("transactional_id", "pattern"),
    [
        ("app-0f8fad5b-d9cb-469f-a165-70867728950e", "app-<uuid>"),
        ("sink-12-00345", "sink-<number>-<number>"),
        ("job.x7Gh2kPq", "job.<random>"),
        ("payments", "payments"),
        ("payments7", "payments<number>"),
    ],
)
def test_ids_are_alike_by_their_variable_parts(transactional_id: str, pattern: str) -> None:
    assert pattern_of(transactional_id) == pattern
    assert re.fullmatch(expression_of(pattern), transactional_id)


def test_unused_ids_have_their_times_and_the_way_out() -> None:
    ids = UnusedIds("app-<uuid>", 4_120, "app-1", NOW - 90 * MINUTE, NOW - 61 * MINUTE, 7 * 24 * 60 * MINUTE)
    [told] = unused_problems([ids], "")
    assert told.text.startswith("4,120 transactional ids like 'app-<uuid>' are not used again")
    assert told.clears.startswith("An id goes transactional.id.expiration.ms (7 d here) after its last use")
    assert told.explain == "oncelog txn list --id-pattern 'app-[0-9a-fA-F-]+'"
