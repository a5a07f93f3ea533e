"""The replica machines keep R1, R2 and R6 in small worlds: all of the smallest, and long random paths through others.

``python -m tests.property.replication.test_replica_model RECORDS ELECTIONS CRASHES POWER_CUTS CHANGES LOST_ANSWERS``
explores all of a world of three brokers, for as long as it takes.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable

import pytest

from oncelog.core.replicas.leader import LeaderReplicas
from tests.property.replication import replica_model
from tests.property.replication.replica_model import Bounds, Violation, explore, walk

WIDE = Bounds(records=3, elections=2, crashes=2, power_cuts=1, changes=4, lost_answers=1)


@pytest.mark.slow
def test_every_interleaving_of_two_brokers_and_two_records() -> None:
    assert explore(Bounds(2, 1, 0, 1, 1, 0, brokers=2)) > 10_000


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
    monkeypatch.setattr(replica_model, "has_synced", lambda _broker: True)


def _keeps_what_its_leader_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replica_model, "diverges", lambda *_: False)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mutant", "first_seed", "rule"),
    [
        (_committed_only, 1, "R6"),
        (_asks_before_it_has_synced, 0, "R6"),
        (_keeps_what_its_leader_lacks, 20, "R2"),
    ],
)
def test_known_bugs_are_found(
    mutant: Callable[[pytest.MonkeyPatch], None], first_seed: int, rule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """KIP-497's maximal set; acknowledged on too few disks and a power cut of all; KIP-101."""
    mutant(monkeypatch)
    with pytest.raises(Violation, match=rule):  # noqa: PT012 - one of these seeds
        for seed in range(first_seed, first_seed + 40):
            walk(WIDE, random.Random(seed))


if __name__ == "__main__":
    print(explore(Bounds(*map(int, sys.argv[1:]))), "states, no violation")
