"""The checker against planted histories: it finds what is wrong, by name, and nothing else."""

from __future__ import annotations

from dataclasses import replace

import pytest

from oncelog.sim.checkers.anomalies import ANOMALIES, check
from oncelog.sim.checkers.history import History, Outcome, Poll, Seen, Transaction, Write

FIRST = Transaction("first", "p", [Write(0, "a", 0), Write(1, "b", 0)], Outcome.COMMITTED, ending_at=10, offsets={0: 2})
SECOND = Transaction("second", "p", [Write(0, "c"), Write(0, "d")], Outcome.ABORTED, offsets={0: 4})
THIRD = Transaction("third", "q", [Write(0, "e"), Write(1, "f")], Outcome.UNKNOWN, ending_at=30, offsets={0: 4})
GOOD = History(
    transactions=[FIRST, SECOND, THIRD],
    polls=[
        Poll("r", 0, 20, [Seen(0, "a")]),
        Poll("r", 1, 21, [Seen(0, "b")]),
        Poll("r", 0, 40, [Seen(5, "e")]),
        Poll("r", 0, 50, [Seen(0, "a")], sought=True),
    ],
    drained={0: [Seen(0, "a"), Seen(5, "e")], 1: [Seen(0, "b"), Seen(2, "f")]},
    committed_offsets={0: 4},
)


def test_a_good_history_has_no_anomaly() -> None:
    assert check(GOOD) == {}


def test_an_unknown_outcome_may_be_invisible() -> None:
    drained = {0: [Seen(0, "a")], 1: [Seen(0, "b")]}
    assert check(replace(GOOD, polls=GOOD.polls[:2], drained=drained, committed_offsets={0: 2})) == {}


def drained(partition: int, *records: Seen) -> History:
    return replace(GOOD, drained={**GOOD.drained, partition: list(records)})


def polled(*polls: Poll) -> History:
    return replace(GOOD, polls=[*GOOD.polls, *polls])


UNACKNOWLEDGED = replace(FIRST, writes=[Write(0, "a"), Write(1, "b")])
PLANTED = {
    "lost write": drained(1, Seen(2, "f")),
    "unseen after drain": replace(GOOD, transactions=[FIRST], polls=[], drained={0: [Seen(0, "a")]}),
    "duplicate": drained(1, Seen(0, "b"), Seen(2, "f"), Seen(3, "f")),
    "inconsistent offset": polled(Poll("s", 1, 60, [Seen(2, "b")])),
    "aborted read": polled(Poll("s", 0, 60, [Seen(3, "c")])),
    "torn transaction": drained(1, Seen(0, "b")),
    "uncommitted read": polled(Poll("q", 1, 29, [Seen(2, "f")])),
    "skipped poll": polled(Poll("s", 0, 60, [Seen(-1, "w"), Seen(5, "e")])),
    "non-monotonic poll": polled(Poll("r", 1, 60, [Seen(0, "b")])),
    "offsets beside the data": replace(GOOD, committed_offsets={0: 2}),
}


@pytest.mark.parametrize("name", ANOMALIES)
def test_a_planted_anomaly_is_found(name: str) -> None:
    assert name in check(PLANTED[name])


def test_a_record_not_acknowledged_by_offset_is_lost_all_the_same() -> None:
    history = replace(
        GOOD, transactions=[UNACKNOWLEDGED], drained={0: [Seen(0, "a")]}, polls=[], committed_offsets=None
    )
    assert check(history).keys() == {"lost write", "torn transaction"}


@pytest.mark.parametrize(
    ("name", "only"),
    [
        ("unseen after drain", {"unseen after drain", "torn transaction", "offsets beside the data"}),
        ("aborted read", {"aborted read", "uncommitted read"}),
        ("uncommitted read", {"uncommitted read"}),
        ("non-monotonic poll", {"non-monotonic poll"}),
        ("offsets beside the data", {"offsets beside the data"}),
        ("skipped poll", {"skipped poll"}),
    ],
)
def test_nothing_else_is_said_of_it(name: str, only: set[str]) -> None:
    assert check(PLANTED[name]).keys() <= only


def test_a_duplicate_within_one_drain_is_found() -> None:
    assert "duplicate" in check(drained(0, Seen(0, "a"), Seen(5, "e"), Seen(5, "e")))
