"""A fault that delays a follower's fetch until its leader was replaced and elected again. It runs by name only."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from oncelog.base.ids import BrokerId, TopicPartition
from oncelog.client.errors import ClientError
from oncelog.core.controller.image.model import PartitionImage
from oncelog.sim.faults.fault import Fault, Kind, bring_back, broker_of, image_of, other_brokers, span, take_down
from oncelog.sim.virtual.broker_host import BrokerHost
from oncelog.sim.virtual.world import ClientHost, World
from oncelog.sim.workloads.kit.requests import elect_preferred

# The longest wait for an election, or for a broker to be in sync again.
LONGEST_WAIT_S: Final = 10
_STEP_MS: Final = 20
_DOWN_MS: Final = 300
# Enough time for brokers to learn of an election, and for a follower to truncate.
_ELECTION_MS: Final = 50

# The time without copying for the follower, shorter than the allowed lag.
_NO_COPY_MS: Final = 1_000


class _Roles(NamedTuple):
    """The preferred replica, the leader in its place, and the follower of both."""

    preferred: BrokerHost
    leader: BrokerHost
    follower: BrokerHost

    def match(self, image: PartitionImage) -> bool:
        ids = [broker.broker_id for broker in self]
        return image.replicas[0] == ids[0] and image.leader == ids[1] and set(image.isr) == set(ids)


async def _held_fetch(world: World, fault: Fault) -> None:
    """A fetch reaches a leader from before two elections (KAFKA-6880).

    The follower's fetch is held, and the leader's messages to the preferred replica. Its election follows: the follower
    truncates, the leader, which learns nothing, does not. The preferred replica dies, and the leader leads again and
    gets the old fetch, for an offset that the follower no longer reaches. The response is held, so that the follower
    copies nothing for a moment.
    """
    preferred = broker_of(world, fault)
    others = other_brokers(world, preferred)
    leader = others[fault.choice % len(others)]
    remaining = [broker for broker in others if broker is not leader]
    if not remaining or _is_busy(world):
        return
    roles = _Roles(preferred, leader, remaining[fault.choice // 8 % len(remaining)])
    if not _matching_partitions(world, roles):
        take_down(preferred)  # another broker leads until the preferred replica is elected
        await asyncio.sleep(_DOWN_MS / 1_000)
        bring_back(preferred)
        await _until(lambda: bool(_matching_partitions(world, roles)))
    partitions = _matching_partitions(world, roles)
    if not partitions or _is_busy(world):
        return
    responses = roles.leader.name, roles.follower.name
    cut_pairs = ((roles.leader.name, preferred.name), (roles.follower.name, roles.leader.name))
    for pair in cut_pairs:
        world.network.cut(*pair)
    await asyncio.sleep((100 + fault.choice % 600) / 1_000)  # not longer: replicas without fetches leave the sets
    await world.on_host(f"elect@{world.kernel.now_us}", lambda host: _elect(host, partitions))
    await asyncio.sleep(_ELECTION_MS / 1_000)
    if take_down(preferred):
        await _until(lambda: _leads_any(world, roles.leader, partitions))
        await asyncio.sleep(_ELECTION_MS / 1_000)
        world.network.cut(*responses)
        for pair in cut_pairs:
            world.network.heal(*pair)
        await asyncio.sleep(_NO_COPY_MS / 1_000)
        world.network.heal(*responses)
        await span(fault)
        bring_back(preferred)
    for pair in cut_pairs:
        world.network.heal(*pair)


def _is_busy(world: World) -> bool:
    names = [broker.name for broker in world.brokers]
    return any(broker.stays_down or not broker.is_up for broker in world.brokers) or any(
        world.network.is_cut((name, other)) for name in names for other in names if name != other
    )


def _matching_partitions(world: World, roles: _Roles) -> list[TopicPartition]:
    return [
        TopicPartition(topic.name, index)
        for topic in image_of(world).topics.values()
        for index, partition in enumerate(topic.partitions)
        if roles.match(partition)
    ]


def _leads_any(world: World, broker: BrokerHost, partitions: list[TopicPartition]) -> bool:
    images = [image_of(world).partition(partition) for partition in partitions]
    return any(image is not None and image.leader == BrokerId(broker.broker_id) for image in images)


async def _until(condition: Callable[[], bool]) -> None:
    for _ in range(LONGEST_WAIT_S * 1_000 // _STEP_MS):
        if condition():
            return
        await asyncio.sleep(_STEP_MS / 1_000)


async def _elect(host: ClientHost, partitions: list[TopicPartition]) -> None:
    async with host.client() as client:
        for partition in partitions:
            try:
                await elect_preferred(client, partition)
            except ClientError:
                return  # no broker responds: another fault is active


HELD_FETCHES: Final[Mapping[str, Kind]] = {"held-fetch": _held_fetch}
