"""Members of consumer groups that process exactly once: what they make of their records is written in a transaction
that commits the offsets, too, in the name of the member (KIP-447).

The result of a record is its partition and offset, so that a reader sees which records were processed, and how often.
A member whose transaction must be aborted takes the same records again. One that cannot tell how its transaction ended,
or that another with its transactional id has fenced, is GivenUp: its process ends.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from aiokafka import AIOKafkaProducer
from aiokafka import TopicPartition as AioPartition
from aiokafka.errors import KafkaError as AioError
from confluent_kafka import KafkaError, KafkaException, Producer, TopicPartition

from oncelog.base.ids import TopicName
from oncelog.base.ids import TopicPartition as Partition
from oncelog.client.blocking import Client, FetchSettings
from oncelog.client.blocking.transactions import Committed, GroupMetadata, TransactionalProducer, TransactionSettings
from oncelog.client.errors import ClientError, ConnectionLost, RequestTimedOut, TransactionFailed
from oncelog.client.machine.consumed_records import read_fetched
from oncelog.client.programs.group import committed_offsets
from tests.cluster.group_members import (
    AiokafkaMember,
    ConfluentMember,
    KafkaPythonMember,
    MemberClient,
    OncelogMember,
    Process,
    Role,
    Taken,
    following,
)
from tests.load import QUICK
from tests.waiting import HANG_S

OUTPUT: Final = "processed"
OUTPUT_PARTITIONS: Final = 4
_REQUEST_MS: Final = 5_000


class GivenUp(Exception):
    """The producer is fenced, or the end of its transaction is unknown."""


def timeout_ms(role: Role) -> int:
    """The transaction time-out: longer than a session, so that a frozen member may come back to an open transaction,
    and shorter than some are frozen."""
    return role.session_ms * 6 // 5


def results(role: Role, taken: Iterable[Taken]) -> Iterator[tuple[int, bytes]]:
    """The output partition and value of each record: `PARTITION:OFFSET MEMBER PROTOCOL PROCESS`."""
    for record in taken:
        value = f"{record.partition}:{record.offset} {role.transactional_id} {role.strategy} {os.getpid()}"
        yield record.partition % OUTPUT_PARTITIONS, value.encode()


def first_offsets(taken: Iterable[Taken]) -> dict[int, int]:
    """Partition → first offset taken, from where a member goes on after an abort."""
    offsets: dict[int, int] = {}
    for record in taken:
        offsets[record.partition] = min(record.offset, offsets.get(record.partition, record.offset))
    return offsets


class TransactionalConfluentMember(ConfluentMember):
    """librdkafka, transactions of V1."""

    def __init__(self, role: Role) -> None:
        self._producer = Producer(
            {
                "bootstrap.servers": role.bootstrap,
                "transactional.id": role.transactional_id,
                "transaction.timeout.ms": timeout_ms(role),
                "message.timeout.ms": timeout_ms(role),
                "linger.ms": 1,
                # See tests.interop.consistency.with_confluent.
                "metadata.recovery.strategy": "none",
                **QUICK,
                "socket.timeout.ms": timeout_ms(role),
            }
        )
        _retry(lambda: self._producer.init_transactions(HANG_S))
        super().__init__(role)

    def _commit(self) -> Mapping[int, int]:
        producer, offsets = self._producer, following(self._taken)
        # The identity of the member when it took the records.
        group = self._consumer.consumer_group_metadata()
        positions = [TopicPartition(self._role.topic, *item) for item in offsets.items()]
        try:
            producer.begin_transaction()
            for partition, value in results(self._role, self._taken):
                producer.produce(OUTPUT, value, partition=partition)
            _retry(lambda: producer.send_offsets_to_transaction(positions, group, HANG_S))
            _retry(lambda: producer.commit_transaction(HANG_S))
        except KafkaException as failure:
            # A transaction that failed while its records were sent refuses the next one with _STATE, without the flag.
            error = failure.args[0]
            if not error.txn_requires_abort() and error.code() != KafkaError._STATE:
                raise GivenUp(str(failure)) from failure
            try:
                _retry(lambda: producer.abort_transaction(HANG_S))
            except KafkaException as second:
                raise GivenUp(f"{second}, aborting after {failure}") from second
            self._rewind()
            return {}
        return offsets

    def _rewind(self) -> None:
        held = {partition.partition for partition in self._consumer.assignment()}
        for partition, offset in first_offsets(self._taken).items():
            if partition in held:
                self._consumer.seek(TopicPartition(self._role.topic, partition, offset))


def _retry(call: Callable[[], object]) -> None:
    deadline_s = time.monotonic() + HANG_S
    while True:
        try:
            call()
        except KafkaException as failure:
            if not failure.args[0].retriable() or time.monotonic() > deadline_s:
                raise
            time.sleep(0.01)
        else:
            return


class TransactionalOncelogMember(OncelogMember):
    """Our own, transactions of V2."""

    fetch = FetchSettings(max_wait_ms=50, read_committed=True)

    def __init__(self, role: Role) -> None:
        super().__init__(role)
        self._role = role
        self._topic = TopicName(role.topic)
        assert role.transactional_id is not None
        self._producer = TransactionalProducer(
            self._client, TransactionSettings(role.transactional_id, timeout_ms(role))
        )
        self._producer.initialize()

    def step(self, process: Process) -> Mapping[int, int]:
        """See the protocol."""
        try:
            fetched = self._consumer.poll(100)
        except ClientError:
            return {}
        taken = [Taken(item.partition.partition, record.offset) for item in fetched for record in read_fetched(item)]
        if not taken:
            return {}
        group = self._consumer.group_metadata
        process(taken)
        try:
            has_committed = self._transact(taken, group)
        except ClientError as failure:
            raise GivenUp(str(failure)) from failure
        if not has_committed:
            self._consumer.seek({Partition(self._topic, index): at for index, at in first_offsets(taken).items()})
            return {}
        return following(taken)

    def _transact(self, taken: Sequence[Taken], group: GroupMetadata) -> bool:
        """True if the transaction was committed; otherwise it was aborted."""
        offsets = {Partition(self._topic, partition): Committed(at) for partition, at in following(taken).items()}
        try:
            self._producer.begin()
            for partition, value in results(self._role, taken):
                self._producer.send(OUTPUT, value, partition=partition)
            _until_known(lambda: self._producer.send_offsets(offsets, group))
            _until_known(self._producer.commit)
        except TransactionFailed:
            _until_known(self._producer.abort)
            return False
        return True

    def close(self) -> None:
        """Leaves the group."""
        self._consumer.close(commit=False)
        self._producer.close()
        self._client.close()


def _until_known(call: Callable[[], object]) -> None:
    """Again while an answer is missing."""
    deadline_s = time.monotonic() + HANG_S
    while True:
        try:
            call()
        except (RequestTimedOut, ConnectionLost):
            if time.monotonic() > deadline_s:
                raise
        else:
            return


class TransactionalKafkaPythonMember(KafkaPythonMember):
    """kafka-python, transactions of V1. Its producer (3.0.12) keeps the offsets of an aborted transaction and commits
    them with the next one, when others may own the partitions: so it gives up instead of aborting. It also forgets a
    request whose coordinator's connection fails while it waits for it, and then waits for the answer for ever."""

    isolation_level = "read_committed"

    def __init__(self, role: Role) -> None:
        from kafka import KafkaProducer

        self._producer = KafkaProducer(
            bootstrap_servers=role.bootstrap.split(","),
            transactional_id=role.transactional_id,
            transaction_timeout_ms=timeout_ms(role),
            request_timeout_ms=_REQUEST_MS,
            reconnect_backoff_ms=10,
            reconnect_backoff_max_ms=100,
            retry_backoff_ms=20,
        )
        self._producer.init_transactions()
        super().__init__(role)

    def _commit(self, taken: Sequence[Taken]) -> Mapping[int, int]:
        from kafka.errors import KafkaError

        group, offsets = self._consumer.group_metadata(), following(taken)
        try:
            self._producer.begin_transaction()
            for partition, value in results(self._role, taken):
                self._producer.send(OUTPUT, value, partition=partition)
            self._producer.send_offsets_to_transaction(self._held(offsets), group)
            self._producer.commit_transaction()
        except KafkaError as failure:
            raise GivenUp(repr(failure)) from failure
        return offsets

    def close(self) -> None:
        """Leaves the group."""
        super().close()
        self._producer.close(timeout=1)


class TransactionalAiokafkaMember(AiokafkaMember):
    """aiokafka, transactions of V0, without KIP-447: its commits do not name the member, and it fetches offsets that a
    transaction is about to change.

    So a member that is thrown out could commit all the same: this one lives long without heartbeats, and is neither
    killed nor frozen. The offsets from which it begins are those that our client waits for."""

    settings: Mapping[str, Any] = {"isolation_level": "read_committed", "session_timeout_ms": 30_000}

    def __init__(self, role: Role) -> None:
        self._producer: Any = None
        self._rebalances = 0
        self._polled_after = 0
        self._is_joining = True
        self._begins: dict[AioPartition, int] = {}
        super().__init__(role)

    async def _start(self) -> None:
        self._producer = AIOKafkaProducer(
            bootstrap_servers=self._role.bootstrap,
            transactional_id=self._role.transactional_id,
            transaction_timeout_ms=timeout_ms(self._role),
            linger_ms=1,
            request_timeout_ms=_REQUEST_MS,
            retry_backoff_ms=20,
        )
        await self._producer.start()
        await super()._start()

    async def on_partitions_revoked(self, revoked: Iterable[AioPartition]) -> None:
        """Ends the transaction at work; there is no other until partitions are assigned."""
        async with self._at_work:
            self._rebalances += 1
            self._is_joining = True

    async def on_partitions_assigned(self, assigned: Iterable[AioPartition]) -> None:
        """Begins where the transactions of former owners have left off."""
        await super().on_partitions_assigned(assigned)
        offsets = await asyncio.to_thread(self._stable_offsets, [place.partition for place in assigned])
        self._begins = {place: offsets.get(place.partition, 0) for place in assigned}
        self._seek(self._begins)
        self._rebalances += 1
        self._is_joining = False

    def _seek(self, positions: Mapping[AioPartition, int]) -> None:
        for place, offset in positions.items():
            if place in self._consumer.assignment():
                self._consumer.seek(place, offset)

    def _stable_offsets(self, partitions: Sequence[int]) -> dict[int, int]:
        places = [Partition(TopicName(self._role.topic), partition) for partition in partitions]
        with Client(self._role.bootstrap) as client:
            committed = committed_offsets(client, self._role.group, places, require_stable=True)
        return {place.partition: offset.offset for place, offset in committed.items()}

    async def _step(self, process: Process) -> Mapping[int, int]:
        self._polled_after = self._rebalances
        return await super()._step(process)

    def _is_current(self, taken: Sequence[Taken]) -> bool:
        """Not if the group was rebalanced meanwhile: the records may be from before."""
        if self._is_joining:
            return False
        if self._polled_after != self._rebalances:
            self._seek(self._begins)
            return False
        return True

    async def _commit(self, taken: Sequence[Taken]) -> Mapping[int, int]:
        offsets = following(taken)
        places = {AioPartition(self._role.topic, partition): offset for partition, offset in offsets.items()}
        try:
            await self._producer.begin_transaction()
            for partition, value in results(self._role, taken):
                await self._producer.send(OUTPUT, value, partition=partition)
            await self._producer.send_offsets_to_transaction(places, self._role.group)
            await self._producer.commit_transaction()
        except (AioError, AssertionError) as failure:  # it asserts that its own state allows what is asked for
            raise GivenUp(repr(failure)) from failure
        return offsets

    def close(self) -> None:
        """The loop with it."""
        if self._producer is not None:
            self._run(self._producer.stop())
        super().close()


TRANSACTIONAL: Final[Mapping[object, Callable[[Role], MemberClient]]] = {
    ConfluentMember: TransactionalConfluentMember,
    AiokafkaMember: TransactionalAiokafkaMember,
    KafkaPythonMember: TransactionalKafkaPythonMember,
    OncelogMember: TransactionalOncelogMember,
}
"""Class of a client → its class in a group that processes exactly once."""
