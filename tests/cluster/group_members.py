"""Members of consumer groups, each by another client: they take records, have them processed, and commit after that.

A member owns what its group assigns to it, and says when that begins. What it has taken of a partition that it loses
before the commit it does not commit: the next owner takes it again.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections import defaultdict
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final, NamedTuple, Protocol, TypeVar

from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener
from aiokafka import TopicPartition as AioPartition
from aiokafka.coordinator.assignors.range import RangePartitionAssignor as AioRange
from aiokafka.errors import IllegalStateError
from aiokafka.errors import KafkaError as AioError
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from oncelog.client.blocking import Client, ClientConfig, FetchSettings
from oncelog.client.blocking.group import GroupConsumer
from oncelog.client.errors import ClientError
from oncelog.client.machine.consumed_records import read_fetched
from oncelog.client.machine.group import GroupSettings
from tests.load import QUICK
from tests.waiting import HANG_S, wait_until

_MOST: Final = 50
_WAIT_S: Final = 0.1
_HEARTBEAT_MS: Final = 500
_REQUEST_MS: Final = 10_000
CONSUMER: Final = "consumer"
"""The strategy of members of the new protocol (KIP-848): the coordinator's."""
T = TypeVar("T")


class Taken(NamedTuple):
    """A record that a member has taken."""

    partition: int
    offset: int


@dataclass(frozen=True)
class Role:
    """The member that a client is. ``instance`` None: a dynamic one."""

    bootstrap: str
    topic: str
    group: str
    strategy: str
    instance: str | None
    session_ms: int
    assigned: Callable[[Iterable[int]], None]
    """Told of partitions before their offsets are fetched."""
    transactional_id: str | None = None
    """Of a member that commits in transactions (`transactional_members`)."""


Process = Callable[[Sequence[Taken]], None]


class MemberClient(Protocol):
    """One consumer, from one thread."""

    def step(self, process: Process) -> Mapping[int, int]:
        """Take some records, process them, commit; the offsets acknowledged."""

    def close(self) -> None:
        """Leave the group; a static member stays in it."""


def following(taken: Iterable[Taken]) -> dict[int, int]:
    """Partition → next offset."""
    results: dict[int, int] = {}
    for record in taken:
        results[record.partition] = max(record.offset + 1, results.get(record.partition, 0))
    return results


class ConfluentMember:
    """librdkafka; its callbacks come inside of poll."""

    def __init__(self, role: Role) -> None:
        self._role = role
        self._taken: list[Taken] = []
        self._consumer = self._joined()

    def _joined(self) -> Consumer:
        role = self._role
        static = {"group.instance.id": role.instance} if role.instance else {}
        classic = {
            "partition.assignment.strategy": role.strategy,
            "session.timeout.ms": role.session_ms,
            "heartbeat.interval.ms": _HEARTBEAT_MS,
        }
        consumer = Consumer(
            {
                "bootstrap.servers": role.bootstrap,
                "group.id": role.group,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "fetch.wait.max.ms": 50,
                **({"group.protocol": "consumer"} if role.strategy == CONSUMER else classic),
                **static,
                **QUICK,
            }
        )
        consumer.subscribe([role.topic], on_assign=self._gained, on_revoke=self._lost, on_lost=self._lost)
        return consumer

    def _gained(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        self._role.assigned([partition.partition for partition in partitions])

    def _lost(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        gone = {partition.partition for partition in partitions}
        self._taken = [batch for batch in self._taken if batch.partition not in gone]

    def step(self, process: Process) -> Mapping[int, int]:
        """One record after the other: a batch may contain what was fetched before a rebalance."""
        self._taken = []
        message = self._consumer.poll(_WAIT_S)
        while message is not None:
            error = message.error()
            if error is None:
                self._taken.append(Taken(message.partition() or 0, message.offset() or 0))
            elif error.code() == KafkaError._FATAL:
                # In the new protocol an instance id is taken until its last owner has left, or its session has ended.
                self._consumer.close()
                self._consumer = self._joined()
                return {}
            message = self._consumer.poll(0) if len(self._taken) < _MOST else None
        if not self._taken:
            return {}
        process(self._taken)
        return self._commit()

    def _commit(self) -> Mapping[int, int]:
        offsets = [TopicPartition(self._role.topic, *item) for item in following(self._taken).items()]
        try:
            done = self._consumer.commit(offsets=offsets, asynchronous=False)
        except KafkaException:
            return {}
        return {record.partition: record.offset for record in done or [] if record.error is None}

    def close(self) -> None:
        """Gives up its partitions, too."""
        self._consumer.close()


class AiokafkaMember(ConsumerRebalanceListener):  # type: ignore[misc]  # it has no types
    """aiokafka on a loop of its own, which has to turn for heartbeats; who loses partitions waits for their commit."""

    settings: Mapping[str, Any] = {}
    """Further ones of its consumer."""

    def __init__(self, role: Role) -> None:
        logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
        self._role = role
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._at_work = asyncio.Lock()
        self._consumer: Any = None
        try:
            self._run(self._start())
        except BaseException:
            self.close()
            raise

    async def _start(self) -> None:
        static = {"group_instance_id": self._role.instance} if self._role.instance else {}
        self._consumer = AIOKafkaConsumer(
            bootstrap_servers=self._role.bootstrap,
            group_id=self._role.group,
            partition_assignment_strategy=[AioRange],
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            heartbeat_interval_ms=_HEARTBEAT_MS,
            fetch_max_wait_ms=50,
            retry_backoff_ms=20,
            request_timeout_ms=_REQUEST_MS,
            **static,
            **{"session_timeout_ms": self._role.session_ms, **self.settings},
        )
        self._consumer.subscribe([self._role.topic], listener=self)
        await self._consumer.start()

    async def on_partitions_revoked(self, revoked: Iterable[AioPartition]) -> None:
        """Called before the group is joined again."""
        async with self._at_work:
            pass

    async def on_partitions_assigned(self, assigned: Iterable[AioPartition]) -> None:
        """Called as soon as the assignment is known."""
        self._role.assigned([partition.partition for partition in assigned])

    def step(self, process: Process) -> Mapping[int, int]:
        """See the protocol."""
        return self._run(self._step(process))

    async def _step(self, process: Process) -> Mapping[int, int]:
        """``getmany`` waits for the end of a rebalance without its time-out: nobody may wait for it meanwhile."""
        try:
            getmany = await self._consumer.getmany(timeout_ms=_WAIT_S * 1000, max_records=_MOST)
        except AioError:
            return {}
        taken = [Taken(record.partition, record.offset) for records in getmany.values() for record in records]
        if not taken:
            return {}
        async with self._at_work:
            if not self._is_current(taken):
                return {}
            process(taken)
            return await self._commit(taken)

    def _is_current(self, taken: Sequence[Taken]) -> bool:
        """True unless others may own the records' partitions by now."""
        return True

    async def _commit(self, taken: Sequence[Taken]) -> Mapping[int, int]:
        offsets = following(taken)
        try:
            await self._consumer.commit({AioPartition(self._role.topic, index): at for index, at in offsets.items()})
        except (AioError, IllegalStateError):
            return {}
        return offsets

    def close(self) -> None:
        """The loop with it."""
        with contextlib.suppress(AioError):
            if self._consumer is not None:
                self._run(self._consumer.stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _run(self, call: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(call, self._loop).result(HANG_S)


class KafkaPythonMember:
    """kafka-python; only its heartbeats have a thread."""

    isolation_level = "read_uncommitted"

    def __init__(self, role: Role) -> None:
        from kafka import KafkaConsumer
        from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
        from kafka.coordinator.assignors.range import RangePartitionAssignor

        logging.getLogger("kafka").setLevel(logging.CRITICAL)
        assignors = {"range": RangePartitionAssignor, "cooperative-sticky": CooperativeStickyAssignor}
        self._role = role
        self._consumer = KafkaConsumer(
            bootstrap_servers=role.bootstrap.split(","),
            group_id=role.group,
            group_instance_id=role.instance,
            partition_assignment_strategy=[assignors[role.strategy]],
            enable_auto_commit=False,
            isolation_level=self.isolation_level,
            auto_offset_reset="earliest",
            session_timeout_ms=role.session_ms,
            heartbeat_interval_ms=_HEARTBEAT_MS,
            fetch_max_wait_ms=50,
            request_timeout_ms=_REQUEST_MS,
            reconnect_backoff_ms=10,
            reconnect_backoff_max_ms=100,
            retry_backoff_ms=20,
            max_poll_records=_MOST,
        )
        self._consumer.subscribe([role.topic], listener=self._listener())
        wait_until(self._knows, f"{role.topic}, of which kafka-python has to know before it joins")

    def _knows(self) -> bool:
        """See `tests.peers.clients.kafka_python.know`: its member may hang otherwise."""
        from kafka.errors import KafkaError

        with contextlib.suppress(KafkaError):
            return bool(self._consumer.partitions_for_topic(self._role.topic))
        return False

    def _listener(self) -> Any:
        from kafka import ConsumerRebalanceListener

        told = self._role.assigned

        class Listener(ConsumerRebalanceListener):  # type: ignore[misc]  # it has no types
            def on_partitions_revoked(self, revoked: Iterable[Any]) -> None:
                pass

            def on_partitions_assigned(self, assigned: Iterable[Any]) -> None:
                told([batch.partition for batch in assigned])

        return Listener()

    def step(self, process: Process) -> Mapping[int, int]:
        """See the protocol."""
        from kafka.errors import KafkaError

        try:
            polled = self._consumer.poll(timeout_ms=_WAIT_S * 1000)
        except KafkaError:
            return {}
        taken = [Taken(record.partition, record.offset) for records in polled.values() for record in records]
        if not taken:
            return {}
        process(taken)
        return self._commit(taken)

    def _commit(self, taken: Sequence[Taken]) -> Mapping[int, int]:
        from kafka.errors import KafkaError

        offsets = following(taken)
        try:
            self._consumer.commit(self._held(offsets))
        except KafkaError:
            return {}
        return offsets

    def _held(self, offsets: Mapping[int, int]) -> Any:
        from kafka import OffsetAndMetadata
        from kafka import TopicPartition as Partition

        return {Partition(self._role.topic, index): OffsetAndMetadata(at, "", -1) for index, at in offsets.items()}

    def close(self) -> None:
        """Without a last commit."""
        self._consumer.close(autocommit=False)


class OncelogMember:
    """Our own, blocking; it commits what was processed before it gives partitions up."""

    fetch = FetchSettings(max_wait_ms=50)

    def __init__(self, role: Role) -> None:
        self._told = role.assigned
        config = ClientConfig(retry_backoff_ms=10, retry_backoff_max_ms=100, request_timeout_ms=_REQUEST_MS)
        self._client = Client(role.bootstrap, config=config)
        self._consumer = GroupConsumer(
            self._client,
            role.group,
            [role.topic],
            settings=GroupSettings(
                session_timeout_ms=role.session_ms, heartbeat_interval_ms=_HEARTBEAT_MS, instance_id=role.instance
            ),
            fetch=self.fetch,
            on_assigned=lambda positions: self._told([position.partition for position in positions]),
            protocol="consumer" if role.strategy == CONSUMER else "classic",
        )

    def step(self, process: Process) -> Mapping[int, int]:
        """``commit`` does not say that it was refused: the consumer has to join again then."""
        taken: dict[Any, list[Taken]] = defaultdict(list)
        try:
            for fetched in self._consumer.poll(int(_WAIT_S * 1000)):
                records = [Taken(fetched.partition.partition, record.offset) for record in read_fetched(fetched)]
                if records:
                    taken[fetched.partition] += records
            for partition, records in taken.items():
                process(records)
                self._consumer.processed(partition, records[-1].offset + 1)
            self._consumer.commit()
        except ClientError:
            return {}
        return following(chain(*taken.values())) if self._consumer.has_joined else {}

    def close(self) -> None:
        """Leaves the group."""
        self._consumer.close()
        self._client.close()


def member_of_mixed_group(role: Role) -> MemberClient:
    """Of a group of both protocols: librdkafka in the new one, kafka-python in the classic one."""
    return (ConfluentMember if role.strategy == CONSUMER else KafkaPythonMember)(role)


@dataclass(frozen=True)
class Kind:
    """How the members of a group are."""

    make: Callable[[Role], MemberClient]
    strategy: str = "range"
    is_static: bool = False
    other_strategy: str | None = None
    """The strategy of every second member."""

    def strategy_of(self, number: int) -> str:
        return self.strategy if self.other_strategy is None or number % 2 == 0 else self.other_strategy


GROUPS_BY_NAME: Final[Mapping[str, Kind]] = {
    "confluent-range": Kind(ConfluentMember),
    "confluent-cooperative": Kind(ConfluentMember, "cooperative-sticky"),
    "confluent-static": Kind(ConfluentMember, is_static=True),
    "aiokafka": Kind(AiokafkaMember),
    "aiokafka-static": Kind(AiokafkaMember, is_static=True),
    "kafka-python": Kind(KafkaPythonMember),
    "kafka-python-cooperative": Kind(KafkaPythonMember, "cooperative-sticky"),
    "oncelog": Kind(OncelogMember),
    "confluent-consumer": Kind(ConfluentMember, CONSUMER),
    "confluent-consumer-static": Kind(ConfluentMember, CONSUMER, is_static=True),
    "oncelog-consumer": Kind(OncelogMember, CONSUMER),
    "mixed": Kind(member_of_mixed_group, CONSUMER, other_strategy="range"),
}
