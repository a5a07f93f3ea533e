"""Programs for simulations in which clients lose their rights: writers that put each number into two topics by one
transaction, and a reader that finds each number in both topics or in none.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Final

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import TopicName, TopicPartition
from oncelog.client.aio.consumer import AsyncConsumer
from oncelog.client.aio.transactions import AsyncTransactionalProducer
from oncelog.client.config import ClientConfig
from oncelog.client.errors import AuthenticationFailed, BrokerRefused, ClientError, TransactionFailed
from oncelog.client.machine.consumed_records import read_fetched
from oncelog.client.machine.positions import FetchSettings
from oncelog.client.machine.transaction_values import TransactionSettings
from oncelog.sim.virtual.world import CLIENT_CONFIG
from oncelog.testing.simulation import ClientHost

LEFT, RIGHT = TopicName("left"), TopicName("right")
NOT_AUTHORIZED: Final = frozenset(
    {ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED}
)


class Ledger:
    """The numbers of all writers, and how the broker refused them."""

    def __init__(self) -> None:
        self.next = 0
        self.committed: list[int] = []
        self.aborted: list[int] = []
        self.refusals: Counter[ErrorCode] = Counter()

    def note(self, error: BaseException | None) -> None:
        """Count the refusal of a right or of a login that an error comes from, if it does."""
        while error is not None:
            if isinstance(error, BrokerRefused) and error.code in NOT_AUTHORIZED:
                self.refusals[ErrorCode(error.code)] += 1
            elif isinstance(error, AuthenticationFailed):
                self.refusals[ErrorCode.SASL_AUTHENTICATION_FAILED] += 1
            error = error.__cause__ or error.__context__


class Writer:
    """Writes each number into both topics, in one transaction."""

    def __init__(self, name: str, ledger: Ledger, config: ClientConfig = CLIENT_CONFIG) -> None:
        self._name = name
        self._ledger = ledger
        self._config = config

    async def __call__(self, host: ClientHost) -> None:
        """Write until the host stops, or an error ends it."""
        ledger = self._ledger
        settings = TransactionSettings(self._name, timeout_ms=10_000)
        try:
            async with host.client(self._config) as client, AsyncTransactionalProducer(client, settings) as producer:
                await producer.initialize()
                while not host.stopping:
                    number, ledger.next = ledger.next, ledger.next + 1
                    try:
                        async with producer.transaction():
                            for topic in (LEFT, RIGHT):
                                await producer.send(topic, str(number).encode(), partition=0)
                            await asyncio.sleep(0.15)
                    except TransactionFailed as error:
                        ledger.note(error)
                        ledger.aborted.append(number)
                        await asyncio.sleep(0.1)
                    else:
                        ledger.committed.append(number)
        except ClientError as error:
            ledger.note(error)
            raise


async def read_all(host: ClientHost, topic: TopicName, config: ClientConfig = CLIENT_CONFIG) -> list[int]:
    """The committed numbers of a topic, up to its end: an open transaction would keep a reader from there."""
    place = TopicPartition(topic, 0)
    async with host.client(config) as client, AsyncConsumer(client, FetchSettings(read_committed=True)) as consumer:
        ends = await consumer.list_offsets({place: -1})
        await consumer.assign({place: 0}, ends)
        results: list[int] = []
        while len(consumer.positions):
            for fetched in await consumer.poll():
                results += [int(record.value or b"") for record in read_fetched(fetched, read_committed=True)]
        return results


def check(ledger: Ledger, left: list[int], right: list[int]) -> None:
    """Assert that each transaction is there as a whole or not at all, as its writer was told."""
    assert len(set(left)) == len(left)
    assert sorted(left) == sorted(right), "all or nothing of each transaction"
    assert set(ledger.committed) <= set(left)
    assert not set(ledger.aborted) & set(left)
    assert len(ledger.committed) > 20
