"""The sentences of ``explain``: whole ones, since people show them to each other."""

from __future__ import annotations

from dataclasses import replace

import pytest

from oncelog.admin.transactions.blocked_groups import GroupBehind
from oncelog.admin.transactions.cluster_scan import OpenTransaction
from oncelog.admin.transactions.history.lost_markers import LostMarker
from oncelog.admin.transactions.partition_offsets import Bounds
from oncelog.admin.transactions.report import Held, Retention, advice, clears, commands, held_sentences
from tests.unit.admin.transactions.samples import COMPLETING, HANGING, HERE, LIVE, NOW, SUSPECTED, TWO_PHASE, YOUNG


def held(*transactions: OpenTransaction, retention: Retention = Retention(), groups: int = 0) -> Held:  # noqa: B008  # frozen
    behind = tuple(GroupBehind(f"g{number}", 100, 1_103) for number in range(groups))
    return Held(HERE, Bounds(100, 1_203), transactions, behind, retention, NOW)


def test_a_hang_from_the_consumer_to_the_command() -> None:
    story = held(HANGING, LIVE, groups=1, retention=Retention("delete", 86_400_000))
    assert held_sentences(story) == [
        "The last stable offset of t-0 is 100: read_committed consumers stop there, 1,103 offsets before the end at "
        "1,203.",
        "It is held by a transaction of transactional id 'x', producer id 7, epoch 3, that begins at offset 100 and "
        "is open for 2 h, since 2027-01-15 06:00:00 UTC; it last wrote 1 min ago.",
        "The coordinator has committed 'x' and written all its markers; these records came after the marker.",
        "So it hangs: no coordinator is going to end it (broker 2 coordinates it).",
        "Groups that wait behind it, if they read committed records: g0 (1,103 offsets).",
        "1 more transaction is open behind it, 0 of them hanging; the next begins at offset 100.",
        "It never clears by itself, only with its records, which are kept for 1 d: not before 2027-01-16 06:00:00 UTC.",
    ]
    assert commands(story, " -b k:1") == ["oncelog txn abort --topic t --partition 0 --start-offset 100 -b k:1"]


def test_a_lost_marker_replaces_the_reason_and_the_way_out() -> None:
    lost = LostMarker(True, NOW - 60_000, 3, 5, 101)
    story = replace(held(HANGING), lost=lost)
    text = " ".join(held_sentences(story))
    assert "these records came after the marker" not in text
    assert "Leader epoch 3 ended at offset 101, before the marker, and epoch 5 or a later one began there" in text
    assert commands(story) == [
        "oncelog consume --partition 0 --from 100 --uncommitted --exit t",
        "oncelog txn abort --topic t --partition 0 --start-offset 100",
    ]
    assert "hides its records here from committed readers" in advice(story)
    aborted = replace(story, lost=replace(lost, committed=False))
    assert (len(commands(aborted)), advice(aborted)) == (1, "An abort marker ends it, as its coordinator had decided:")
    unproven = replace(story, lost=LostMarker(None, None, 3, 5, 101, is_proven=False))
    assert "Its marker was probably lost" in " ".join(held_sentences(unproven))
    assert advice(unproven) == advice(held(HANGING))


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
        (YOUNG, "oncelog txn abort --topic t --partition 0 --start-offset 100", "never clears by itself", "To end it"),
        (SUSPECTED, "oncelog txn find-hanging --topic t --partition 0 --all", "cannot be said", "look again"),
    ],
)
def test_every_verdict_has_its_end(one: OpenTransaction, command: str | None, when: str, counsel: str) -> None:
    story = held(one)
    assert commands(story) == ([command] if command else [])
    assert when in clears(story)
    assert counsel in advice(story)


def test_a_young_hang_says_from_when_on_it_counts_and_can_be_ended_before() -> None:
    assert (
        "So no coordinator is going to end it (broker 2 coordinates it). It counts as hanging from an age of 1 min on, "
        "in 40 s; an administrator can end it before that."
    ) in held_sentences(held(YOUNG))


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
