"""The commit protocol's port over the asyncio client, so that it runs in the simulator against the real broker."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from typing import Any, TypeVar

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import TopicName, TopicPartition
from oncelog.base.units import INT64_MAX
from oncelog.client.aio.client import TRANSACTION_KEY, AsyncClient
from oncelog.client.aio.consumer import AsyncConsumer
from oncelog.client.aio.transactions import AsyncTransactionalProducer
from oncelog.client.errors import BrokerRefused, ProducerUnusable
from oncelog.client.machine.consumed_records import read_fetched
from oncelog.client.machine.positions import FetchSettings
from oncelog.client.machine.transaction_values import StoredTransaction, TransactionSettings
from oncelog.spark.sink.two_phase.cluster_operations import is_fencing
from oncelog.spark.sink.two_phase.operations import (
    CheckAborted,
    Claim,
    Describe,
    End,
    Ended,
    Fence,
    FindLedger,
    FindRemoved,
    Identity,
    ListOpen,
    Operation,
    Publish,
    Read,
    ReadLedger,
    Stage,
    Ticket,
    Write,
)
from oncelog.spark.sink.two_phase.protocol import driver_id
from oncelog.spark.sink.two_phase.register import Register
from oncelog.spark.sink.two_phase.register_records import decode, encode
from oncelog.wire.messages.describe_transactions import DescribeTransactionsRequest
from oncelog.wire.messages.end_txn import EndTxnRequest
from oncelog.wire.messages.list_transactions import ListTransactionsRequest

T = TypeVar("T")
REGISTERS = TopicPartition(TopicName("registers"), 0)
END_TXN_VERSION = 5
OTHER = (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_TXN_STATE)


class AsyncCluster:
    """As ``oncelog.spark.sink.two_phase.cluster_operations.Cluster``."""

    def __init__(self, client: AsyncClient, query: str) -> None:
        self.client, self.query = client, query
        self.driver: AsyncTransactionalProducer | None = None
        self.tasks: dict[str, AsyncTransactionalProducer] = {}

    async def run(self, program: Generator[Operation, Any, T]) -> T:
        answer: Any = None
        while True:
            try:
                operation = program.send(answer)
            except StopIteration as stop:
                result: T = stop.value
                return result
            answer = await self.answer(operation)

    async def answer(self, operation: Operation) -> Any:
        match operation:
            case Fence():
                settings = TransactionSettings(driver_id(self.query), timeout_ms=10_000)
                self.driver = AsyncTransactionalProducer(self.client, settings, create_topics=True)
                await self.driver.initialize()
            case Read():
                return await self.read()
            case Write(register):
                return await self.stage(register) and await self.publish()
            case Stage(register):
                return await self.stage(register)
            case Publish():
                return await self.publish()
            case Describe(names):
                return {name: description for name in names if (description := await self.describe(name)) is not None}
            case ListOpen(prefix):
                return await self.list_open(prefix)
            case Ticket(name):
                producer = AsyncTransactionalProducer(self.client, TransactionSettings(name))
                await producer.initialize()
                return producer.transactions.producer_epoch
            case ReadLedger():
                return None
            case FindRemoved():
                return []
            case FindLedger():
                return False
            case CheckAborted():
                return False
            case Claim(name, found):
                return await self.claim(name, found)
            case End(stored, commit):
                return await self.client.retrying(lambda: self.end(stored, commit))
        return None

    async def read(self) -> Register | None:
        settings = FetchSettings(read_committed=True, max_wait_ms=50)
        async with AsyncConsumer(self.client, settings) as consumer:
            await self.client.topic(REGISTERS.topic, create=True)
            ends = await consumer.list_offsets({REGISTERS: -1})
            begins = await consumer.list_offsets({REGISTERS: -2})
            decoded: Register | None = None
            if begins == ends:
                return None
            await consumer.assign(begins, ends)
            while len(consumer.positions):
                for fetched in await consumer.poll():
                    for record in read_fetched(fetched, read_committed=True):
                        decoded = decode(record.value or b"")
            return decoded

    async def stage(self, register: Register) -> bool:
        assert self.driver is not None
        try:
            self.driver.begin()
            await self.driver.send(REGISTERS.topic, encode(register), key=self.query.encode(), partition=0)
            await self.driver.flush()
        except BrokerRefused as error:
            if is_fencing(error):
                return False
            raise
        return True

    async def publish(self) -> bool:
        assert self.driver is not None
        try:
            await self.driver.commit()
        except BrokerRefused as error:
            if is_fencing(error):
                return False
            raise
        return True

    async def describe(self, name: str) -> Identity | None:
        async def attempt() -> Identity | None:
            broker = await self.client.coordinator(name, TRANSACTION_KEY)
            message = DescribeTransactionsRequest(transactional_ids=[name])
            state = (await self.client.request(message, broker=broker)).transaction_states[0]
            if state.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
                return None
            if state.error_code:
                raise BrokerRefused(state.error_code, name)
            return Identity(state.producer_id, state.producer_epoch, state.transaction_state == "Ongoing")

        return await self.client.retrying(attempt)

    async def list_open(self, prefix: str) -> list[StoredTransaction]:
        async def attempt() -> list[str]:
            response = await self.client.request(ListTransactionsRequest(state_filters=["Ongoing"]))
            if response.error_code:
                raise BrokerRefused(response.error_code, "open transactions")
            return [state.transactional_id for state in response.transaction_states]

        results = []
        for name in await self.client.retrying(attempt):
            description = await self.describe(name) if name.startswith(prefix) else None
            if description is not None and description.is_open:
                results.append(StoredTransaction(name, description.producer_id, description.producer_epoch))
        return results

    async def claim(self, name: str, identity: Identity | None) -> StoredTransaction | None:
        expected = identity or Identity(INT64_MAX, 0, False)
        settings = TransactionSettings(name, two_phase=True)
        producer = AsyncTransactionalProducer(self.client, settings, create_topics=True)
        machine = producer.transactions
        machine.producer_id, machine.producer_epoch = expected.producer_id, expected.producer_epoch
        try:
            await producer.initialize()
        except ProducerUnusable as error:
            if is_fencing(error):
                return None
            raise
        self.tasks[name] = producer
        return StoredTransaction(name, machine.producer_id, machine.producer_epoch)

    async def end(self, stored: StoredTransaction, commit: bool) -> Ended:
        link = await self.client.link(await self.client.coordinator(stored.transactional_id, TRANSACTION_KEY))
        name, producer_id, producer_epoch = stored
        request = EndTxnRequest(
            transactional_id=name, producer_id=producer_id, producer_epoch=producer_epoch, committed=commit
        )
        code = (await link.call(request, END_TXN_VERSION)).error_code
        if code == ErrorCode.NONE:
            return Ended.DONE
        if code == ErrorCode.INVALID_PRODUCER_ID_MAPPING:
            return Ended.UNKNOWN if await self.describe(name) is None else Ended.OTHER
        if code in OTHER:
            return Ended.OTHER
        await asyncio.sleep(0.02)
        raise BrokerRefused(code, f"end of {stored}")
