"""Consumers that balance through ZooKeeper, in the simulator: the rules of ``zookeeper_groups.world`` hold, and a
consumer that lacks one of its own is found out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from oncelog.legacy.zookeeper_groups.group_nodes import GroupNodes
from oncelog.legacy.zookeeper_groups.machine import member
from oncelog.legacy.zookeeper_groups.machine.member import MemberState, ZooKeeperMember
from oncelog.legacy.zookeeper_groups.machine.steps import Release
from tests.simulation.zookeeper_groups import Story, Violation, run

WILD = Story()
ORDERLY = Story(deaths=False, freezes=False, cuts=False, java=False)
WITH_JAVA = Story(freezes=False, cuts=False)
STORIES = pytest.mark.parametrize("story", [WILD, ORDERLY, WITH_JAVA], ids=["wild", "orderly", "with-java"])


@STORIES
def test_every_partition_has_one_reader_and_no_offset_goes_back(story: Story) -> None:
    told = run(5, story)
    assert told.consumers > 1
    assert told.read > 0


@pytest.mark.slow
@STORIES
@pytest.mark.parametrize("seed", range(100, 108))
def test_more_seeds(seed: int, story: Story) -> None:
    run(seed, story)


def test_the_same_seed_is_the_same_run() -> None:
    assert run(2, Story(length_ms=5_000)) == run(2, Story(length_ms=5_000))


def _without_a_lease(self: ZooKeeperMember, now_ms: int) -> bool:
    return self.state in member._DELIVERING


def _without_a_commit(self: ZooKeeperMember, now_ms: int) -> Release:
    self.state = MemberState.RELEASING
    return Release(self.owners)


def _play(seeds: range, story: Story) -> None:
    for seed in seeds:
        run(seed, story)


def _nothing(*_: Any) -> None:
    return


@pytest.mark.slow
@pytest.mark.parametrize(
    ("where", "name", "broken", "story", "rule"),
    [
        (ZooKeeperMember, "may_deliver", _without_a_lease, WILD, "Z1"),
        (ZooKeeperMember, "changed", _nothing, WILD, "Z3"),
        (ZooKeeperMember, "_commit_step", _without_a_commit, ORDERLY, "Z5"),
        (GroupNodes, "release", _nothing, WILD, "Z"),
    ],
    ids=["no-lease", "no-watches", "no-commit", "no-release"],
)
def test_a_broken_consumer_is_found_out(
    where: type, name: str, broken: Callable[..., Any], story: Story, rule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(where, name, broken)
    with pytest.raises(Violation, match=rule):
        _play(range(30), story)
