"""H19: a transactional copy is exactly once as far as its group is."""

from __future__ import annotations

from oncelog.base.ids import TopicName, TopicPartition
from oncelog.sim.checkers.anomalies import check
from oncelog.sim.checkers.history import Copied, GroupPartition, History, RecordedOutcome, SeenRecord, Stream, Write

IN, OUT = TopicPartition(TopicName("in"), 0), TopicPartition(TopicName("out"), 0)
RULE = "H19 not copied exactly once"


def copied(*values: str, reads_next: int) -> list[str]:
    """The findings where ``a`` and ``b`` are the input, and these the output."""
    written = [Write(IN, "a", outcome=RecordedOutcome.COMMITTED), Write(IN, "b", outcome=RecordedOutcome.COMMITTED)]
    written += [Write(OUT, value, outcome=RecordedOutcome.COMMITTED) for value in values]
    drained = {
        IN: [SeenRecord(0, "a"), SeenRecord(1, "b")],
        OUT: [SeenRecord(offset, value) for offset, value in enumerate(values)],
    }
    history = History(
        streams=[Stream("p", written, idempotent=False)],
        drained=drained,
        committed_offsets={GroupPartition("g", IN): reads_next},
        copies=[Copied("in", "out", "g")],
    )
    return check(history).get(RULE, [])


def test_each_record_once_as_far_as_the_group_is() -> None:
    assert copied("1|a", "2|b", reads_next=2) == []
    assert copied("1|a", reads_next=1) == []


def test_a_record_twice() -> None:
    assert copied("1|a", "2|b", "3|a", reads_next=2) == ["a 2 times in out"]


def test_a_record_that_the_group_is_past_and_that_is_not_there() -> None:
    assert copied("2|b", reads_next=2) == ["a at in-0@0 is not in out, g reads 2"]


def test_a_record_that_is_not_in_the_input() -> None:
    assert copied("1|a", "2|b", "3|c", reads_next=2) == ["c is in out and not in in"]
