"""The checker of drills finds what is twice, and knows what a client itself has sent anew."""

from __future__ import annotations

from tests.load import Acknowledged, Stored, broken, sent_once

STORED = [Stored("producer", number, offset) for offset, number in enumerate([0, 1, 2, 3, 1, 2, 3, 4])]
ACKNOWLEDGED = [Acknowledged(0, 0, 0.0), Acknowledged(1, 4, 0.0), Acknowledged(3, 3, 0.0)]


def test_records_of_one_epoch_are_there_once_and_in_order():
    once = sent_once(STORED, dict.fromkeys(range(8), 0))
    assert list(broken(ACKNOWLEDGED, STORED, once)) == ["3 records twice, from 1 to 3", "out of order"]


def test_records_that_librdkafka_sends_anew_with_another_epoch_are_its_own():
    once = sent_once(STORED, {offset: int(offset >= 4) for offset in range(8)})
    assert [item.number for item in once] == [0, 1, 2, 3, 4]
    assert not list(broken(ACKNOWLEDGED, STORED, once))


def test_acknowledged_records_are_where_it_was_said():
    moved = Acknowledged(4, 6, 0.0)
    assert list(broken([moved], STORED[:4] + STORED[7:], STORED[:4] + STORED[7:])) == [
        f"1 records elsewhere than acknowledged, first {moved}"
    ]
    assert list(broken([Acknowledged(9, 9, 0.0)], STORED[:4], STORED[:4])) == [
        "1 acknowledged records lost, from 9 to 9"
    ]
