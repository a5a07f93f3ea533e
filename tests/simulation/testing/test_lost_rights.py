"""Rights are taken away and given back while transactions run, with and without other trouble: who is refused aborts or
is aborted, nobody reads half of a transaction, nothing acknowledged is lost, and readers are not left waiting.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Final

import pytest

from oncelog.base.acls import Operation, PatternType, Permission, ResourceType
from oncelog.base.errors import ErrorCode
from oncelog.base.ids import TopicName, TopicPartition
from oncelog.client.aio.consumer import AsyncConsumer
from oncelog.client.aio.transactions import AsyncTransactionalProducer
from oncelog.client.errors import BrokerRefused, ClientError, TransactionFailed
from oncelog.client.machine.consumed_records import read_fetched
from oncelog.client.machine.positions import FetchSettings
from oncelog.client.machine.transaction_values import TransactionSettings
from oncelog.testing.simulation import ClientHost, Simulation
from oncelog.wire.messages.create_acls import AclCreation, CreateAclsRequest
from oncelog.wire.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest

CONFIG: Final = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
}
LEFT, RIGHT = TopicName("left"), TopicName("right")
EVERYBODY: Final = "User:ANONYMOUS"
TAKEN: Final = (
    (ResourceType.TOPIC, RIGHT, Operation.WRITE),
    (ResourceType.TOPIC, LEFT, Operation.DESCRIBE),
    (ResourceType.TRANSACTIONAL_ID, "writer-1", Operation.WRITE),
    (ResourceType.TRANSACTIONAL_ID, "writer-2", Operation.DESCRIBE),
)
_REFUSED: Final = {ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED}


class Ledger:
    """What writers know of their numbers."""

    def __init__(self) -> None:
        self.next = 0
        self.committed: list[int] = []
        self.aborted: list[int] = []
        self.refusals: Counter[ErrorCode] = Counter()

    def note(self, error: BaseException | None) -> None:
        while error is not None:
            if isinstance(error, BrokerRefused) and error.code in _REFUSED:
                self.refusals[ErrorCode(error.code)] += 1
            error = error.__cause__ or error.__context__


class Writer:
    """Writes each number into both topics, in one transaction."""

    def __init__(self, name: str, ledger: Ledger) -> None:
        self._name = name
        self._ledger = ledger

    async def __call__(self, host: ClientHost) -> None:
        ledger = self._ledger
        settings = TransactionSettings(self._name, timeout_ms=10_000)
        try:
            async with host.client() as client, AsyncTransactionalProducer(client, settings) as producer:
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


async def administrate(host: ClientHost) -> None:
    """Take a right away, and give it back after a while."""
    number = 0
    async with host.client() as client:
        for kind, name, _ in TAKEN:  # whoever is named by any entry needs one that allows
            await client.request(CreateAclsRequest(creations=[_entry(kind, name, Operation.ALL, Permission.ALLOW)]))
        while not host.stopping:
            kind, name, operation = TAKEN[number % len(TAKEN)]
            number += 1
            await client.request(CreateAclsRequest(creations=[_entry(kind, name, operation, Permission.DENY)]))
            await asyncio.sleep(0.4)
            await client.request(DeleteAclsRequest(filters=[_every_denial()]))
            await asyncio.sleep(0.4)
        await client.request(DeleteAclsRequest(filters=[_every_denial()]))


def _entry(kind: ResourceType, name: str, operation: Operation, permission: Permission) -> AclCreation:
    return AclCreation(
        resource_type=kind,
        resource_name=name,
        resource_pattern_type=PatternType.LITERAL,
        principal=EVERYBODY,
        host="*",
        operation=operation,
        permission_type=permission,
    )


def _every_denial() -> DeleteAclsFilter:
    return DeleteAclsFilter(
        resource_type_filter=ResourceType.ANY,
        resource_name_filter=None,
        principal_filter=None,
        host_filter=None,
        pattern_type_filter=PatternType.ANY,
        operation=Operation.ANY,
        permission_type=Permission.DENY,
    )


async def open_topics(host: ClientHost) -> None:
    async with host.client() as client:
        await client.metadata([LEFT, RIGHT], create=True)


async def read_all(host: ClientHost, topic: TopicName) -> list[int]:
    """What a reader of committed records finds, up to the end: an open transaction would keep it from there."""
    place = TopicPartition(topic, 0)
    async with host.client() as client, AsyncConsumer(client, FetchSettings(read_committed=True)) as consumer:
        ends = await consumer.list_offsets({place: -1})
        await consumer.assign({place: 0}, ends)
        found: list[int] = []
        while len(consumer.positions):
            for fetched in await consumer.poll():
                found += [int(record.value or b"") for record in read_fetched(fetched, read_committed=True)]
        return found


@pytest.mark.slow
@pytest.mark.parametrize(("seed", "faults"), [(1, ()), (3, ("kill", "kill-client", "reset", "cut-down"))], ids=str)
def test_rights_come_and_go(seed: int, faults: tuple[str, ...]) -> None:
    ledger = Ledger()
    with Simulation(seed, CONFIG) as simulation:
        simulation.run(open_topics)
        for name in ("writer-1", "writer-2"):
            simulation.supervise(name, Writer(name, ledger))
        simulation.supervise("administrator", administrate)
        if faults:
            simulation.trouble(30, *faults)
        else:
            simulation.wait(30)
        simulation.settle()
        simulation.wait(30)  # what a writer could not abort itself has timed out
        left, right = (simulation.run(lambda host, topic=topic: read_all(host, topic)) for topic in (LEFT, RIGHT))
    assert len(set(left)) == len(left)
    assert sorted(left) == sorted(right), "all or nothing of each transaction"
    assert set(ledger.committed) <= set(left)
    assert not set(ledger.aborted) & set(left)
    assert len(ledger.committed) > 20
    assert set(ledger.refusals) == _REFUSED, ledger.refusals
