"""A fault in which a follower's fetch arrives two elections after it was sent, at the leader it was sent to.

Seeds do not draw it by themselves: it is there for those who ask for it by name.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from oncelog.base.ids import BrokerId, TopicPartition
from oncelog.client.errors import ClientError
from oncelog.core.controller.image.model import PartitionImage
from oncelog.sim.faults.fault import Fault, Kind, broker_of, come_back, image_of, others_than, span, take_down
from oncelog.sim.virtual.broker_host import BrokerHost
from oncelog.sim.virtual.world import ClientHost, World
from oncelog.sim.workloads.kit.requests import elect_preferred

LONGEST_WAIT_S: Final = 10
"""The longest wait for an election, or until a broker is in sync again."""
_STEP_MS: Final = 20
_DOWN_MS: Final = 300
_HEARD_MS: Final = 50
"""The time in which brokers hear of an election, and a follower truncates."""

_ALONE_MS: Final = 1_000
"""The time in which the follower copies nothing; a shorter one than it may lag."""


class _Parts(NamedTuple):
    """The parts that brokers play: the preferred replica, the leader in its place, and the follower of both."""

    preferred: BrokerHost
    leader: BrokerHost
    follower: BrokerHost

    def suit(self, image: PartitionImage) -> bool:
        """True if a partition has the three as its replicas, all in sync, and this leader."""
        ids = [broker.broker_id for broker in self]
        return image.replicas[0] == ids[0] and image.leader == ids[1] and set(image.isr) == set(ids)


async def _held_fetch(world: World, fault: Fault) -> None:
    """A follower's fetch is held on its way to the leader, and what the leader sends the preferred replica. That one
    is elected, so that the follower truncates, and the leader, which hears nothing from it, does not; then it dies, and
    the leader leads again. Now it gets the fetch from before, of an offset that the follower does not reach any more
    (KAFKA-6880), nor for a moment yet: the answer is held."""
    preferred = broker_of(world, fault)
    others = others_than(world, preferred)
    leader = others[fault.choice % len(others)]
    rest = [broker for broker in others if broker is not leader]
    if not rest or _is_disturbed(world):
        return
    parts = _Parts(preferred, leader, rest[fault.choice // 8 % len(rest)])
    if not _suiting(world, parts):
        take_down(preferred)  # another leads in its place, until somebody asks for an election
        await asyncio.sleep(_DOWN_MS / 1_000)
        come_back(preferred)
        await _until(lambda: bool(_suiting(world, parts)))
    partitions = _suiting(world, parts)
    if not partitions or _is_disturbed(world):
        return
    answers = parts.leader.name, parts.follower.name
    held = ((parts.leader.name, preferred.name), (parts.follower.name, parts.leader.name))
    for pair in held:
        world.network.cut(*pair)
    await asyncio.sleep((100 + fault.choice % 600) / 1_000)  # not longer: those who do not fetch leave the sets
    await world.on_host(f"elect@{world.kernel.now_us}", lambda host: _elect(host, partitions))
    await asyncio.sleep(_HEARD_MS / 1_000)
    if take_down(preferred):
        await _until(lambda: _leads_one(world, parts.leader, partitions))
        await asyncio.sleep(_HEARD_MS / 1_000)
        world.network.cut(*answers)
        for pair in held:
            world.network.heal(*pair)
        await asyncio.sleep(_ALONE_MS / 1_000)
        world.network.heal(*answers)
        await span(fault)
        come_back(preferred)
    for pair in held:
        world.network.heal(*pair)


def _is_disturbed(world: World) -> bool:
    """True while another fault of this kind is under way."""
    names = [broker.name for broker in world.brokers]
    return any(broker.stays_down or not broker.is_up for broker in world.brokers) or any(
        world.network.is_cut((name, other)) for name in names for other in names if name != other
    )


def _suiting(world: World, parts: _Parts) -> list[TopicPartition]:
    return [
        TopicPartition(topic.name, index)
        for topic in image_of(world).topics.values()
        for index, partition in enumerate(topic.partitions)
        if parts.suit(partition)
    ]


def _leads_one(world: World, broker: BrokerHost, partitions: list[TopicPartition]) -> bool:
    found = [image_of(world).partition(partition) for partition in partitions]
    return any(each is not None and each.leader == BrokerId(broker.broker_id) for each in found)


async def _until(is_so: Callable[[], bool]) -> None:
    """Wait until something is so, but not for ever."""
    for _ in range(LONGEST_WAIT_S * 1_000 // _STEP_MS):
        if is_so():
            return
        await asyncio.sleep(_STEP_MS / 1_000)


async def _elect(host: ClientHost, partitions: list[TopicPartition]) -> None:
    async with host.client() as client:
        for partition in partitions:
            try:
                await elect_preferred(client, partition)
            except ClientError:
                return  # nobody answers: it is another fault's turn


HELD_FETCHES: Final[Mapping[str, Kind]] = {"held-fetch": _held_fetch}
