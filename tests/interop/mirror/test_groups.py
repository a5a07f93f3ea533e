"""Groups move over: their offsets at the target are exactly the records they had not read at the source."""

from __future__ import annotations

import asyncio
import re

import pytest

from oncelog.client.blocking import GroupConsumer
from oncelog.mirror.progress import GroupState
from oncelog.mirror.translation import translate
from tests.interop.mirror.conftest import Side, mirror, settings_of

pytestmark = pytest.mark.slow


def test_every_offset_translates_to_what_is_left_to_read(source: Side, target: Side) -> None:
    """At records, markers, aborted records, in between mirrored transactions, and at the end."""
    source.create("t")
    source.send("t", "1", "2")
    mirror(source, target)
    source.transact("t", "3", "4")
    source.transact("t", "aborted", commit=False)
    source.send("t", "5")
    mirror(source, target)
    source.transact("t", "6", "7", commit=True)
    end = 11
    for offset in range(end + 1):
        source.commit(f"g{offset}", "t", offset)
    engine = mirror(source, target)
    assert {row.state for row in engine.progress.groups} == {GroupState.synced}
    for offset in range(end + 1):
        committed = target.committed(f"g{offset}", "a.t")
        assert committed is not None
        assert target.values("a.t", start=committed) == source.values("t", start=offset), offset


def test_an_offset_that_is_not_copied_yet_waits(source: Side, target: Side) -> None:
    source.create("t")
    source.send("t", "1")
    mirror(source, target)
    source.send("t", "2", "3")
    source.commit("g", "t", 2)
    rows = run_translate(source, target)
    assert [(row.state, row.translated) for row in rows] == [(GroupState.ahead, None)]
    mirror(source, target)
    assert target.values("a.t", start=target.committed("g", "a.t")) == ["3"]


def test_a_group_that_goes_on_at_the_target_is_never_taken_back(source: Side, target: Side) -> None:
    source.create("t")
    source.send("t", "1", "2", "3", "4")
    source.commit("g", "t", 1)
    source.commit("h", "t", 1)
    mirror(source, target)
    target.commit("g", "a.t", 3)
    source.commit("g", "t", 2)
    source.commit("h", "t", 2)
    rows = {row.group: row.state for row in mirror(source, target).progress.groups}
    assert rows == {"g": GroupState.moved_on, "h": GroupState.synced}
    assert target.committed("g", "a.t") == 3
    assert target.values("a.t", start=target.committed("h", "a.t")) == ["3", "4"]


def test_a_group_with_members_at_the_target_is_left_alone(source: Side, target: Side) -> None:
    source.create("t")
    source.send("t", "1", "2", "3")
    source.commit("g", "t", 1)
    mirror(source, target)
    before = target.committed("g", "a.t")
    source.commit("g", "t", 2)
    with GroupConsumer(target.client, "g", ["a.t"]) as consumer:
        assert consumer.poll()
        assert [row.state for row in mirror(source, target).progress.groups] == [GroupState.taken]
        assert target.committed("g", "a.t") == before


def test_groups_return_by_the_same_map(source: Side, target: Side) -> None:
    source.create("t")
    source.send("t", "1", "2")
    source.transact("t", "aborted", commit=False)
    source.send("t", "3", "4", "5")
    source.commit("g", "t", 1)
    mirror(source, target)
    read = target.records("a.t", start=target.committed("g", "a.t"))
    assert read[2].value == b"4"
    target.commit("g", "a.t", read[2].offset)
    assert [row.state for row in run_translate(source, target, back=True)] == [GroupState.movable]
    run_translate(source, target, back=True, apply=True)
    assert source.values("t", start=source.committed("g", "t")) == ["4", "5"]
    target.commit("g", "a.t", 1)
    assert [row.state for row in run_translate(source, target, back=True)] == [GroupState.moved_on]


def run_translate(source: Side, target: Side, *, back: bool = False, apply: bool = False) -> list:
    settings = settings_of(source, target)
    return asyncio.run(
        translate(settings.source, settings.target, re.compile(".*"), back=back, apply=apply, force=False)
    )
