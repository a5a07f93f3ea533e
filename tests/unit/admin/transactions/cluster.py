"""A cluster of two brokers as the administration sees it: answers by rule, no socket. Brokers may be down or refuse."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable
from contextvars import ContextVar
from typing import Any, TypeVar

from oncelog.base.errors import ErrorCode
from oncelog.base.hashing import coordinator_partition
from oncelog.base.ids import NO_TOPIC_ID, TRANSACTION_STATE, BrokerId, LeaderEpoch, TopicName, TopicPartition
from oncelog.client.addresses import Address
from oncelog.client.aio import driver as aio
from oncelog.client.blocking.driver import Driver
from oncelog.client.blocking.system import THIS_MACHINE
from oncelog.client.config import ClientConfig
from oncelog.client.errors import ConnectionLost, UnknownTopic
from oncelog.client.machine.connection import Expected, Response
from oncelog.client.machine.metadata import BrokerInfo, PartitionInfo, TopicInfo
from oncelog.client.machine.versions import Versions
from oncelog.client.programs import Cluster, Program
from oncelog.records.builder import build_batch
from oncelog.records.record import Record
from oncelog.wire.messages import (
    describe_configs,
    describe_producers,
    describe_transactions,
    fetch,
    list_transactions,
    metadata,
)

EVERY_VERSION = Versions(dict.fromkeys(range(100), (0, 20)))
Answer = Callable[[int, Any], Any]
T = TypeVar("T")
DRIVER: ContextVar[str] = ContextVar("driver", default="blocking")
"""The driver of fake clusters; see the fixture in ``conftest``."""


class FakeLink:
    """A link of either driver that answers at once; what a rule raises comes out where a response is waited for."""

    versions = EVERY_VERSION
    is_open = True

    def __init__(self, broker: int, answer: Answer) -> None:
        self.address = Address("fake", broker)
        self.broker, self._answer = broker, answer
        self._sent: list[Any] = []

    def submit(self, message: Any, version: int | None = None) -> int:
        self._sent.append(message)
        return len(self._sent) - 1

    def response(self, correlation_id: int, timeout_ms: int | None = None) -> Any:
        return self._answer(self.broker, self._sent[correlation_id])

    arrived = response

    def read(self, response: Any, read: Callable[[Any], Any]) -> Any:
        """An answer as a reader of bytes reads it, and the answer itself for one of messages."""
        if read is Response.decode:
            return response
        expected = Expected(0, response.API_KEY, response.MAX_VERSION, type(response))
        return read(Response(expected, memoryview(b"".join(response.encode(response.MAX_VERSION)))))

    async def ask(self, message: Any, version: int | None, timeout_ms: int | None, read: Callable[[Any], Any]) -> Any:
        """Answer the driver of asyncio."""
        return self.read(self.response(self.submit(message)), read)

    def abort(self) -> None:
        """Nothing is open."""


class FakePrograms(Cluster):
    """The programs of a cluster whose view is made by tests."""

    def __init__(self, answer: Answer) -> None:
        self.driver = Driver(ClientConfig(), THIS_MACHINE)
        super().__init__([Address("fake", 1)], ClientConfig(), self.driver)
        self.down: set[int] = set()
        self.fakes = {index: FakeLink(index, answer) for index in (1, 2)}

    def refresh(self) -> Program[None]:
        """Nothing changes by itself."""
        yield from ()

    refresh_brokers = refresh

    def metadata(
        self, topics: Iterable[str] | None = None, *, create: bool = False
    ) -> Program[dict[TopicName, TopicInfo]]:
        yield from ()
        return {TopicName(name): info for name, info in self.view.topics.items() if topics is None or name in topics}

    def topic(self, name: str, *, create: bool = False) -> Program[TopicInfo]:
        yield from ()
        if name not in self.view.topics:
            raise UnknownTopic(f"topic {name!r}")
        return self.view.topics[name]

    def link(self, broker: Any = "any") -> Program[Any]:
        yield from ()
        chosen = broker if isinstance(broker, int) else next(index for index in (1, 2) if index not in self.down)
        if chosen in self.down or chosen not in self.fakes:
            raise ConnectionLost(f"broker {chosen} cannot be reached")
        return self.fakes[chosen]

    def pause(self, attempt: int) -> Program[None]:
        """No time passes here."""
        yield from ()


class FakeCluster:
    """``transactions``: partition → producers; ``ids``: id → its row, kept by the broker its hash names.

    ``down`` brokers lose every connection, ``loading`` coordinators have not read their log, ``denied`` shows no id.
    ``told``: what a broker's metadata say of a partition, where that is not what the view has.
    """

    def __init__(self) -> None:
        self.cluster = FakePrograms(self._answer)
        self.view, self.down = self.cluster.view, self.cluster.down
        self.view.brokers = {index: BrokerInfo(BrokerId(index), Address("fake", index)) for index in (1, 2)}
        self.transactions: dict[TopicPartition, list[describe_producers.ProducerState]] = {}
        self.ids: dict[str, describe_transactions.TransactionState] = {}
        self.loading: set[int] = set()
        self.denied = False
        self.not_leader: set[TopicPartition] = set()
        self.told: dict[tuple[int, TopicPartition], metadata.MetadataResponsePartition] = {}
        self.registered = {1, 2}
        self.batch_bytes: dict[TopicPartition, int] = {}
        self.asked: list[tuple[int, Any]] = []
        self.rules: dict[type[Any], Answer] = {
            describe_producers.DescribeProducersRequest: self._describe_producers,
            list_transactions.ListTransactionsRequest: self._list_transactions,
            describe_transactions.DescribeTransactionsRequest: self._describe_transactions,
            fetch.FetchRequest: self._fetch,
            describe_configs.DescribeConfigsRequest: self._describe_configs,
            metadata.MetadataRequest: self._metadata,
        }
        self.lead({TopicPartition(TRANSACTION_STATE, index): 1 + index % 2 for index in range(4)})

    def lead(self, leaders: dict[TopicPartition, int], leader_epoch: int = 0) -> None:
        for (topic, index), leader in leaders.items():
            before = self.view.topics.get(topic)
            partitions = dict(before.partitions) if before else {}
            partitions[index] = PartitionInfo(index, BrokerId(leader), LeaderEpoch(leader_epoch), (1, 2))
            self.view.topics[topic] = TopicInfo(topic, NO_TOPIC_ID, partitions)

    def open(self, partition: TopicPartition, producer_id: int, **changes: Any) -> None:
        """An open transaction from offset 10 on, its producer at epoch 0."""
        fields: dict[str, Any] = {"producer_epoch": 0, "last_timestamp": 1_000, "current_txn_start_offset": 10}
        state = describe_producers.ProducerState(producer_id=producer_id, **(fields | changes))
        self.transactions.setdefault(partition, []).append(state)
        if self.view.partition(partition) is None:
            self.lead({partition: 1 + partition.partition % 2})

    def know(self, name: str, producer_id: int, *partitions: TopicPartition, state: str = "Ongoing") -> None:
        """An id at epoch 0 with a time-out of a minute."""
        topics = [
            describe_transactions.TopicData(topic=partition.topic, partitions=[partition.partition])
            for partition in partitions
        ]
        self.ids[name] = describe_transactions.TransactionState(
            transactional_id=name,
            producer_id=producer_id,
            transaction_state=state,
            transaction_timeout_ms=60_000,
            transaction_start_time_ms=1_000,
            topics=topics,
        )

    def run(self, program: Program[T]) -> T:
        """Carry out a program with the driver that this run of the test is about."""
        if DRIVER.get() == "blocking":
            return self.cluster.driver.run(program)
        return asyncio.run(aio.Driver(self.cluster.config, random.Random(0), self.cluster.driver.wall_ms).run(program))

    def _answer(self, broker: int, message: Any) -> Any:
        self.asked.append((broker, message))
        return self.rules[type(message)](broker, message)

    def _describe_configs(self, broker: int, message: Any) -> Any:
        result = describe_configs.DescribeConfigsResourceResult(name="transaction.max.timeout.ms", value="600000")
        return describe_configs.DescribeConfigsResponse(
            results=[describe_configs.DescribeConfigsResult(configs=[result])]
        )

    def _describe_producers(self, broker: int, message: Any) -> Any:
        topics = []
        for topic in message.topics:
            partitions = []
            for index in topic.partition_indexes:
                partition = TopicPartition(topic.name, index)
                code = ErrorCode.NOT_LEADER_OR_FOLLOWER if partition in self.not_leader else ErrorCode.NONE
                self.not_leader.discard(partition)
                producers = [] if code else self.transactions.get(partition, [])
                partitions.append(
                    describe_producers.PartitionResponse(
                        partition_index=index, error_code=code, active_producers=producers
                    )
                )
            topics.append(describe_producers.TopicResponse(name=topic.name, partitions=partitions))
        return describe_producers.DescribeProducersResponse(topics=topics)

    def tell(self, broker: int, partition: TopicPartition, leader: int, leader_epoch: int) -> None:
        """Let a broker's metadata name another leader."""
        entry = metadata.MetadataResponsePartition(
            partition_index=partition.partition, leader_id=leader, leader_epoch=leader_epoch, replica_nodes=[1, 2]
        )
        self.told[broker, partition] = entry

    def _metadata(self, broker: int, message: Any) -> Any:
        brokers = [
            metadata.MetadataResponseBroker(node_id=index, host="fake", port=index) for index in sorted(self.registered)
        ]
        topics = []
        for name in [topic.name for topic in message.topics]:
            info = self.view.topics[name]
            entries = [
                metadata.MetadataResponsePartition(
                    partition_index=index,
                    leader_id=one.leader,
                    leader_epoch=one.leader_epoch,
                    replica_nodes=list(one.replicas),
                )
                for index, one in info.partitions.items()
            ]
            values = [self.told.get((broker, TopicPartition(name, entry.partition_index)), entry) for entry in entries]
            topics.append(metadata.MetadataResponseTopic(name=name, topic_id=bytes(info.topic_id), partitions=values))
        return metadata.MetadataResponse(brokers=brokers, topics=topics)

    def _list_transactions(self, broker: int, message: Any) -> Any:
        if broker in self.loading:
            return list_transactions.ListTransactionsResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        return list_transactions.ListTransactionsResponse(
            transaction_states=[
                list_transactions.TransactionState(
                    transactional_id=name, producer_id=one.producer_id, transaction_state=one.transaction_state
                )
                for name, one in self.ids.items()
                if not self.denied and one.producer_id in message.producer_id_filters and self._keeper(name) == broker
            ]
        )

    def _describe_transactions(self, broker: int, message: Any) -> Any:
        denied = describe_transactions.TransactionState(error_code=ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        unknown = describe_transactions.TransactionState(error_code=ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
        answers = []
        for name in message.transactional_ids:
            one = denied if self.denied else self.ids.get(name, unknown)
            one.transactional_id = name
            answers.append(one)
        return describe_transactions.DescribeTransactionsResponse(transaction_states=answers)

    def _fetch(self, broker: int, message: Any) -> Any:
        responses = []
        room = True
        for topic in message.topics:
            partitions = []
            for partition in topic.partitions:
                size = self.batch_bytes.get(TopicPartition(topic.topic, partition.partition), 100)
                alone = room and len(topic.partitions) == len(message.topics) == 1
                batch = build_batch([Record(partition.fetch_offset, 1_000, None, b"v" * size, ())])
                partitions.append(
                    fetch.PartitionData(
                        partition_index=partition.partition,
                        high_watermark=20,
                        last_stable_offset=partition.fetch_offset,
                        records=batch if size <= partition.partition_max_bytes or alone else b"",
                    )
                )
            responses.append(fetch.FetchableTopicResponse(topic=topic.topic, partitions=partitions))
        return fetch.FetchResponse(responses=responses)

    def _keeper(self, name: str) -> int:
        return 1 + coordinator_partition(name, 4) % 2
