"""Every interleaving of a small world of replicas, explored, and random paths through larger ones.

Checked, by the invariants of a cluster: R1 nothing that was acknowledged is missing from a leader of a later epoch · R2
(epoch, offset) names the same record everywhere · R3 one broker appends in an epoch · R4 who may be elected and runs
has all below any high watermark · R5 whoever is elected was in sync, or eligible, before · R6 all below any high
watermark is on the disk of every member of the committed in-sync set.
"""

from __future__ import annotations

import random
from itertools import combinations
from typing import NamedTuple

from tests.property.replication.steps import steps
from tests.property.replication.world import Bounds, Violation, World, begin


def check(world: World) -> None:
    """R2, R4 and R6; R1, R3 and R5 are checked where they could break."""
    logs = {broker.log for broker in world.brokers}
    for one, other in combinations(logs, 2):
        for offset, (mine, theirs) in enumerate(zip(one, other, strict=False)):
            if mine[0] == theirs[0] and one[: offset + 1] != other[: offset + 1]:
                raise Violation(f"R2 {one} and {other} part before offset {offset}")
    state, told = world.journal[-1], len(world.committed)
    for member in (*state.isr, *state.elr):
        broker = world.brokers[member - 1]
        if member in state.isr and broker.log[: broker.synced][:told] != world.committed:
            raise Violation(f"R6 broker {member} is in sync and lacks some of {world.committed}: {broker}")
        if broker.up and broker.log[:told] != world.committed:
            raise Violation(f"R4 broker {member} may be elected and lacks some of {world.committed}: {broker}")


class Path(NamedTuple):
    """The steps that lead to a world, the last one first."""

    step: str
    before: Path | None

    def __str__(self) -> str:
        return f"{self.before}, {self.step}" if self.before else self.step


def explore(bounds: Bounds) -> int:
    """Explore every world that can be reached; their number. Raises Violation with the steps that lead there.

    Worlds that have been seen are remembered by their hashes of 64 bits.
    """
    first = begin(bounds)
    seen = {hash(first)}
    frontier: list[tuple[World, Path | None]] = [(first, None)]
    while frontier:
        following: list[tuple[World, Path | None]] = []
        for world, path in frontier:
            name = "?"
            try:
                for name, after in steps(world):
                    if (digest := hash(after)) not in seen:
                        seen.add(digest)
                        check(after)
                        following.append((after, Path(name, path)))
            except Violation as violation:
                raise Violation(f"{violation}\n  after {path}, then after {name}") from None
        frontier = following
    return len(seen)


def walk(bounds: Bounds, entropy: random.Random, length: int = 60) -> None:
    """One random path through a world. Raises Violation with the steps that lead there."""
    world, names = begin(bounds), []
    try:
        for _ in range(length):
            following = list(steps(world))
            if not following:
                break
            name, world = entropy.choice(following)
            names.append(name)
            check(world)
    except Violation as violation:
        raise Violation(f"{violation}\n  after {', '.join(names)}") from None
