"""A hang in ``__consumer_offsets``: a TxnOffsetCommit that comes after the end of its transaction.

The offset is pending until the transaction ends, which nobody is going to do; who wants stable offsets is told to wait.
When an administrator aborts it the offset must vanish, and what was committed in time must stay.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from oncelog.base.errors import ErrorCode
from oncelog.base.hashing import coordinator_partition
from oncelog.base.ids import CONSUMER_OFFSETS, TopicPartition
from oncelog.client.aio.client import AsyncClient
from oncelog.client.errors import BrokerRefused
from oncelog.sim.checkers.history import GroupPartition, Transaction
from oncelog.sim.world import ClientHost
from oncelog.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from oncelog.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)

if TYPE_CHECKING:
    from oncelog.sim.workloads.hangs.by_hand import ByHand
    from oncelog.sim.workloads.hangs.planting import Planter

IN_TIME: Final = 5
LATE: Final = 9
ADD_VERSION: Final = 3
COMMIT_VERSION: Final = 3


async def late_offsets(planter: Planter, host: ClientHost, client: AsyncClient) -> None:
    """One offset in time and one after the end; the group is the transaction's own."""
    hand, place = planter.new_hand(host, client), planter.places[0]
    await hand.initialise()
    planter.ground.groups.append(hand.name)
    try:
        await _add(hand)
        if await _commit(hand, place, IN_TIME):
            return
        await hand.end(commit=planter.entropy.random() < 0.6)
        await hand.completed()
    finally:
        stage = planter.stage
        offsets = {GroupPartition(hand.name, place): IN_TIME}
        stage.recorder.transactions.append(
            Transaction(f"{hand.name} offsets", hand.name, [], hand.outcome, hand.ending_at, offsets)
        )
    count = int(stage.world.broker.settings.config.get("offsets.topic.num.partitions"))
    kept = TopicPartition(CONSUMER_OFFSETS, coordinator_partition(hand.name, count))
    planter.plant("offsets", hand, kept)
    planter.answered(await _commit(hand, place, LATE), hand, kept)


async def _add(hand: ByHand) -> None:
    request = AddOffsetsToTxnRequest(
        transactional_id=hand.name, producer_id=hand.producer_id, producer_epoch=hand.epoch, group_id=hand.name
    )
    code = (await (await hand.coordinator()).call(request, ADD_VERSION)).error_code
    if code:
        raise BrokerRefused(code, "AddOffsetsToTxn")


async def _commit(hand: ByHand, place: TopicPartition, offset: int) -> int:
    """TxnOffsetCommit of one offset; the error code."""
    partition = TxnOffsetCommitRequestPartition(partition_index=place.partition, committed_offset=offset)
    request = TxnOffsetCommitRequest(
        transactional_id=hand.name,
        group_id=hand.name,
        producer_id=hand.producer_id,
        producer_epoch=hand.epoch,
        topics=[TxnOffsetCommitRequestTopic(name=place.topic, partitions=[partition])],
    )
    link = await hand.client.link(await hand.client.coordinator(hand.name))
    return (await link.call(request, COMMIT_VERSION)).topics[0].partitions[0].error_code or ErrorCode.NONE
