"""Faults of paths: between clients and brokers, between brokers, and from a broker to the coordination tree."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from oncelog.sim.faults.brokers import slower
from oncelog.sim.faults.fault import Fault, Kind, broker_of, client_of, cut, other_brokers, span
from oncelog.sim.virtual.network.conditions import ANY_HOST, NetworkConditions
from oncelog.sim.virtual.tree_session import TREE
from oncelog.sim.virtual.world import World


async def _kill_client(world: World, fault: Fault) -> None:
    # kill -9 of a client. The broker may or may not notice.
    host = client_of(world, fault)
    if host is not None:
        host.kill(silent=bool(fault.choice & 1))


async def _reset(world: World, fault: Fault) -> None:
    # All connections of a client break. Its last bytes may or may not arrive.
    host = client_of(world, fault)
    if host is not None:
        for connection in world.network.connections_of(host.name):
            connection.reset(deliver=bool(fault.choice & 1))


async def _cut_up(world: World, fault: Fault) -> None:
    # Hold back all traffic from a client to the brokers: it times out and reconnects, and later everything arrives.
    host = client_of(world, fault)
    if host is not None:
        await cut(world, fault, (host.name, ANY_HOST))


async def _cut_down(world: World, fault: Fault) -> None:
    # Hold back all traffic from the brokers to a client: requests take effect without the client knowing.
    host = client_of(world, fault)
    if host is not None:
        await cut(world, fault, (ANY_HOST, host.name))


async def _hold_connection(world: World, fault: Fault) -> None:
    # One connection of a client holds back its bytes, others do not: its requests arrive much later.
    host = client_of(world, fault)
    connections = [] if host is None else world.network.connections_of(host.name)
    if connections:
        connection = connections[fault.choice // 7 % len(connections)]
        connection.up.cut(fault.kind)
        await span(fault)
        connection.up.heal(fault.kind)


async def _lossy_network(world: World, fault: Fault) -> None:
    # Packets are lost and retransmitted, with delays of 200 ms and more.
    most_us, lost = 1_000 + fault.choice % 100_000, 0.02 + fault.choice % 20 / 100
    world.network.conditions = NetworkConditions(100, most_us, lost=lost)
    await span(fault)
    world.network.conditions = world.network.usual


async def _repeated_requests(world: World, fault: Fault) -> None:
    # Requests that are safe to repeat arrive a second time, later, on another connection.
    world.network.conditions = replace(world.network.conditions, repeated=0.05 + fault.choice % 30 / 100)
    await span(fault)
    world.network.conditions = world.network.usual


async def _cut_between_brokers(world: World, fault: Fault) -> None:
    # Hold back all traffic from one broker to another; the other direction works.
    source = broker_of(world, fault)
    others = other_brokers(world, source)
    if others:
        await cut(world, fault, (source.name, others[fault.choice % len(others)].name))


CLIENTS: Final[Mapping[str, Kind]] = {
    "cut-down": _cut_down,
    "cut-up": _cut_up,
    "hold-connection": _hold_connection,
    "kill-client": _kill_client,
    "lossy-network": _lossy_network,
    "repeated-requests": _repeated_requests,
    "reset": _reset,
}
BETWEEN_BROKERS: Final[Mapping[str, Kind]] = {"broker-cut": _cut_between_brokers}


async def _tree_cut(world: World, fault: Fault) -> None:
    # One direction of a broker's path to the tree is cut: commits, or their responses, do not arrive.
    name = broker_of(world, fault).name
    await cut(world, fault, (name, TREE) if fault.choice & 1 else (TREE, name))


async def _tree_slow(world: World, fault: Fault) -> None:
    # A broker's path to the tree is slow: commits take up to ten seconds, and heartbeats may be late.
    most_us = 1_000 * (1_000 + fault.choice % 9_000)
    await slower(world, fault, metadata_us=(most_us // 2, most_us))


async def _lost_commit_answer(world: World, fault: Fault) -> None:
    # The tree connection breaks at the next request, before or after the tree has executed it.
    session = broker_of(world, fault).session
    if session is not None:
        session.lose_next_answer(done=bool(fault.choice & 1))


async def _session_expires(world: World, fault: Fault) -> None:
    # The tree expires a broker's session. The broker learns of it with its next request.
    session = broker_of(world, fault).session
    if session is not None:
        session.expire()


TREE_PATHS: Final[Mapping[str, Kind]] = {
    "lost-commit-answer": _lost_commit_answer,
    "session-expires": _session_expires,
    "tree-cut": _tree_cut,
    "tree-slow": _tree_slow,
}
