"""Faults between a broker and the coordination tree: cut or slow paths, lost answers, sessions that end."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from oncelog.sim.faults.brokers import slower
from oncelog.sim.faults.fault import Fault, Kind, broker_of
from oncelog.sim.faults.network import cut
from oncelog.sim.virtual.tree_session import TREE
from oncelog.sim.virtual.world import World


async def _tree_cut(world: World, fault: Fault) -> None:
    """One direction of a broker's path to the tree is cut: its commits do not arrive, or their answers do not."""
    name = broker_of(world, fault).name
    source, target = (name, TREE) if fault.choice & 1 else (TREE, name)
    await cut(world, fault, source, target)


async def _tree_slow(world: World, fault: Fault) -> None:
    """A broker's path to the tree is slow: commits take up to ten seconds, and heartbeats may come too late."""
    most_us = 1_000 * (1_000 + fault.choice % 9_000)
    await slower(world, fault, metadata_us=(most_us // 2, most_us))


async def _lost_commit_answer(world: World, fault: Fault) -> None:
    """The connection breaks at the next request: after the tree has carried it out, or before."""
    session = broker_of(world, fault).session
    if session is not None:
        session.lose_next_answer(done=bool(fault.choice & 1))


async def _session_expires(world: World, fault: Fault) -> None:
    """The tree ends a broker's session; the broker learns of it when it asks for something next."""
    session = broker_of(world, fault).session
    if session is not None:
        session.expire()


TREE_PATHS: Final[Mapping[str, Kind]] = {
    "lost-commit-answer": _lost_commit_answer,
    "session-expires": _session_expires,
    "tree-cut": _tree_cut,
    "tree-slow": _tree_slow,
}
