"""Faults that wait for the moment at which replication is weakest: a member joins, or a leader is ahead of all others.

By chance alone these moments are rare: a set grows, and its leader learns of it, within milliseconds.
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
    broker_of,
    come_back,
    cut_off,
    end_txn_answered,
    image_of,
    others_than,
    span,
    take_down,
    under_conditions,
)
from oncelog.sim.virtual.broker_host import BrokerHost
from oncelog.sim.virtual.network.conditions import NetworkConditions
from oncelog.sim.virtual.tree_session import HEARTBEATS, TREE
from oncelog.sim.virtual.world import World

LONGEST_WAIT_S: Final = 15.0
"""The longest wait for a member to join, or for another leader."""
_STEP_MS: Final = 20


class _Join(NamedTuple):
    """Replicas that have joined an in-sync set, and its leader."""

    leader: BrokerId
    joined: frozenset[BrokerId]


async def _next_join(world: World, among: frozenset[int]) -> _Join | None:
    """Wait for a set that one of ``among`` joins; None when none does for long."""
    tree = world.tree.tree
    session = tree.session()
    known = {
        node.path: layout.read_state(node.path, node.value, node.version)
        for node in session.subtree(layout.TOPICS)
        if node.path.endswith("/state")
    }
    found: asyncio.Future[_Join] = asyncio.get_running_loop().create_future()

    def changed(change: CommittedChange) -> None:
        for path, value, version in change.changes:
            if not path.startswith(layout.TOPICS) or not path.endswith("/state") or value is None:
                continue
            state = layout.read_state(path, value, version)
            before, known[path] = known.get(path), state
            joined = frozenset(state.isr) - frozenset(state.isr if before is None else before.isr)
            if before is not None and before.leader_epoch == state.leader_epoch and joined & among:
                world.kernel.soon(_resolve, found, _Join(state.leader, joined))

    session.follow(session.position(), changed)
    try:
        async with asyncio.timeout(LONGEST_WAIT_S):
            return await found
    except TimeoutError:
        return None
    finally:
        session.close()


def _resolve(found: asyncio.Future[_Join], join: _Join) -> None:
    if not found.done():
        found.set_result(join)


async def _killed_ahead(world: World, fault: Fault) -> None:
    """A broker is cut off from the others while clients still write to it, and dies before anybody takes it out of the
    in-sync sets: it comes back with records that nobody else has (KIP-101)."""
    broker = await _cut_and_ended(world, fault, BrokerHost.kill if fault.choice & 1 else BrokerHost.lose_power)
    if broker is not None:
        await span(fault)
        come_back(broker)


async def _returns_ahead(world: World, fault: Fault) -> None:
    """The same, while the others copy from each other slowly: it finds a leader whose log is longer than its own and
    parts from it above the high watermark; and it stands still in the instant in which it is in sync."""
    broker = await _cut_and_ended(world, fault, BrokerHost.kill)
    if broker is None:
        return
    pairs = list(permutations([other.name for other in others_than(world, broker)], 2))
    with under_conditions(world, pairs, NetworkConditions(300_000, 1_000_000)):
        await asyncio.sleep((100 + fault.choice % 1_500) / 1_000)  # not longer: the high watermark moves, if slowly
        come_back(broker)
        await _freeze_at_join(world, fault, broker)


async def _cut_and_ended(world: World, fault: Fault, end: Callable[[BrokerHost], None]) -> BrokerHost | None:
    """Cut a broker off from the others, end it, and end the cut; None if another fault has it. In half the cases what
    the others send arrives, and only the broker's answers do not."""
    broker = broker_of(world, fault)
    if broker.stays_down or not broker.is_up:
        return None
    others = [other.name for other in others_than(world, broker)]
    pairs = [(broker.name, other) for other in others]
    if fault.choice & 2:
        pairs += [(other, broker.name) for other in others]
    with cut_off(world, pairs):
        await asyncio.sleep((100 + fault.choice % 900) / 1_000)
        is_mine = take_down(broker, end)
    return broker if is_mine else None


async def _killed_in_turn(world: World, fault: Fault) -> None:
    """A leader dies while one follower has less of its records than the others, and so does that one when it has led
    for a moment, before the others have copied anything: of the epoch in which the next one leads they know nothing of
    its records, and it has more than it of the epoch before (KIP-279)."""
    first = broker_of(world, fault)
    others = others_than(world, first)
    second = others[fault.choice % len(others)]
    rest = [broker for broker in others if broker is not second]
    if not rest or any(broker.stays_down or not broker.is_up for broker in world.brokers):
        return
    pairs = [(first.name, second.name), *((second.name, broker.name) for broker in rest)]
    struck = []
    with cut_off(world, pairs):
        await asyncio.sleep((100 + fault.choice % 900) / 1_000)
        led = _led_by(world, first)
        for broker in (first, second):
            if not take_down(broker):
                break
            struck.append(broker)
            if broker is first:
                await _until_led(world, second, led)
                await asyncio.sleep((100 + fault.choice % 700) / 1_000)
    await span(fault)
    for broker in struck:
        come_back(broker)


async def _until_led(world: World, broker: BrokerHost, partitions: frozenset[TopicPartition]) -> None:
    """Wait until a broker leads one of the partitions."""
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
    """A broker is killed and comes back, and stands still in the instant in which it is in sync again."""
    broker = await _killed(world, fault)
    if broker is None:
        return
    await _freeze_at_join(world, fault, broker)


async def _freeze_at_join(world: World, fault: Fault, broker: BrokerHost) -> None:
    if await _next_join(world, frozenset({broker.broker_id})) is not None:
        broker.freeze()
        await asyncio.sleep((200 + fault.choice % 4_000) / 1_000)
        broker.thaw()


async def _join_unheard(world: World, fault: Fault) -> None:
    """A broker is killed and comes back; when it is in sync again, nobody tells the leader, who does not know whether
    its commit was carried out, and the broker copies slowly."""
    broker = await _killed(world, fault)
    if broker is None:
        return
    join = await _next_join(world, frozenset({broker.broker_id}))
    if join is None:
        return
    leader = world.brokers[join.leader - 1].name
    slow = under_conditions(world, [(leader, broker.name)], NetworkConditions(500_000, 1_500_000))
    with slow, cut_off(world, [(TREE, leader)]):
        await asyncio.sleep((world.tree.timeout_ms or 0) / HEARTBEATS / 1_000 + (200 + fault.choice % 4_000) / 1_000)


async def _killed_before_marker(world: World, fault: Fault) -> None:
    """A broker is killed while another, which has just answered EndTxn, sends the markers: those for the partitions
    that it leads arrive, or do not, or are not replicated."""
    broker = broker_of(world, fault)
    others = [other for other in others_than(world, broker) if other.records.answer_kill is None]
    if not await end_txn_answered(others, lambda: None):
        return
    await asyncio.sleep(fault.choice % 5_000 / 1_000_000)
    await _killed(world, fault)


async def _killed(world: World, fault: Fault) -> BrokerHost | None:
    """Kill a broker for the span; None if another fault has it."""
    broker = broker_of(world, fault)
    if not take_down(broker):
        return None
    await span(fault)
    come_back(broker)
    return broker


REPLICAS: Final[Mapping[str, Kind]] = {
    "killed-before-marker": _killed_before_marker,
    "join-unheard": _join_unheard,
    "joiner-frozen": _joiner_frozen,
    "killed-ahead": _killed_ahead,
    "returns-ahead": _returns_ahead,
}
KILLED_IN_TURN: Final[Mapping[str, Kind]] = {"killed-in-turn": _killed_in_turn}
"""No seed draws it: it is asked for by name."""
