"""Clients that are late or wrong on purpose: old requests on old connections, wrong epochs, unknown ids.

All requests are legal on the wire, but must have no effect: the victim records its history as if it were alone, and
every response must be one that Apache Kafka gives.
"""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, replace
from typing import Final

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import TopicName, TopicPartition
from oncelog.client.aio.client import ANY, TRANSACTION_KEY, AsyncClient
from oncelog.client.aio.link import AsyncLink
from oncelog.client.config import Address
from oncelog.client.errors import ClientError
from oncelog.client.machine.requests import produce_request
from oncelog.records.builder import build_batch
from oncelog.records.record import Record
from oncelog.sim.checkers.history import RecordedOutcome, Transaction, Write
from oncelog.sim.virtual.network.connection import Connection
from oncelog.sim.virtual.world import CLIENT_CONFIG, ClientHost
from oncelog.sim.workloads.kit.requests import has_several_brokers, leader_of, transaction_coordinator_of
from oncelog.sim.workloads.kit.workload import FENCED, WRONG_ID, Topic, Workload, WorkloadContext, WorkloadProgram
from oncelog.sim.workloads.producers import Producers
from oncelog.sim.workloads.repeated_batches import RepeatingProducer
from oncelog.wire.messages.describe_transactions import DescribeTransactionsRequest, TransactionState
from oncelog.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from oncelog.wire.messages.heartbeat import HeartbeatRequest
from oncelog.wire.messages.init_producer_id import InitProducerIdRequest
from oncelog.wire.messages.list_groups import ListGroupsRequest
from oncelog.wire.messages.produce import PartitionProduceResponse
from oncelog.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)

LATE: Final = "late"
END_TXN_VERSION: Final = 5
PRODUCE_VERSION: Final = 13
TXN_OFFSET_COMMIT_VERSION: Final = 5


@dataclass(frozen=True, slots=True)
class HostileClients(Workload):
    """``attackers`` programs against the producers of ``victims``, and ``late`` ones with late requests of
    their own.
    """

    name: str
    victims: Producers
    attackers: int
    late: int

    @classmethod
    def draw(cls, name: str, entropy: random.Random, transaction_version: int) -> HostileClients:
        victims = replace(Producers.draw(name, entropy, transaction_version), transactional=True, producers=1)
        return cls(name, victims, entropy.randint(1, 2), entropy.randint(1, 2))

    def topics(self) -> list[Topic]:
        return self.victims.topics()

    def start(self, context: WorkloadContext) -> None:
        self.victims.start(context)
        for index in range(self.attackers):
            context.launch(f"{self.name}-wrong{index}", self, _Attacker)
        for index in range(self.late):
            context.launch(f"{self.name}-late{index}", self, _Late)
        context.supervise(f"{self.name}-again", RepeatingProducer(context, self.name, f"{self.name}-again"))


class _Attacker(WorkloadProgram[HostileClients]):
    def __init__(self, context: WorkloadContext, workload: HostileClients, name: str) -> None:
        super().__init__(context, workload, name)
        self.attacks = (
            self.end_unknown,
            self.end_by_another_id,
            self.end_long_after,
            self.initialise_by_another_id,
            self.produce_long_after,
            self.commit_as_unknown_member,
            self.heartbeat_as_unknown_member,
        )

    async def __call__(self, host: ClientHost) -> None:
        while not host.stopping:
            async with host.client() as client:
                link = await client.link()
                for _ in range(self.entropy.randint(10, 60)):
                    if host.world.stopping:
                        return
                    victim = await self.choose_victim(client)
                    if victim is not None:
                        if has_several_brokers(client):
                            link = await client.link(await transaction_coordinator_of(client, victim.transactional_id))
                        await self.entropy.choice(self.attacks)(client, link, victim)
                    await host.pause(self.entropy, 800)

    async def choose_victim(self, client: AsyncClient) -> TransactionState | None:
        name = f"{self.workload.name}-{self.entropy.randrange(self.workload.victims.producers)}"
        coordinator = await transaction_coordinator_of(client, name)
        described = await client.request(DescribeTransactionsRequest(transactional_ids=[name]), broker=coordinator)
        state = described.transaction_states[0]
        return None if state.error_code or state.producer_id < 0 else state

    async def end_unknown(self, client: AsyncClient, link: AsyncLink, victim: TransactionState) -> None:
        request = EndTxnRequest(transactional_id="nobody", producer_id=victim.producer_id, committed=True)
        self.context.expect("EndTxn of an unknown id", (await link.call(request, END_TXN_VERSION)).error_code, WRONG_ID)

    async def end_by_another_id(self, client: AsyncClient, link: AsyncLink, victim: TransactionState) -> None:
        code = await self._end(link, victim, victim.producer_id + 100_000, victim.producer_epoch)
        self.context.expect("EndTxn by another id", code, WRONG_ID)

    async def end_long_after(self, client: AsyncClient, link: AsyncLink, victim: TransactionState) -> None:
        # The first epoch belongs to a transaction that ended long ago, the second to a future one.
        for epoch in (victim.producer_epoch - 2, victim.producer_epoch + 1_000):
            if epoch >= 0:
                code = await self._end(link, victim, victim.producer_id, epoch)
                self.context.expect(f"EndTxn of epoch {epoch}, {victim.producer_epoch} is current", code, FENCED)

    async def _end(self, link: AsyncLink, victim: TransactionState, producer_id: int, epoch: int) -> int:
        """Send a random EndTxn for the victim's transactional id. Returns the error code."""
        request = EndTxnRequest(
            transactional_id=victim.transactional_id,
            producer_id=producer_id,
            producer_epoch=epoch,
            committed=self.entropy.random() < 0.5,
        )
        return (await link.call(request, END_TXN_VERSION)).error_code

    async def initialise_by_another_id(self, client: AsyncClient, link: AsyncLink, victim: TransactionState) -> None:
        request = InitProducerIdRequest(
            transactional_id=victim.transactional_id,
            transaction_timeout_ms=10_000,
            producer_id=victim.producer_id + 100_000,
            producer_epoch=0,
        )
        code = (await link.call(request, 5)).error_code
        self.context.expect("InitProducerId by another id", code, WRONG_ID, FENCED)

    async def produce_long_after(self, client: AsyncClient, link: AsyncLink, victim: TransactionState) -> None:
        if victim.producer_epoch < 2:
            return
        partition = TopicPartition(TopicName(self.workload.name), 0)
        await client.topic(partition.topic)
        if has_several_brokers(client):
            link = await client.link(await leader_of(client, partition))
        answer = await produce(
            client, link, partition, victim.transactional_id, victim.producer_id, victim.producer_epoch - 2, b"late"
        )
        if has_several_brokers(client) and is_duplicate(answer):
            # A leader that is cut off from the tree does not know the later epoch: it returns the victim's first batch.
            return
        code = answer.error_code
        self.context.expect("Produce of an old epoch", code, FENCED, WRONG_ID, frozenset({ErrorCode.INVALID_TXN_STATE}))

    async def commit_as_unknown_member(self, client: AsyncClient, link: AsyncLink, victim: TransactionState) -> None:
        # TxnOffsetCommit by an unknown member, with an old epoch.
        offset = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=7)
        request = TxnOffsetCommitRequest(
            transactional_id=victim.transactional_id,
            group_id=self.workload.name,
            producer_id=victim.producer_id,
            producer_epoch=max(victim.producer_epoch - 2, 0),
            generation_id=3,
            member_id="nobody",
            topics=[TxnOffsetCommitRequestTopic(name=self.workload.name, partitions=[offset])],
        )
        code = (await link.call(request, TXN_OFFSET_COMMIT_VERSION)).topics[0].partitions[0].error_code
        refused = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION, ErrorCode.INVALID_TXN_STATE})
        self.context.expect("TxnOffsetCommit by an unknown member", code, refused, FENCED, WRONG_ID)

    async def heartbeat_as_unknown_member(self, client: AsyncClient, link: AsyncLink, victim: TransactionState) -> None:
        # A heartbeat for an unknown group.
        request = HeartbeatRequest(group_id="nobody's", generation_id=1, member_id="nobody")
        if not (code := (await link.call(request)).error_code):
            # A coordinator that is still loading its log accepts any heartbeat.
            while (await link.call(ListGroupsRequest())).error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                pass
            code = (await link.call(request)).error_code
        self.context.expect("Heartbeat of an unknown member", code, frozenset({ErrorCode.UNKNOWN_MEMBER_ID}))


class _Late(WorkloadProgram[HostileClients]):
    """A client whose EndTxn stays on an old connection, and arrives on a new one first (KAFKA-17754)."""

    def __init__(self, context: WorkloadContext, workload: HostileClients, name: str) -> None:
        super().__init__(context, workload, name)
        self.partition = TopicPartition(TopicName(workload.name), 0)
        self.client: AsyncClient
        # The link to the coordinator; with one broker, for all requests but the late ones.
        self.link: AsyncLink
        self.to_leader: AsyncLink
        self.producer_id = self.epoch = -1

    async def __call__(self, host: ClientHost) -> None:
        async with host.client() as self.client:
            address = await self.connect()
            init = InitProducerIdRequest(transactional_id=self.name, transaction_timeout_ms=10_000)
            response = await self.link.call(init, 5)
            if response.error_code:
                raise ClientError(f"InitProducerId: {response.error_code}")
            self.producer_id, self.epoch = response.producer_id, response.producer_epoch
            while not host.stopping:
                old = await AsyncLink.open(address, CLIENT_CONFIG)
                held = newest_connection(host)
                try:
                    await self.second(host, held, await self.first(host, held, old))
                finally:
                    await old.close()
                await host.pause(self.entropy, 600)

    async def connect(self) -> Address:
        client = self.client
        await client.topic(self.partition.topic)
        leader = coordinator = await client.leader(self.partition)
        if has_several_brokers(client):
            coordinator = await client.coordinator(self.name, TRANSACTION_KEY)
        address = client.view.brokers[coordinator].address
        self.link = await client.link(coordinator if has_several_brokers(client) else ANY)
        self.to_leader = await client.link(leader) if has_several_brokers(client) else self.link
        return address

    async def first(self, host: ClientHost, held: Connection, old: AsyncLink) -> asyncio.Task[EndTxnResponse]:
        """Run a transaction whose end is held back on the old link and sent on the new one. Returns the late call."""
        now, value = self.context.world.kernel.now_us, self.next_value()
        commit = self.entropy.random() < 0.6
        outcome = RecordedOutcome.UNKNOWN if commit else RecordedOutcome.ABORTED
        try:
            code = await self.produce(value)
            if code:
                outcome = RecordedOutcome.ABORTED
                raise ClientError(f"Produce: {code}")
            request = self.end_request(commit=commit)
            held.up.cut(LATE)
            late = asyncio.create_task(old.call(request, END_TXN_VERSION, CLIENT_CONFIG.request_timeout_ms))
            late.add_done_callback(_ignore_exception)
            response = await self.link.call(request, END_TXN_VERSION)
            if response.error_code:
                late.cancel()
                raise ClientError(f"EndTxn: {response.error_code}")
            outcome = RecordedOutcome.COMMITTED if commit else RecordedOutcome.ABORTED
        finally:
            self.record(
                f"{host.name}@{now}", host, Write(self.partition, value, sent_at=now), outcome, now if commit else None
            )
        self.epoch = response.producer_epoch
        return late

    async def second(self, host: ClientHost, held: Connection, late: asyncio.Task[EndTxnResponse]) -> None:
        """Run the next transaction; the late end of the previous one arrives within it and must have no effect."""
        kernel = self.context.world.kernel
        now, outcome, ending_at = kernel.now_us, RecordedOutcome.ABORTED, None
        write = Write(self.partition, self.next_value(), sent_at=now)
        try:
            code = await self.produce(write.value)
            if code:
                raise ClientError(f"Produce: {code}")
            was_held = held.up.is_cut(LATE)
            held.up.heal(LATE)
            late_response = await late
            if was_held:
                self.context.expect("EndTxn of the transaction before", late_response.error_code, FENCED)
            ending_at, outcome = kernel.now_us, RecordedOutcome.UNKNOWN
            ended = await self.link.call(self.end_request(commit=True), END_TXN_VERSION)
            if ended.error_code:
                raise ClientError(f"EndTxn: {ended.error_code}")
            outcome = RecordedOutcome.COMMITTED
            self.epoch = ended.producer_epoch
        finally:
            late.cancel()
            self.record(f"{host.name}@{now}+", host, write, outcome, ending_at)

    async def produce(self, value: str) -> int:
        """Returns the error code."""
        answer = await produce(
            self.client, self.to_leader, self.partition, self.name, self.producer_id, self.epoch, value.encode()
        )
        return answer.error_code

    def end_request(self, *, commit: bool) -> EndTxnRequest:
        return EndTxnRequest(
            transactional_id=self.name, producer_id=self.producer_id, producer_epoch=self.epoch, committed=commit
        )

    def record(
        self, name: str, host: ClientHost, write: Write, outcome: RecordedOutcome, ending_at: int | None
    ) -> None:
        self.context.recorder.transactions.append(Transaction(name, host.name, [write], outcome, ending_at))


def _ignore_exception(task: asyncio.Task[EndTxnResponse]) -> None:
    # The call may fail after its round has ended: asyncio would report the exception as unretrieved.
    if not task.cancelled():
        task.exception()


def newest_connection(host: ClientHost) -> Connection:
    """The connection opened last. Raises ClientError if the broker has already closed it."""
    connections = [
        connection for connection in host.world.network.connections_of(host.name) if connection.client_end is not None
    ]
    if not connections:
        raise ClientError("the broker has gone")
    return max(connections, key=lambda connection: connection.number)


def is_duplicate(answer: PartitionProduceResponse) -> bool:
    """True if the batch already existed and nothing was appended."""
    # With CreateTime, only a duplicate's response has a time.
    return not answer.error_code and answer.log_append_time_ms >= 0


async def produce(
    client: AsyncClient,
    link: AsyncLink,
    partition: TopicPartition,
    transactional_id: str,
    producer_id: int,
    epoch: int,
    value: bytes,
) -> PartitionProduceResponse:
    data = build_batch(
        [Record(-1, client.now_ms(), None, value, ())],
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=0,
        transactional=True,
    )
    message = produce_request(client.view, {partition: data}, -1, CLIENT_CONFIG.request_timeout_ms)
    message.transactional_id = transactional_id
    response = await link.call(message, PRODUCE_VERSION)
    return response.responses[0].partition_responses[0]
