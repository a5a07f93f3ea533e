"""Every interleaving of a leader that answers from memory, a follower that replaces it, and the tree between them.

An answer is old if the follower had acted as leader before the request came. docs/internals/leadership-proofs.md has
the argument. Leases are not used: they rely on the clock of a broker that may stand still.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

import pytest

LEASE: Final = 2
LAST_TICK: Final = 3
_NEVER: Final = -1


class World(NamedTuple):
    """Epoch 0 is the leader's, epoch 1 the follower's. Clocks count ticks."""

    tree: int = 0
    leader_image: int = 0
    follower_image: int = 0
    acted: bool = False
    """The follower has acknowledged something in epoch 1."""
    asked: bool = False
    acted_before: bool = False
    """It had when the request came."""
    frozen: bool = False
    leader_clock: int = 0
    follower_clock: int = 0
    position: int = _NEVER
    """As read by the leader since the request."""
    member_asked: bool = False
    member_epoch: int = _NEVER
    """In the answer on its way to the leader."""
    answered_fetch: int = 0
    """The leader's clock when it sent the last answer to a fetch."""
    fetching: bool = False
    lease_end: int = 0
    promise_end: int = 0


Steps = Iterator[tuple[str, World]]


def _around(world: World, *, clocks_stand_still: bool, awaits_promise: bool) -> Steps:
    """All but the proof."""
    if world.tree == 0:
        yield "elected", world._replace(tree=1)
    if world.follower_image < world.tree:
        yield "follower hears", world._replace(follower_image=1)
    if world.leader_image < world.tree and not world.frozen:
        yield "leader hears", world._replace(leader_image=1)
    waits = awaits_promise and world.follower_clock < world.promise_end
    if world.follower_image == 1 and not world.acted and not waits:
        yield "follower acts", world._replace(acted=True)
    if not world.asked:
        yield "request", world._replace(asked=True, acted_before=world.acted)
    yield ("thaw" if world.frozen else "freeze"), world._replace(frozen=not world.frozen)
    if world.follower_clock < LAST_TICK:
        stands = world.frozen and clocks_stand_still
        clock = world.leader_clock + (not stands)
        yield "tick", world._replace(follower_clock=world.follower_clock + 1, leader_clock=clock)


class Proof(NamedTuple):
    leader: Callable[[World], Steps]
    """Its steps while it is not frozen."""
    follower: Callable[[World], Steps]
    has_promises: bool = False


def _by_position(world: World) -> Steps:
    if world.asked and world.position == _NEVER:
        yield "read position", world._replace(position=world.tree)
    if world.position != _NEVER and world.leader_image >= world.position and world.leader_image == 0:
        yield "answer", world


def _by_member(world: World) -> Steps:
    if world.asked and not world.member_asked:
        yield "ask follower", world._replace(member_asked=True)
    if world.member_epoch == 0 and world.leader_image == 0:
        yield "answer", world


def _by_lease(world: World) -> Steps:
    if world.fetching:
        clock = world.leader_clock
        yield (
            "fetch arrives",
            world._replace(fetching=False, lease_end=world.answered_fetch + LEASE, answered_fetch=clock),
        )
    if world.asked and world.leader_image == 0 and world.leader_clock < world.lease_end:
        yield "answer", world


def _member(world: World) -> Steps:
    if world.member_asked and world.member_epoch == _NEVER:
        yield "follower answers", world._replace(member_epoch=world.follower_image)


def _promising(world: World) -> Steps:
    if not world.fetching and world.follower_image == 0:
        yield "fetch", world._replace(fetching=True, promise_end=world.follower_clock + LEASE)


POSITION: Final = Proof(_by_position, lambda _world: iter(()))
MEMBERS: Final = Proof(_by_member, _member)
LEASES: Final = Proof(_by_lease, _promising, has_promises=True)


def old_answer(proof: Proof, *, clocks_stand_still: bool) -> list[str] | None:
    """The shortest way to an old answer."""
    first = World()
    seen, frontier = {first}, [(first, ["begin"])]
    while frontier:
        following = []
        for world, path in frontier:
            steps = [*_around(world, clocks_stand_still=clocks_stand_still, awaits_promise=proof.has_promises)]
            steps += [] if world.frozen else proof.leader(world)
            for name, after in (*steps, *proof.follower(world)):
                if name == "answer" and after.acted_before:
                    return [*path[1:], name]
                if after not in seen:
                    seen.add(after)
                    following.append((after, [*path, name]))
        frontier = following
    return None


@pytest.mark.parametrize("clocks_stand_still", [False, True])
@pytest.mark.parametrize("proof", [POSITION, MEMBERS])
def test_positions_and_members_prove_whatever_the_clocks_do(proof: Proof, clocks_stand_still: bool) -> None:
    assert old_answer(proof, clocks_stand_still=clocks_stand_still) is None


def test_a_lease_holds_while_clocks_run_on_and_not_where_one_stands_still() -> None:
    assert old_answer(LEASES, clocks_stand_still=False) is None
    path = old_answer(LEASES, clocks_stand_still=True)
    assert path is not None
    assert {"fetch arrives", "freeze", "tick", "follower acts", "thaw", "answer"} <= set(path)
