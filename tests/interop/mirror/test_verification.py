"""Verifying: equal sides are right, whatever lies between the records; a difference is named by its offset."""

from __future__ import annotations

import asyncio
import re

import pytest

from oncelog.admin.topics import delete_records
from oncelog.base.ids import TopicName, TopicPartition
from oncelog.mirror.verification import RangeRow, verify_copies
from tests.interop.mirror.conftest import Side, mirror, settings_of

pytestmark = pytest.mark.slow


def verify(source: Side, target: Side, range_records: int = 2) -> list[RangeRow]:
    settings = settings_of(source, target)

    async def run() -> list[RangeRow]:
        return [row async for row in verify_copies(settings.source, settings.target, re.compile(".*"), range_records)]

    return asyncio.run(run())


def test_equal_sides_are_right(source: Side, target: Side) -> None:
    source.create("t")
    source.send("t", "1", "2", "3")
    source.transact("t", "aborted", commit=False)
    mirror(source, target)
    source.transact("t", "4", "5")
    mirror(source, target)
    rows = verify(source, target)
    assert [(row.source_first, row.source_end, row.source_records, row.target_records) for row in rows] == [
        (0, 2, 2, 2),
        (2, 6, 2, 2),
        (6, 7, 1, 1),
    ]
    assert all(row.is_right and row.source_checksum == row.target_checksum for row in rows)


def test_what_either_side_has_deleted_is_past_comparing(source: Side, target: Side) -> None:
    source.create("t")
    source.send("t", "1", "2", "3", "4", "5", "6")
    mirror(source, target)
    delete_records(source.client, {TopicPartition(TopicName("t"), 0): 1})
    delete_records(target.client, {TopicPartition(TopicName("a.t"), 0): 3})
    assert [(row.source_first, row.source_end, row.is_right) for row in verify(source, target)] == [
        (3, 5, True),
        (5, 6, True),
    ]


def test_a_difference_is_named(source: Side, target: Side) -> None:
    source.create("t")
    source.send("t", "1", "2", "3", "4")
    mirror(source, target)
    from oncelog.admin.topics import delete_topics

    delete_topics(target.client, ["a.t"])
    target.create("a.t")
    target.send("a.t", "1", "2", "other", "4")
    rows = verify(source, target, 10)
    assert [(row.is_right, row.first_difference) for row in rows] == [(False, 0)], "times differ as well"
