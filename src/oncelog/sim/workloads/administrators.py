"""Administrators among live transactions: they list and describe them, and send markers that the brokers must refuse.

A marker with a start offset (KIP-664's abort, made conditional) must be refused if the transaction has ended, its
producer id, epoch or offset differs, it is a prepared two-phase one, or the marker commits. One that took effect would
show as a torn transaction (H6).
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
    """Runs ``administrators`` programs beside transactional producers and, in Transactions V2, two-phase committers."""

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
    def __init__(self, context: WorkloadContext, workload: Administrators, name: str) -> None:
        super().__init__(context, workload, name)
        self.partitions = [partition for topic in workload.topics() for partition in topic.topic_partitions]
        self.two_phase = () if workload.committers is None else (workload.committers.name,)
        self.open_transactions: list[tuple[TopicPartition, ProducerState]] = []
        # Transactions that have ended: no marker may end them again.
        self.ended_transactions: list[tuple[TopicPartition, ProducerState]] = []

    async def __call__(self, host: ClientHost) -> None:
        while not host.stopping:
            async with host.client() as client:
                for _ in range(self.entropy.randint(5, 50)):
                    await host.pause(self.entropy, 600)
                    if host.world.stopping:
                        return
                    try:
                        await self.scan_partition(client)
                    except BrokerRefused:
                        continue

    async def scan_partition(self, client: AsyncClient) -> None:
        """Sometimes list transactions and groups; then send markers for producers of one partition."""
        if self.entropy.random() < 0.3:
            await transactions_of(client)
            await groups_of(client)
        partition = self.entropy.choice(self.partitions)
        open_producers = [
            producer for producer in await producers_of(client, partition) if producer.current_txn_start_offset >= 0
        ]
        self.remember(partition, open_producers)
        if open_producers and self.entropy.random() < 0.5:
            await self.abort_wrongly(client, partition, self.entropy.choice(open_producers))
        if self.ended_transactions and self.entropy.random() < 0.5:
            ended_partition, state = self.entropy.choice(self.ended_transactions)
            await self.send(
                client, ended_partition, state, {ErrorCode.INVALID_TXN_STATE, ErrorCode.INVALID_PRODUCER_EPOCH}
            )

    def remember(self, partition: TopicPartition, open_producers: list[ProducerState]) -> None:
        # Add the transactions of the partition that have ended since the last scan to the ended ones.
        open_now = {(producer.producer_id, producer.current_txn_start_offset) for producer in open_producers}
        for known_partition, state in self.open_transactions:
            if known_partition == partition and (state.producer_id, state.current_txn_start_offset) not in open_now:
                self.ended_transactions.append((known_partition, state))
        self.open_transactions = [producer for producer in self.open_transactions if producer[0] != partition] + [
            (partition, producer) for producer in open_producers
        ]
        del self.ended_transactions[:-REMEMBERED]

    async def abort_wrongly(self, client: AsyncClient, partition: TopicPartition, state: ProducerState) -> None:
        """Send an abort that names an open transaction almost correctly, then a commit that names it correctly. For a
        two-phase transaction, sometimes a correctly named abort.
        """
        start, epoch = state.current_txn_start_offset, state.producer_epoch
        if partition.topic in self.two_phase and self.entropy.random() < 0.5:
            await self.send(client, partition, state, {ErrorCode.INVALID_TXN_STATE, ErrorCode.INVALID_PRODUCER_EPOCH})
            return
        other, allowed = self.entropy.choice(
            (
                (state.replaced(current_txn_start_offset=start + 1), {ErrorCode.INVALID_TXN_STATE}),
                (state.replaced(current_txn_start_offset=max(start - 1, 0)), {ErrorCode.INVALID_TXN_STATE}),
                (state.replaced(producer_epoch=epoch + 100), {ErrorCode.INVALID_TXN_STATE}),
                (state.replaced(producer_epoch=max(epoch - 1, 0)), {ErrorCode.INVALID_TXN_STATE}),
                (state.replaced(producer_id=state.producer_id + 100_000), {ErrorCode.INVALID_TXN_STATE}),
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
        """Send a marker. A response outside ``allowed`` and the errors of faults is a violation."""
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
            self.context.report_unexpected(f"a marker for {partition}, {state}: answered {code}")
