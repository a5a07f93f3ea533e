"""Faults timed for the moments when replication is weakest: a replica joins, a leader is ahead of all others, or
markers are on their way. They last milliseconds: chance rarely hits them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from itertools import permutations
from typing import Final, NamedTuple

from oncelog.base.ids import BrokerId, TopicPartition
from oncelog.core.controller.image import layout
from oncelog.ports import CommittedChange
from oncelog.sim.faults.fault import (
    Fault,
    Kind,
    bring_back,
    broker_of,
    cut_off,
    end_txn_answered,
    image_of,
    other_brokers,
    span,
    take_down,
    under_conditions,
)
from oncelog.sim.virtual.broker_host import BrokerHost
from oncelog.sim.virtual.network.conditions import NetworkConditions
from oncelog.sim.virtual.tree_session import HEARTBEATS, TREE
from oncelog.sim.virtual.world import World

# The longest wait for a replica to join, or for another leader.
LONGEST_WAIT_S: Final = 15.0
_STEP_MS: Final = 20


class _Join(NamedTuple):
    leader: BrokerId
    joined: frozenset[BrokerId]


async def _next_join(world: World, among: frozenset[int]) -> _Join | None:
    """Wait until one of ``among`` joins an in-sync set. Returns None after a long wait."""
    tree = world.tree.tree
    session = tree.session()
    states = {
        node.path: layout.read_state(node.path, node.value, node.version)
        for node in session.subtree(layout.TOPICS)
        if node.path.endswith("/state")
    }
    join: asyncio.Future[_Join] = asyncio.get_running_loop().create_future()

    def changed(change: CommittedChange) -> None:
        for path, value, version in change.changes:
            if not path.startswith(layout.TOPICS) or not path.endswith("/state") or value is None:
                continue
            state = layout.read_state(path, value, version)
            previous, states[path] = states.get(path), state
            joined = frozenset(state.isr) - frozenset(state.isr if previous is None else previous.isr)
            if previous is not None and previous.leader_epoch == state.leader_epoch and joined & among:
                world.kernel.soon(_resolve, join, _Join(state.leader, joined))

    session.follow(session.position(), changed)
    try:
        async with asyncio.timeout(LONGEST_WAIT_S):
            return await join
    except TimeoutError:
        return None
    finally:
        session.close()


def _resolve(future: asyncio.Future[_Join], join: _Join) -> None:
    if not future.done():
        future.set_result(join)


async def _killed_ahead(world: World, fault: Fault) -> None:
    # A broker is cut off from the others, still gets writes, and dies before it leaves the in-sync sets.
    # It comes back with records that no other replica has (KIP-101).
    broker = await _cut_off_and_stop(world, fault, BrokerHost.kill if fault.choice & 1 else BrokerHost.lose_power)
    if broker is not None:
        await span(fault)
        bring_back(broker)


async def _returns_ahead(world: World, fault: Fault) -> None:
    # The same, while the others copy slowly, so that the broker's log diverges from a longer one.
    broker = await _cut_off_and_stop(world, fault, BrokerHost.kill)
    if broker is None:
        return
    # Its log diverges from that of its leader above the high watermark. It also freezes when it is in sync.
    pairs = list(permutations([other.name for other in other_brokers(world, broker)], 2))
    with under_conditions(world, pairs, NetworkConditions(300_000, 1_000_000)):
        await asyncio.sleep((100 + fault.choice % 1_500) / 1_000)  # not longer: the high watermark moves, if slowly
        bring_back(broker)
        await _freeze_at_join(world, fault, broker)


async def _cut_off_and_stop(world: World, fault: Fault, end: Callable[[BrokerHost], None]) -> BrokerHost | None:
    """Cut a broker off, stop it, and end the cut. None if another fault holds it."""
    broker = broker_of(world, fault)
    if broker.stays_down or not broker.is_up:
        return None
    others = [other.name for other in other_brokers(world, broker)]
    pairs = [(broker.name, other) for other in others]
    # Otherwise only the broker's own responses are lost.
    if fault.choice & 2:
        pairs += [(other, broker.name) for other in others]
    with cut_off(world, pairs):
        await asyncio.sleep((100 + fault.choice % 900) / 1_000)
        is_mine = take_down(broker, end)
    return broker if is_mine else None


async def _killed_in_turn(world: World, fault: Fault) -> None:
    """Two leaders die in turn, so that a follower misses a whole leader epoch (KIP-279).

    The first dies while one follower lags. The follower leads for a moment, and dies before the others have copied its
    records. The next leader does not know that epoch, and has less of the epoch before.
    """
    first = broker_of(world, fault)
    others = other_brokers(world, first)
    second = others[fault.choice % len(others)]
    remaining = [broker for broker in others if broker is not second]
    if not remaining or any(broker.stays_down or not broker.is_up for broker in world.brokers):
        return
    pairs = [(first.name, second.name), *((second.name, broker.name) for broker in remaining)]
    struck = []
    with cut_off(world, pairs):
        await asyncio.sleep((100 + fault.choice % 900) / 1_000)
        led = _led_by(world, first)
        for broker in (first, second):
            if not take_down(broker):
                break
            struck.append(broker)
            if broker is first:
                await _wait_until_leads(world, second, led)
                await asyncio.sleep((100 + fault.choice % 700) / 1_000)
    await span(fault)
    for broker in struck:
        bring_back(broker)


async def _wait_until_leads(world: World, broker: BrokerHost, partitions: frozenset[TopicPartition]) -> None:
    for _ in range(int(LONGEST_WAIT_S * 1_000) // _STEP_MS):
        if broker.is_up and partitions & _led_by(world, broker):
            return
        await asyncio.sleep(_STEP_MS / 1_000)


def _led_by(world: World, broker: BrokerHost) -> frozenset[TopicPartition]:
    image = image_of(world)
    return frozenset(
        TopicPartition(topic.name, index)
        for topic in image.topics.values()
        for index, partition in enumerate(topic.partitions)
        if partition.leader == broker.broker_id
    )


async def _joiner_frozen(world: World, fault: Fault) -> None:
    # A broker is killed, comes back, and freezes when it is in sync again.
    broker = await _kill_for_span(world, fault)
    if broker is None:
        return
    await _freeze_at_join(world, fault, broker)


async def _freeze_at_join(world: World, fault: Fault, broker: BrokerHost) -> None:
    if await _next_join(world, frozenset({broker.broker_id})) is not None:
        broker.freeze()
        await asyncio.sleep((200 + fault.choice % 4_000) / 1_000)
        broker.thaw()


async def _join_unheard(world: World, fault: Fault) -> None:
    # A broker is killed and comes back; when it joins the in-sync set, its leader does not learn of it.
    broker = await _kill_for_span(world, fault)
    if broker is None:
        return
    join = await _next_join(world, frozenset({broker.broker_id}))
    if join is None:
        return
    leader = world.brokers[join.leader - 1].name
    # The leader does not know whether its commit took effect, and the broker copies slowly.
    slow = under_conditions(world, [(leader, broker.name)], NetworkConditions(500_000, 1_500_000))
    with slow, cut_off(world, [(TREE, leader)]):
        await asyncio.sleep((world.tree.timeout_ms or 0) / HEARTBEATS / 1_000 + (200 + fault.choice % 4_000) / 1_000)


async def _killed_before_marker(world: World, fault: Fault) -> None:
    # A broker is killed while another sends it markers after an EndTxn response: they arrive, or do not, or are not
    # replicated.
    broker = broker_of(world, fault)
    others = [other for other in other_brokers(world, broker) if other.records.response_trigger is None]
    if not await end_txn_answered(others, lambda: None):
        return
    await asyncio.sleep(fault.choice % 5_000 / 1_000_000)
    await _kill_for_span(world, fault)


async def _kill_for_span(world: World, fault: Fault) -> BrokerHost | None:
    """None if another fault holds the broker."""
    broker = broker_of(world, fault)
    if not take_down(broker):
        return None
    await span(fault)
    bring_back(broker)
    return broker


REPLICAS: Final[Mapping[str, Kind]] = {
    "killed-before-marker": _killed_before_marker,
    "join-unheard": _join_unheard,
    "joiner-frozen": _joiner_frozen,
    "killed-ahead": _killed_ahead,
    "returns-ahead": _returns_ahead,
}
# Runs by name only: seeds do not draw it.
KILLED_IN_TURN: Final[Mapping[str, Kind]] = {"killed-in-turn": _killed_in_turn}
