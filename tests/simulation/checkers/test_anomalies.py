"""The history checker against planted histories: it finds what is wrong, by name, and nothing else."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from oncelog.base.ids import TopicId, TopicName, TopicPartition
from oncelog.sim.checkers.anomalies import ANOMALIES, check
from oncelog.sim.checkers.history import (
    Commit,
    Completion,
    Copied,
    Deletion,
    GroupPartition,
    History,
    OffsetCommitted,
    OffsetRead,
    Poll,
    RecordedOutcome,
    SeenRecord,
    StartSeen,
    Stream,
    Transaction,
    Trim,
    Write,
    outcome_of,
)


def of(topic: str, partition: int = 0) -> TopicPartition:
    return TopicPartition(TopicName(topic), partition)


ZERO, ONE, PLAIN, TABLE, GONE = of("copy"), of("copy", 1), of("plain"), of("table"), of("gone")
SOURCE, TAIL = GroupPartition("copiers", of("source")), GroupPartition("readers", PLAIN)
OLD, NEW = TopicId(b"o" * 16), TopicId(b"n" * 16)
COMMITTED, ABORTED, UNKNOWN = RecordedOutcome

FIRST = Transaction("first", "p", [Write(ZERO, "a", 0), Write(ONE, "b", 0)], COMMITTED, 10, {SOURCE: 2})
ANSWERED = [OffsetCommitted(SOURCE, 2, 15)]
SECOND = Transaction("second", "p", [Write(ZERO, "c"), Write(ZERO, "d")], ABORTED, offsets={SOURCE: 4})
THIRD = Transaction("third", "q", [Write(ZERO, "e"), Write(ONE, "f")], UNKNOWN, 30, {SOURCE: 4})
HELD = Transaction("held", "r", [Write(ONE, "g")], COMMITTED, 40, {}, True, [Completion(True, 40, True)])
IDEMPOTENT = Stream(
    "i",
    [
        Write(PLAIN, "h", 0, outcome=COMMITTED),
        Write(PLAIN, "i", 1, outcome=COMMITTED),
        Write(PLAIN, "j"),
        Write(PLAIN, "k", 3, outcome=COMMITTED),
        Write(PLAIN, "l", outcome=ABORTED),
    ],
)
REPEATING = Stream("n", [Write(PLAIN, "r", 4, outcome=COMMITTED)], idempotent=False)
UPSERTS = Stream(
    "u",
    [
        Write(TABLE, "x1", 0, "x", outcome=COMMITTED),
        Write(TABLE, "y1", 1, "y", outcome=COMMITTED),
        Write(TABLE, "y2", 2, "y", tombstone=True, outcome=COMMITTED),
        Write(TABLE, "x2", 3, "x", outcome=COMMITTED),
    ],
)
BEFORE = Stream("b", [Write(GONE, "m", 0, outcome=COMMITTED, sent_at=1, answered_at=2)])
AFTER = Stream("s", [Write(GONE, "o", 0, outcome=COMMITTED, sent_at=90, answered_at=91)])
GOOD = History(
    transactions=[FIRST, SECOND, THIRD, HELD],
    streams=[IDEMPOTENT, REPEATING, UPSERTS, BEFORE, AFTER],
    polls=[
        Poll("r", ZERO, 20, [SeenRecord(0, "a")]),
        Poll("r", ONE, 21, [SeenRecord(0, "b")]),
        Poll("r", ZERO, 40, [SeenRecord(5, "e")]),
        Poll("r", ZERO, 50, [SeenRecord(0, "a")], sought=True),
        Poll("dirty", ZERO, 12, [SeenRecord(2, "c")], read_committed=False),
        Poll("t", PLAIN, 60, [SeenRecord(0, "h"), SeenRecord(1, "i"), SeenRecord(3, "k")], group="readers"),
        Poll("v", GONE, 9, [SeenRecord(0, "m")], topic_id=OLD),
        Poll("v", GONE, 95, [SeenRecord(0, "o")], topic_id=NEW),
    ],
    drained={
        ZERO: [SeenRecord(0, "a"), SeenRecord(5, "e")],
        ONE: [SeenRecord(0, "b"), SeenRecord(2, "f"), SeenRecord(4, "g")],
        PLAIN: [SeenRecord(0, "h"), SeenRecord(1, "i"), SeenRecord(3, "k"), SeenRecord(4, "r"), SeenRecord(5, "r")],
        TABLE: [SeenRecord(3, "x2", "x")],
        GONE: [SeenRecord(0, "o")],
    },
    commits=[Commit(TAIL, 2, 61, 62), Commit(TAIL, 3, 63, None), Commit(TAIL, 4, 64, 65)],
    committed_offsets={SOURCE: 4, TAIL: 4},
    followed_groups=frozenset({"readers"}),
    deletions=[Deletion("gone", 70, 80)],
    topic_ids={"gone": NEW},
    compacted=frozenset({"table"}),
)


def test_a_good_history_has_no_anomaly() -> None:
    assert check(GOOD) == {}


def without(history: History, *values: str) -> History:
    kept = {p: [seen for seen in records if seen.value not in values] for p, records in history.drained.items()}
    return replace(history, drained=kept)


def drained(partition: TopicPartition, *records: SeenRecord) -> History:
    return replace(GOOD, drained={**GOOD.drained, partition: list(records)})


def polled(*polls: Poll) -> History:
    return replace(GOOD, polls=[*GOOD.polls, *polls])


def with_held(*completions: Completion) -> History:
    held = replace(HELD, outcome=outcome_of(completions), completions=completions)
    shown = GOOD if held.outcome is not ABORTED else without(GOOD, "g")
    return replace(shown, transactions=[FIRST, SECOND, THIRD, held])


ON_ZERO = GOOD.drained[ZERO]
UNREAD = [poll for poll in GOOD.polls if poll.partition not in (PLAIN, GONE)]
AGAIN = replace(BEFORE, writes=[BEFORE.writes[0]._replace(offset=None)])
REFUSED = Write(ONE, "z", outcome=ABORTED)
CLOSE = {
    "an unknown outcome may be invisible": replace(
        without(GOOD, "e", "f"), polls=GOOD.polls[:2], commits=[], committed_offsets={SOURCE: 2}
    ),
    "an unacknowledged write may be there": replace(
        drained(
            PLAIN, SeenRecord(0, "h"), SeenRecord(1, "i"), SeenRecord(2, "j"), SeenRecord(3, "k"), SeenRecord(4, "r")
        ),
        polls=UNREAD,
        followed_groups=frozenset(),
    ),
    "deleted below the log start": replace(
        without(GOOD, "h", "i"), log_starts={PLAIN: 2}, trims=[Trim(PLAIN, 2, True)]
    ),
    "retention moved the log start": replace(
        without(GOOD, "h", "i"), log_starts={PLAIN: 2}, expiring=frozenset({"plain"})
    ),
    "a tombstone expired with all before it": without(GOOD, "y1", "y2"),
    "an unanswered commit may have come late": replace(GOOD, committed_offsets={SOURCE: 4, TAIL: 3}),
    "an offset without data, its end unknown": replace(
        GOOD,
        transactions=[*GOOD.transactions, Transaction("only", "q", [], UNKNOWN, 70, {SOURCE: 6})],
        committed_offsets={SOURCE: 6, TAIL: 4},
    ),
    "the record written again after the deletion": replace(
        GOOD,
        streams=[*GOOD.streams[:3], replace(BEFORE, writes=[BEFORE.writes[0]._replace(answered_at=85)])],
        drained={**GOOD.drained, GONE: [SeenRecord(0, "m")]},
        polls=GOOD.polls[:6],
    ),
    "a record was refused, and its transaction not committed": replace(
        GOOD, transactions=[FIRST, replace(SECOND, writes=[*SECOND.writes, REFUSED]), THIRD, HELD]
    ),
    "an offset was read before its commit was answered, or after": replace(
        GOOD,
        offsets_committed=ANSWERED,
        offset_reads=[OffsetRead(SOURCE, -1, 15, 1), OffsetRead(SOURCE, 2, 16, 5), OffsetRead(SOURCE, 4, 31, 1)],
    ),
    "completed at the second attempt": with_held(Completion(True, 40, None), Completion(True, 50, False)),
}


@pytest.mark.parametrize("name", CLOSE)
def test_what_is_close_to_an_anomaly_is_none(name: str) -> None:
    assert check(CLOSE[name]) == {}


PLANTED = {
    "H1": without(replace(GOOD, polls=UNREAD, followed_groups=frozenset()), "b"),
    "H2": without(GOOD, "o"),
    "H3": drained(ONE, *GOOD.drained[ONE], SeenRecord(6, "f")),
    "H4": polled(Poll("s", ZERO, 60, [SeenRecord(5, "d")], read_committed=False)),
    "H5": polled(Poll("s", ZERO, 60, [SeenRecord(2, "c")])),
    "H6": without(GOOD, "f"),
    "H7": polled(Poll("q", ONE, 29, [SeenRecord(2, "f")])),
    "H8": polled(Poll("s", ONE, 60, [SeenRecord(0, "b"), SeenRecord(4, "g")])),
    "H9": polled(Poll("r", ONE, 60, [SeenRecord(0, "b")])),
    "H10": replace(GOOD, committed_offsets={SOURCE: 2, TAIL: 4}),
    "H11": polled(Poll("s", ZERO, 60, [SeenRecord(7, "w")])),
    "H12": replace(GOOD, streams=[replace(IDEMPOTENT, writes=IDEMPOTENT.writes[::-1]), *GOOD.streams[1:]]),
    "H13": replace(
        GOOD,
        streams=[*GOOD.streams[:3], AGAIN, AFTER],
        drained={**GOOD.drained, GONE: [SeenRecord(0, "o"), SeenRecord(1, "m")]},
    ),
    "H14": with_held(Completion(True, 40, True), Completion(False, 41, True)),
    "H15": with_held(Completion(True, 40, False)),
    "H16": replace(without(GOOD, "h"), log_starts={PLAIN: 1}),
    "H17": replace(GOOD, committed_offsets={SOURCE: 4, TAIL: 2}),
    "H18": replace(GOOD, committed_offsets={SOURCE: 4, TAIL: 5}, commits=[Commit(TAIL, 5, 66, 67)]),
    "H19": replace(GOOD, copies=[Copied("plain", "table", "readers")]),
    "H21": replace(GOOD, offsets_committed=ANSWERED, offset_reads=[OffsetRead(SOURCE, -1, 16, 1)]),
    "H20": replace(GOOD, transactions=[replace(FIRST, writes=[*FIRST.writes, REFUSED]), SECOND, THIRD, HELD]),
}


@pytest.mark.parametrize("name", ANOMALIES)
def test_a_planted_anomaly_is_found_and_nothing_else(name: str) -> None:
    assert check(PLANTED[name.partition(" ")[0]]).keys() == {name}


MORE = {
    "H1": [
        without(GOOD, "i"),
        without(drained(TABLE, SeenRecord(0, "x1", "x"), SeenRecord(4, "z", "z")), "x2"),
        replace(without(GOOD, "h", "i", "k"), log_starts={PLAIN: 2}, expiring=frozenset({"plain"}), polls=[]),
    ],
    "H2": [without(GOOD, "r"), without(GOOD, "b", "f", "g")],
    "H3": [
        drained(ZERO, SeenRecord(0, "a"), SeenRecord(5, "e"), SeenRecord(5, "e")),
        drained(ZERO, *ON_ZERO, SeenRecord(6, "e")),
    ],
    "H4": [polled(Poll("s", ZERO, 60, [SeenRecord(0, "e")])), polled(Poll("s", ONE, 60, [SeenRecord(9, "h")]))],
    "H5": [
        drained(ZERO, *ON_ZERO, SeenRecord(6, "d")),
        polled(Poll("s", PLAIN, 60, [SeenRecord(9, "l")], read_committed=False)),
        replace(
            polled(Poll("s", ONE, 60, [SeenRecord(9, "z")], read_committed=False)),
            transactions=[FIRST, replace(SECOND, writes=[*SECOND.writes, REFUSED]), THIRD, HELD],
        ),
    ],
    "H9": [drained(ZERO, *reversed(ON_ZERO))],
    "H12": [
        drained(
            PLAIN, SeenRecord(0, "h"), SeenRecord(1, "i"), SeenRecord(3, "k"), SeenRecord(4, "r"), SeenRecord(6, "j")
        )
    ],
    "H16": [
        replace(GOOD, trims=[Trim(PLAIN, 1, True)]),
        replace(GOOD, log_starts={ZERO: 2}, trims=[Trim(ZERO, 2, True)]),
        replace(GOOD, retained_for={"plain": 100}, starts_seen=[StartSeen(PLAIN, 1, 99)]),
    ],
    "H17": [replace(GOOD, committed_offsets={SOURCE: 4})],
}


def test_retention_takes_what_is_old_enough() -> None:
    """The record at 0 was sent at time 0 and stays for 100."""
    assert check(replace(GOOD, retained_for={"plain": 100}, starts_seen=[StartSeen(PLAIN, 1, 100)])) == {}
    assert check(replace(GOOD, starts_seen=[StartSeen(PLAIN, 1, 1000)], retained_for={"plain": 100})) == {}


@pytest.mark.parametrize(("name", "history"), [(name, item) for name, several in MORE.items() for item in several])
def test_other_forms_of_it_are_found(name: str, history: History) -> None:
    assert name in {batch.partition(" ")[0] for batch in check(history)}


def test_a_check_of_five_thousand_records_takes_milliseconds() -> None:
    writes = [Write(of("copy", index % 4), str(index), index // 4, outcome=COMMITTED) for index in range(5000)]
    records: dict[TopicPartition, list[SeenRecord]] = {}
    for write in writes:
        records.setdefault(write.partition, []).append(SeenRecord(write.offset or 0, write.value))
    transactions = [Transaction(str(at), "p", writes[at : at + 10], COMMITTED, 1) for at in range(0, 4000, 10)]
    polls = [Poll("r", p, 2 + at, seen[at : at + 20]) for p, seen in records.items() for at in range(0, 1250, 20)]
    history = History(transactions, [Stream("s", writes[4000:])], polls, records)
    took_s = []
    for _ in range(3):  # the best of them: a collection of all the garbage of the tests before is no part of it
        started_s = time.thread_time()
        assert check(history) == {}
        took_s.append(time.thread_time() - started_s)
    assert min(took_s) < 0.1
