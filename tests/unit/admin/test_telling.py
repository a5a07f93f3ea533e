"""The sentences of ``explain``: whole ones, since people show them to each other."""

from __future__ import annotations

from dataclasses import replace

import pytest

from oncelog.admin.transactions.aborting import race_of, refusal
from oncelog.admin.transactions.bounds import Bounds
from oncelog.admin.transactions.describing import NEVER_TIMES_OUT
from oncelog.admin.transactions.durations import duration_text, moment_text
from oncelog.admin.transactions.hanging import OpenTransaction
from oncelog.admin.transactions.judging import Standing, Verdict
from oncelog.admin.transactions.starts import Start
from oncelog.admin.transactions.telling import (
    GroupBehind,
    Held,
    Retention,
    advice,
    clears,
    commands,
    held_sentences,
)
from tests.unit.admin.test_judging import HERE, LEADER, ONGOING, said

NOW = 1_800_000_000_000
START = Start(NOW - 7_200_000, 100, 1_203)
HANGING = OpenTransaction(
    replace(LEADER, last_timestamp_ms=NOW - 60_000),
    100,
    START,
    Verdict.HANGING,
    Standing.ENDED,
    "The coordinator has committed 'x' and written all its markers; these records came after the marker",
    7_200_000,
    "x",
    2,
    said(state="CompleteCommit", partitions=frozenset()),
    60_000,
)
LIVE = replace(
    HANGING,
    verdict=Verdict.LIVE,
    standing=Standing.ONGOING,
    row=replace(ONGOING, start_ms=NOW - 10_000),
    reason="It is",
)
TWO_PHASE = replace(LIVE, verdict=Verdict.TWO_PHASE, standing=Standing.TWO_PHASE, row=said(timeout_ms=NEVER_TIMES_OUT))
COMPLETING = replace(LIVE, standing=Standing.COMPLETING)
SUSPECTED = replace(HANGING, verdict=Verdict.SUSPECTED, standing=Standing.UNHEARD, row=None, transactional_id=None)


def held(*transactions: OpenTransaction, retention: Retention = Retention(), groups: int = 0) -> Held:  # noqa: B008  # frozen
    behind = tuple(GroupBehind(f"g{number}", 100, 1_103) for number in range(groups))
    return Held(HERE, Bounds(100, 1_203), transactions, behind, retention, NOW)


def test_a_hang_from_the_consumer_to_the_command() -> None:
    story = held(HANGING, LIVE, groups=1, retention=Retention("delete", 86_400_000))
    assert held_sentences(story) == [
        "The last stable offset of t-0 is 100: whoever reads committed records stops there, with 1,103 offsets still "
        "to come up to the end at 1,203.",
        "It is held by a transaction of transactional id 'x', producer id 7, epoch 3, that begins at offset 100 and "
        "is open for 2 h, since 2027-01-15 06:00:00 UTC; it last wrote 1 min ago.",
        "The coordinator has committed 'x' and written all its markers; these records came after the marker.",
        "So it hangs: no coordinator is going to end it (broker 2 coordinates it).",
        "Groups that wait behind it, if they read committed records: g0 (1,103 offsets).",
        "1 more transaction is open behind it, 0 of which hang; the next begins at offset 100.",
        "It never clears by itself, only with its records, which are kept for 1 d: not before 2027-01-16 06:00:00 UTC.",
    ]
    assert commands(story, " -b k:1") == ["oncelog txn abort --topic t --partition 0 --start-offset 100 -b k:1"]


@pytest.mark.parametrize(
    ("one", "command", "when", "counsel"),
    [
        (
            LIVE,
            "oncelog txn force-terminate x",
            "in 50 s (and up to 10 s), when the time-out fires.",
            "nothing to repair",
        ),
        (TWO_PHASE, "oncelog txn force-terminate x", "does not clear by itself", "gone for good"),
        (COMPLETING, None, "as soon as the marker is written", "but wait"),
        (SUSPECTED, "oncelog txn find-hanging --topic t --partition 0 --all", "cannot be said", "look again"),
    ],
)
def test_every_verdict_has_its_end(one: OpenTransaction, command: str | None, when: str, counsel: str) -> None:
    story = held(one)
    assert commands(story) == ([command] if command else [])
    assert when in clears(story)
    assert counsel in advice(story)


@pytest.mark.parametrize(
    ("retention", "says"),
    [
        (Retention("delete", None), "It never clears by itself, only with its records, when retention deletes them."),
        (Retention("delete", -1), "It never clears by itself: the topic keeps its records for ever."),
        (Retention("compact", 1), "It never clears by itself, and the topic is not compacted beyond it."),
    ],
)
def test_what_retention_would_do(retention: Retention, says: str) -> None:
    assert clears(held(HANGING, retention=retention)) == says


def test_nobody_there_is_said_too() -> None:
    story = held()
    assert "has no transaction open" in held_sentences(story)[-1]
    assert (commands(story), clears(story)) == ([], "It clears by itself.")


def test_what_a_marker_must_not_touch() -> None:
    assert refusal(HANGING) is None
    for one in (LIVE, SUSPECTED):
        assert refusal(one) is not None
        assert refusal(one, force=True) is None
    assert "force-terminate x" in (refusal(TWO_PHASE, force=True) or "")
    spaced = replace(LIVE, transactional_id="a b")
    assert "force-terminate 'a b' -b k:1 (" in (refusal(spaced, options=" -b k:1") or ""), "as it can be pasted"
    assert "Wait" in (refusal(COMPLETING, force=True) or "")


def test_the_race_that_remains_is_stated() -> None:
    ours = replace(HANGING, producer=replace(HANGING.producer, transactional_id=""))
    assert "does not say that it takes a start offset" in (race_of(HANGING) or "")
    assert "same epoch" in (race_of(ours) or ""), "its coordinator is another broker"
    assert race_of(replace(ours, coordinator=ours.producer.leader)) is None, "who asks itself in the same step"
    assert race_of(replace(HANGING, standing=Standing.MOVED_ON)) is None


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [
        (0, "0 ms"),
        (999, "999 ms"),
        (12_345, "12 s"),
        (60_000, "1 min"),
        (185_000, "3 min 5 s"),
        (90_000_000, "1 d 1 h"),
    ],
)
def test_durations(milliseconds: int, text: str) -> None:
    assert duration_text(milliseconds) == text


def test_a_moment_no_calendar_has() -> None:
    assert moment_text(10**18) == f"{10**18} ms after 1970"
