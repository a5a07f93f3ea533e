"""A fault in which a broker is replaced without noticing, while a client keeps sending it requests.

It runs by name only: seeds do not draw it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial
from typing import Final

from oncelog.base.ids import BrokerId
from oncelog.client.errors import ClientError
from oncelog.sim.faults.fault import Fault, Kind, broker_of, cut_off, image_of
from oncelog.sim.virtual.broker_host import BrokerHost
from oncelog.sim.virtual.tree_session import TREE
from oncelog.sim.virtual.world import ClientHost, World
from oncelog.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic

# The time from the end of the broker's session until the broker notices.
REPLACED_S: Final = 8
_PAUSE_MS: Final = 200
_LATEST: Final = -1


async def _replaced_unheard(world: World, fault: Fault) -> None:
    # A broker and the tree cannot reach each other until long after its session has expired.
    # In half of the runs it is the first broker, which clients ask first for metadata. Clients and the other brokers
    # reach all brokers. A client polls the replaced one for the ends of its partitions.
    broker = world.brokers[0] if fault.choice & 1 else broker_of(world, fault)
    # Only one broker is replaced at a time.
    if any(world.network.is_cut((other.name, TREE)) for other in world.brokers):
        return
    with cut_off(world, [(broker.name, TREE), (TREE, broker.name)]):
        client = asyncio.create_task(world.on_host(f"ends@{world.kernel.now_us}", partial(_poll_ends, broker)))
        try:
            await asyncio.sleep((world.tree.timeout_ms or 0) / 1_000 + REPLACED_S)
        finally:
            client.cancel()


async def _poll_ends(broker: BrokerHost, host: ClientHost) -> None:
    request = _list_offsets_request(host.world, broker)
    async with host.client() as client:
        while request.topics:
            try:
                if not client.view.brokers:
                    await client.refresh()
                await client.request(request, broker=broker.broker_id)
            except ClientError:
                pass  # it is down, or not discovered yet
            await host.sleep(_PAUSE_MS)


def _list_offsets_request(world: World, broker: BrokerHost) -> ListOffsetsRequest:
    image = image_of(world)
    request = ListOffsetsRequest(replica_id=-1, timeout_ms=_PAUSE_MS)
    for name, topic in image.topics.items():
        led = [
            index for index, partition in enumerate(topic.partitions) if partition.leader == BrokerId(broker.broker_id)
        ]
        if led:
            partitions = [ListOffsetsPartition(partition_index=index, timestamp=_LATEST) for index in led]
            request.topics.append(ListOffsetsTopic(name=name, partitions=partitions))
    return request


REPLACED: Final[Mapping[str, Kind]] = {"replaced-unheard": _replaced_unheard}
