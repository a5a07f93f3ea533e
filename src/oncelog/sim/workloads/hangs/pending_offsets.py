"""A hang in ``__consumer_offsets``: a TxnOffsetCommit that comes after the end of its transaction.

The offset is pending until the transaction ends, which nobody is going to do; who wants stable offsets is told to wait.
When an administrator aborts it the offset must vanish, and what was committed in time must stay.
"""

from __future__ import annotations

from typing import Final

from oncelog.base.hashing import coordinator_partition
from oncelog.base.ids import CONSUMER_OFFSETS, TopicPartition
from oncelog.client.aio.client import AsyncClient
from oncelog.sim.checkers.history import GroupPartition, Transaction
from oncelog.sim.virtual.world import ClientHost
from oncelog.sim.workloads.hangs.injector import HangInjector

IN_TIME: Final = 5
LATE: Final = 9
COMMIT_VERSION: Final = 3


async def late_offsets(injector: HangInjector, host: ClientHost, client: AsyncClient) -> None:
    """One offset in time and one after the end; the group is the transaction's own."""
    producer, place = injector.new_producer(host, client), injector.places[0]
    await producer.initialise()
    injector.truth.groups.append(producer.name)
    try:
        await producer.add_offsets(producer.name)
        if await producer.commit_offset(producer.name, place, IN_TIME, COMMIT_VERSION):
            return
        await producer.end(commit=injector.entropy.random() < 0.6)
        await producer.completed()
    finally:
        context = injector.context
        offsets = {GroupPartition(producer.name, place): IN_TIME}
        context.recorder.transactions.append(
            Transaction(f"{producer.name} offsets", producer.name, [], producer.outcome, producer.ending_at, offsets)
        )
    count = int(context.world.broker.settings.config.get("offsets.topic.num.partitions"))
    kept = TopicPartition(CONSUMER_OFFSETS, coordinator_partition(producer.name, count))
    injector.inject("offsets", producer, kept)
    code = await producer.commit_offset(producer.name, place, LATE, COMMIT_VERSION)
    injector.answered(code, producer, kept)
