"""The replica machines keep R1 to R6 in small worlds: all of the smallest, and long random paths through others.

``python -m tests.property.replication.test_interleavings RECORDS ELECTIONS CRASHES POWER_CUTS CHANGES LOST_ANSWERS``
explores all of a world of three brokers, for as long as it takes: ``3 2 0 1 0 0`` has 1.2 million states.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable

import pytest

from oncelog.core.replicas.leader import LeaderReplicas
from tests.property.replication import steps, world
from tests.property.replication.exploration import explore, walk
from tests.property.replication.world import Bounds, Violation

WIDE = Bounds(records=3, elections=2, crashes=2, power_cuts=1, changes=4, lost_answers=1)


@pytest.mark.slow
@pytest.mark.parametrize("min_isr", [1, 2])
@pytest.mark.parametrize(("records", "states"), [(2, 10_000), pytest.param(3, 30_000, marks=pytest.mark.long)])
def test_every_interleaving_of_two_brokers(min_isr: int, records: int, states: int) -> None:
    """Two elections, a power cut of all, a change of the in-sync set."""
    assert explore(Bounds(records, 2, 0, 1, 1, 0, min_isr, brokers=2)) > states


@pytest.mark.slow
@pytest.mark.long
def test_every_interleaving_of_three_brokers_and_two_records() -> None:
    assert explore(Bounds(2, 1, 0, 1, 0, 0)) > 100_000


@pytest.mark.slow
@pytest.mark.long
def test_every_interleaving_of_three_brokers_three_records_two_elections_and_a_power_cut_of_all() -> None:
    assert explore(Bounds(3, 2, 0, 1, 0, 0)) > 1_000_000


@pytest.mark.slow
@pytest.mark.parametrize(("min_isr", "count"), [(1, 80), (2, 40)])
def test_random_paths_through_three_brokers(min_isr: int, count: int) -> None:
    first = random.randrange(1 << 30)
    for seed in range(first, first + count):
        try:
            walk(WIDE._replace(min_isr=min_isr), random.Random(seed))
        except Violation as violation:
            pytest.fail(f"{violation}\nagain: walk(WIDE._replace(min_isr={min_isr}), random.Random({seed}))")


def _committed_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LeaderReplicas, "_maximal", lambda self: self.in_sync)


def _asks_before_it_has_synced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps, "synced", lambda follower: follower)


def _keeps_what_its_leader_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps, "diverges", lambda *_: False)


def _leads_again_in_its_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(world, "leads", lambda state, index, _: state.leader == world.IDS[index])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mutant", "bounds", "rule"),
    [
        (_committed_only, Bounds(1, 1, 1, 0, 2, 0), "R6"),
        (_asks_before_it_has_synced, Bounds(1, 1, 0, 1, 0, 0), "R6"),
        (_keeps_what_its_leader_lacks, Bounds(2, 1, 0, 1, 0, 0, brokers=2), "R6"),
        (_leads_again_in_its_epoch, Bounds(2, 1, 0, 1, 0, 0), "R2"),
    ],
)
def test_known_bugs_are_found(
    mutant: Callable[[pytest.MonkeyPatch], None], bounds: Bounds, rule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """KIP-497; acknowledged on too few disks and a power cut of all; KIP-101; the epoch of an earlier life."""
    mutant(monkeypatch)
    with pytest.raises(Violation, match=rule):
        explore(bounds)


if __name__ == "__main__":
    print(explore(Bounds(*map(int, sys.argv[1:]))), "states, no violation")
