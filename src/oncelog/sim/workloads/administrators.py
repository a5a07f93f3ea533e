"""Administrators among live transactions: they list and describe, and send markers that must not end anything.

A marker with a start offset (KIP-664's abort, made conditional) names exactly one transaction on one partition. Sent
for one that is gone, by another epoch, from another offset, for one prepared in two phases, or as a commit, it must be
refused; whatever it touched would show as a torn transaction.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import TopicPartition
from oncelog.client.aio.client import AsyncClient
from oncelog.client.errors import BrokerRefused
from oncelog.sim.virtual.world import ClientHost
from oncelog.sim.workloads.kit.final_state import groups_of, transactions_of
from oncelog.sim.workloads.kit.requests import leader_of, producers_of
from oncelog.sim.workloads.kit.workload import Topic, Workload, WorkloadContext, WorkloadProgram
from oncelog.sim.workloads.producers import Producers
from oncelog.sim.workloads.two_phase_committers import Committers
from oncelog.wire.messages.describe_producers import ProducerState
from oncelog.wire.messages.write_txn_markers import WritableTxnMarker, WritableTxnMarkerTopic, WriteTxnMarkersRequest

REMEMBERED = 200


@dataclass(frozen=True, slots=True)
class Administrators(Workload):
    """``administrators`` programs beside transactional producers and, in Transactions V2, two-phase committers."""

    name: str
    administrators: int
    writers: Producers
    committers: Committers | None

    @classmethod
    def draw(cls, name: str, entropy: random.Random, transaction_version: int) -> Administrators:
        writers = replace(Producers.draw(name, entropy, transaction_version), transactional=True, producers=1)
        committers = Committers.draw(f"{name}-2pc", entropy, transaction_version) if transaction_version >= 2 else None
        return cls(name, entropy.randint(1, 2), writers, committers)

    def topics(self) -> list[Topic]:
        return [*self.writers.topics(), *([] if self.committers is None else self.committers.topics())]

    def start(self, context: WorkloadContext) -> None:
        self.writers.start(context)
        if self.committers is not None:
            self.committers.start(context)
        for index in range(self.administrators):
            name = f"{self.name}-admin{index}"
            context.launch(name, self, _Administrator)

    async def record_final_state(self, context: WorkloadContext, client: AsyncClient) -> None:
        if self.committers is not None:
            await self.committers.record_final_state(context, client)


class _Administrator(WorkloadProgram[Administrators]):
    """Looks, and aborts what is not there."""

    def __init__(self, context: WorkloadContext, workload: Administrators, name: str) -> None:
        super().__init__(context, workload, name)
        self.partitions = [partition for topic in workload.topics() for partition in topic.topic_partitions]
        self.two_phase = () if workload.committers is None else (workload.committers.name,)
        self.seen: list[tuple[TopicPartition, ProducerState]] = []
        self.gone: list[tuple[TopicPartition, ProducerState]] = []
        """Transactions that were open and are not any more: nothing may end them a second time."""

    async def __call__(self, host: ClientHost) -> None:
        while not host.stopping:
            async with host.client() as client:
                for _ in range(self.entropy.randint(5, 50)):
                    await host.pause(self.entropy, 600)
                    if host.world.stopping:
                        return
                    try:
                        await self.one_look(client)
                    except BrokerRefused:
                        continue

    async def one_look(self, client: AsyncClient) -> None:
        """Look at transactions and groups, then at one partition's producers, which tempt to be ended."""
        if self.entropy.random() < 0.3:
            await transactions_of(client)
            await groups_of(client)
        partition = self.entropy.choice(self.partitions)
        found = [
            producer for producer in await producers_of(client, partition) if producer.current_txn_start_offset >= 0
        ]
        self.remember(partition, found)
        if found and self.entropy.random() < 0.5:
            await self.abort_wrongly(client, partition, self.entropy.choice(found))
        if self.gone and self.entropy.random() < 0.5:
            where, state = self.entropy.choice(self.gone)
            await self.send(client, where, state, {ErrorCode.INVALID_TXN_STATE, ErrorCode.INVALID_PRODUCER_EPOCH})

    def remember(self, partition: TopicPartition, found: list[ProducerState]) -> None:
        """Note as gone for good the transactions that were open on the partition before and are not now."""
        open_now = {(one.producer_id, one.current_txn_start_offset) for one in found}
        for where, state in self.seen:
            if where == partition and (state.producer_id, state.current_txn_start_offset) not in open_now:
                self.gone.append((where, state))
        self.seen = [one for one in self.seen if one[0] != partition] + [(partition, one) for one in found]
        del self.gone[:-REMEMBERED]

    async def abort_wrongly(self, client: AsyncClient, partition: TopicPartition, state: ProducerState) -> None:
        """Almost the right name; or the right one of what is prepared elsewhere."""
        start, epoch = state.current_txn_start_offset, state.producer_epoch
        if partition.topic in self.two_phase and self.entropy.random() < 0.5:
            await self.send(client, partition, state, {ErrorCode.INVALID_TXN_STATE, ErrorCode.INVALID_PRODUCER_EPOCH})
            return
        other, allowed = self.entropy.choice(
            (
                (replace(state, current_txn_start_offset=start + 1), {ErrorCode.INVALID_TXN_STATE}),
                (replace(state, current_txn_start_offset=max(start - 1, 0)), {ErrorCode.INVALID_TXN_STATE}),
                (replace(state, producer_epoch=epoch + 100), {ErrorCode.INVALID_TXN_STATE}),
                (replace(state, producer_epoch=max(epoch - 1, 0)), {ErrorCode.INVALID_TXN_STATE}),
                (replace(state, producer_id=state.producer_id + 100_000), {ErrorCode.INVALID_TXN_STATE}),
            )
        )
        if (other.producer_epoch, other.current_txn_start_offset, other.producer_id) != (
            epoch,
            start,
            state.producer_id,
        ):
            await self.send(client, partition, other, allowed | {ErrorCode.INVALID_PRODUCER_EPOCH})
        await self.send(client, partition, state, {ErrorCode.INVALID_REQUEST}, committed=True)

    async def send(
        self,
        client: AsyncClient,
        partition: TopicPartition,
        state: ProducerState,
        allowed: set[ErrorCode],
        *,
        committed: bool = False,
    ) -> None:
        """A marker; an answer that is none of ``allowed`` (or of what may pass) is objected to."""
        marker = WritableTxnMarker(
            producer_id=state.producer_id,
            producer_epoch=state.producer_epoch,
            transaction_result=committed,
            coordinator_epoch=-1,
            transaction_version=2,
            start_offset=state.current_txn_start_offset,
            topics=[WritableTxnMarkerTopic(name=partition.topic, partition_indexes=[partition.partition])],
        )
        leader = await leader_of(client, partition)
        response = await client.request(WriteTxnMarkersRequest(markers=[marker]), broker=leader)
        code = response.markers[0].topics[0].partitions[0].error_code
        if code not in allowed | {ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_LEADER_OR_FOLLOWER}:
            self.context.object(f"a marker for {partition}, {state}: answered {code}")
