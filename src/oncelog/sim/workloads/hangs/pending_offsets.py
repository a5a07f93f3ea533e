"""A hang in ``__consumer_offsets``: a TxnOffsetCommit that comes after the end of its transaction.

The offset is pending until the transaction ends, which nobody is going to do; who wants stable offsets is told to wait.
When an administrator aborts it the offset must vanish, and what was committed in time must stay.
"""

from __future__ import annotations

from typing import Final

from oncelog.base.errors import ErrorCode
from oncelog.base.hashing import coordinator_partition
from oncelog.base.ids import CONSUMER_OFFSETS, TopicPartition
from oncelog.client.aio.client import AsyncClient
from oncelog.client.errors import BrokerRefused
from oncelog.sim.checkers.history import GroupPartition, Transaction
from oncelog.sim.workloads.hangs.injector import HangInjector
from oncelog.sim.workloads.hangs.scripted_producer import ScriptedProducer
from oncelog.sim.world import ClientHost
from oncelog.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from oncelog.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)

IN_TIME: Final = 5
LATE: Final = 9
ADD_VERSION: Final = 3
COMMIT_VERSION: Final = 3


async def late_offsets(injector: HangInjector, host: ClientHost, client: AsyncClient) -> None:
    """One offset in time and one after the end; the group is the transaction's own."""
    producer, place = injector.new_producer(host, client), injector.places[0]
    await producer.initialise()
    injector.truth.groups.append(producer.name)
    try:
        await _add(producer)
        if await _commit(producer, place, IN_TIME):
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
    injector.answered(await _commit(producer, place, LATE), producer, kept)


async def _add(producer: ScriptedProducer) -> None:
    request = AddOffsetsToTxnRequest(
        transactional_id=producer.name,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        group_id=producer.name,
    )
    code = (await (await producer.coordinator()).call(request, ADD_VERSION)).error_code
    if code:
        raise BrokerRefused(code, "AddOffsetsToTxn")


async def _commit(producer: ScriptedProducer, place: TopicPartition, offset: int) -> int:
    """TxnOffsetCommit of one offset; the error code."""
    partition = TxnOffsetCommitRequestPartition(partition_index=place.partition, committed_offset=offset)
    request = TxnOffsetCommitRequest(
        transactional_id=producer.name,
        group_id=producer.name,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        topics=[TxnOffsetCommitRequestTopic(name=place.topic, partitions=[partition])],
    )
    link = await producer.client.link(await producer.client.coordinator(producer.name))
    return (await link.call(request, COMMIT_VERSION)).topics[0].partitions[0].error_code or ErrorCode.NONE
