"""Group consumers of the consumer protocol (KIP-848): revocations, conversion, fencing, patterns, transactions."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from typing import Any

import pytest

from oncelog.admin import groups
from oncelog.admin.topics import NewTopic, create_topic
from oncelog.base.errors import ErrorCode
from oncelog.base.ids import TopicPartition
from oncelog.client.aio import AsyncClient, AsyncGroupConsumer, AsyncProducer, AsyncTransactionalProducer
from oncelog.client.blocking import Client, ClientConfig, FetchSettings, GroupConsumer
from oncelog.client.errors import BrokerRefused, TransactionFailed
from oncelog.client.machine.consumed_records import read_fetched
from oncelog.client.machine.group import GroupSettings
from oncelog.client.machine.offsets import Committed
from oncelog.client.machine.positions import Fetched
from oncelog.client.machine.transaction_values import TransactionSettings
from oncelog.client.programs.group import committed_offsets
from oncelog.core.groups.consumer import regular_expressions
from oncelog.testing import Broker
from tests.peers.apache_kafka import ApacheKafka
from tests.waiting import HANG_S

pytestmark = pytest.mark.slow
CONFIG = {
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "3",
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.heartbeat.interval.ms": "100",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.session.timeout.ms": "3000",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.assignment.interval.ms": "0",
}
FAST = ClientConfig(retry_backoff_ms=20, unknown_topic_grace_ms=3_000)
COMMITTED = FetchSettings(read_committed=True, max_wait_ms=50)
CLASSIC = GroupSettings(heartbeat_interval_ms=50)
Partitions = tuple[TopicPartition, ...]
names = itertools.count()


@pytest.fixture(scope="module")
def kafka() -> Iterator[ApacheKafka]:
    with ApacheKafka(heap_mb=320, properties=CONFIG) as running:
        yield running


@pytest.fixture(scope="module")
def oncelog() -> Iterator[Broker]:
    with Broker(CONFIG) as running:
        yield running


@pytest.fixture(params=["oncelog", pytest.param("kafka", marks=pytest.mark.java)])
def servers(request: pytest.FixtureRequest) -> str:
    running: ApacheKafka | Broker = request.getfixturevalue(request.param)
    return running.bootstrap_servers


@pytest.fixture
def topic(servers: str) -> str:
    """A topic of four partitions, and the name of its group."""
    name = f"t{next(names)}"
    create(servers, name)
    return name


def create(servers: str, name: str) -> None:
    with Client(servers, config=FAST) as client:
        create_topic(client, NewTopic(name, partitions=4))


async def fill(client: AsyncClient, topic: str, count: int, first: int = 0) -> None:
    async with AsyncProducer(client) as producer:
        for number in range(first, first + count):
            await producer.send(topic, b"%d" % number, partition=number % 4)


def numbers(fetched: Sequence[Fetched]) -> list[int]:
    return [int(r.value or b"") for item in fetched for r in read_fetched(item, read_committed=True)]


def run(scenario: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(scenario, HANG_S))


class Members:
    """Consumers of one group that read, process and commit, each in a task of its own."""

    def __init__(self, client: AsyncClient, topic: str) -> None:
        self.client = client
        self.topic = topic
        self.seen: Counter[int] = Counter()
        self.told: list[tuple[str, str, int]] = []
        self.tasks: dict[str, asyncio.Task[None]] = {}
        self.consumers: dict[str, AsyncGroupConsumer] = {}

    def start(self, name: str, **options: Any) -> AsyncGroupConsumer:
        def teller(event: str) -> Callable[[Any], Awaitable[None]]:
            async def tell(partitions: Any) -> None:
                self.told.append((name, event, len(partitions)))

            return tell

        self.consumers[name] = consumer = AsyncGroupConsumer(
            self.client,
            self.topic,
            options.pop("topics", [self.topic]),
            on_assigned=teller("assigned"),
            on_revoked=teller("revoked"),
            on_lost=teller("lost"),
            **options,
        )
        self.tasks[name] = asyncio.create_task(self._read(consumer))
        return consumer

    async def stop(self, name: str) -> None:
        self.tasks[name].cancel()
        await asyncio.gather(self.tasks.pop(name), return_exceptions=True)
        await self.consumers.pop(name).close()

    async def until(self, condition: Callable[[], object]) -> None:
        while not condition():
            for task in self.tasks.values():
                if task.done():
                    task.result()
            await asyncio.sleep(0.01)

    async def until_shares_are(self, **counts: int) -> None:
        await self.until(lambda: {n: len(c.assignment) for n, c in self.consumers.items()} == counts)

    async def __aenter__(self) -> Members:
        return self

    async def __aexit__(self, *_: object) -> None:
        for name in list(self.consumers):
            await self.stop(name)

    async def _read(self, consumer: AsyncGroupConsumer) -> None:
        while True:
            for fetched in await consumer.poll(50):
                self.seen.update(numbers([fetched]))
                consumer.processed(fetched.partition, fetched.next_offset)


def test_members_share_a_topic_and_only_what_moves_is_revoked(servers: str, topic: str) -> None:
    async def scenario() -> None:
        async with AsyncClient(servers, config=FAST) as client, Members(client, topic) as members:
            await fill(client, topic, 200)
            first = members.start("first", protocol="consumer")
            await members.until(lambda: len(members.seen) == 200)
            members.start("second")  # it follows the group
            await members.until_shares_are(first=2, second=2)
            await fill(client, topic, 200, first=200)
            await members.until(lambda: len(members.seen) == 400)
            assert first.group_metadata.generation == members.consumers["second"].group_metadata.generation
            await members.stop("second")
            await members.until_shares_are(first=4)
            await members.stop("first")
            assert set(members.seen.values()) == {1}, "each record is read once"
            offsets = await committed_offsets(client, topic)
            assert [committed.offset for committed in offsets.values()] == [100] * 4
            first_was_told = [(event, count) for name, event, count in members.told if name == "first" and count]
            assert first_was_told == [("assigned", 4), ("revoked", 2), ("assigned", 2), ("revoked", 4)]

    run(scenario())


def test_a_classic_group_is_moved_to_the_consumer_protocol_while_it_reads(servers: str, topic: str) -> None:
    async def scenario() -> None:
        async with AsyncClient(servers, config=FAST) as client, Members(client, topic) as members:
            await fill(client, topic, 40)
            members.start("old", settings=CLASSIC)  # a group that is none yet: classic
            await members.until(lambda: len(members.seen) == 40)
            members.start("new", protocol="consumer")
            await members.until_shares_are(old=2, new=2)
            await fill(client, topic, 40, first=40)
            await members.until(lambda: len(members.seen) == 80)
            await members.stop("old")
            follower = members.start("follower")
            await members.until_shares_are(new=2, follower=2)
            assert type(follower._membership._programs).__name__ == "ConsumerMemberPrograms"
            members.start("left", protocol="classic", settings=CLASSIC)
            await members.until(lambda: all(len(c.assignment) >= 1 for c in members.consumers.values()))
            await fill(client, topic, 40, first=80)
            await members.until(lambda: len(members.seen) == 120)

    run(scenario())


def test_a_pattern_finds_topics_now_and_later(servers: str, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(regular_expressions, "LEAST_INTERVAL_MS", 100)  # of our broker, which is in this process
    create(servers, f"{topic}-a")

    async def scenario() -> None:
        async with AsyncClient(servers, config=FAST) as client, Members(client, topic) as members:
            members.start("m", topics=[], pattern=f"{topic}-[ab]")
            await members.until_shares_are(m=4)
            await asyncio.to_thread(create, servers, f"{topic}-b")
            await members.until_shares_are(m=8)
            assert {p.topic for p in members.consumers["m"].assignment} == {f"{topic}-a", f"{topic}-b"}

    run(scenario())


def test_a_static_member_comes_back_and_a_second_of_its_name_is_refused(servers: str, topic: str) -> None:
    static = GroupSettings(instance_id="one")

    async def scenario() -> None:
        async with AsyncClient(servers, config=FAST) as client, Members(client, topic) as members:
            first = members.start("first", protocol="consumer", settings=static)
            await members.until_shares_are(first=4)
            epoch = first.group_metadata.generation
            async with AsyncGroupConsumer(client, topic, [topic], settings=static) as second:
                with pytest.raises(BrokerRefused) as refused:
                    await second.poll(5_000)
                assert refused.value.code == ErrorCode.UNRELEASED_INSTANCE_ID
            await members.stop("first")
            again = members.start("again", settings=static)
            await members.until_shares_are(again=4)
            assert again.group_metadata.generation == epoch, "nothing moved"

    run(scenario())


def test_a_busy_member_loses_its_partitions_and_its_transaction(servers: str, topic: str) -> None:
    """It works longer than its rebalance time-out: others read on, and its offsets are refused."""
    impatient = GroupSettings(rebalance_timeout_ms=1_000)

    async def scenario() -> None:
        lost: list[int] = []

        async def tell(partitions: Partitions) -> None:
            lost.append(len(partitions))

        async with (
            AsyncClient(servers, config=FAST) as client,
            AsyncGroupConsumer(
                client, topic, [topic], protocol="consumer", settings=impatient, fetch=COMMITTED, on_lost=tell
            ) as busy,
            AsyncTransactionalProducer(client, TransactionSettings(topic)) as producer,
            Members(client, topic) as members,
        ):
            await producer.initialize()
            await fill(client, topic, 40)
            while not (batches := await busy.poll()):
                pass
            offsets, stale = {b.partition: Committed(b.next_offset) for b in batches}, busy.group_metadata
            other = members.start("other", fetch=COMMITTED)
            await members.until_shares_are(other=4)
            producer.begin()
            await producer.send(topic, b"1000", partition=0)
            with pytest.raises(TransactionFailed) as refused:
                await producer.send_offsets(offsets, stale)
            assert refused.value.code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION)
            await producer.abort()
            while len(busy.assignment) != 2:
                await busy.poll(50)
            assert lost == [4]
            await members.until(lambda: len(other.assignment) == 2)
            mine = {partition: Committed(7) for partition in busy.assignment}
            async with producer.transaction():
                await producer.send(topic, b"2000", partition=0)
                await producer.send_offsets(mine, busy.group_metadata)
            committed = await committed_offsets(client, topic, require_stable=True)
            assert {p: committed[p].offset for p in mine} == dict.fromkeys(mine, 7)

    run(scenario())


def test_administration_shows_and_refuses_a_group_whose_member_does_not_let_go(servers: str, topic: str) -> None:
    async def scenario() -> None:
        async with AsyncClient(servers, config=FAST) as client:
            async with (
                AsyncGroupConsumer(client, topic, [topic], protocol="consumer") as holder,
                Members(client, topic) as members,
            ):
                while len(holder.assignment) != 4:
                    await holder.poll(50)
                other = members.start("other", protocol="consumer")
                # The holder does not poll, so it gives nothing up.
                while len((described := await groups.describe_group(client, topic)).handovers) != 2:
                    await asyncio.sleep(0.02)
                ids = holder.group_metadata.member_id, other.group_metadata.member_id
                assert {(move.giver, move.receiver) for move in described.handovers} == {ids}
                rows = {member.member_id: member for member in described.members}
                assert [len(rows[member].partitions) for member in ids] == [4, 0]
                assert [(row.member_type, row.topics) for row in rows.values()] == [("consumer", (topic,))] * 2
                assert rows[ids[0]].epoch == holder.group_metadata.generation
                assert described.epoch == described.target_epoch == rows[ids[1]].epoch
                listed = await groups.list_groups(client, ["Reconciling"], ["consumer"])
                assert topic in [row.group for row in listed]
                assert topic not in [row.group for row in await groups.list_groups(client, types=["classic"])]
                with pytest.raises(BrokerRefused, match="still has members"):
                    await groups.execute_reset(client, topic, [groups.ResetRow(topic, 0, None, 0)])
                (outcome,) = await groups.delete_groups(client, [topic])
                assert outcome.error_code == ErrorCode.NON_EMPTY_GROUP
            described = await groups.describe_group(client, topic)
            assert (described.state, described.group_type, described.members) == ("Empty", "consumer", [])
            await groups.execute_reset(client, topic, [groups.ResetRow(topic, 0, None, 0)])
            assert [row.committed for row in await groups.group_lag(client, described)] == [0]
            assert [outcome.error for outcome in await groups.delete_groups(client, [topic])] == [None]

    run(scenario())


def test_refusals_are_raised_with_the_brokers_words(servers: str, topic: str) -> None:
    with Client(servers, config=FAST) as client:
        for code, words, options in (
            (ErrorCode.INVALID_REGULAR_EXPRESSION, "missing closing", {"pattern": "("}),
            (ErrorCode.UNSUPPORTED_ASSIGNOR, "uniform, range", {"settings": GroupSettings(remote_assignor="none")}),
        ):
            with (
                GroupConsumer(client, topic, [topic], protocol="consumer", **options) as member,  # type: ignore[arg-type]  # by name
                pytest.raises(BrokerRefused, match=words) as refused,
            ):
                member.poll()
            assert refused.value.code == code


def test_a_blocking_member_reads_commits_and_shares(servers: str, topic: str) -> None:
    async def write() -> None:
        async with AsyncClient(servers, config=FAST) as client:
            await fill(client, topic, 40)

    run(write())
    with Client(servers, config=FAST) as client:
        seen: list[int] = []
        with GroupConsumer(client, topic, [topic], protocol="consumer") as member:
            while len(seen) < 40:
                for fetched in member.poll(50):
                    seen += numbers([fetched])
                    member.processed(fetched.partition, fetched.next_offset)
            assert (member.has_joined, len(member.assignment), sorted(seen)) == (True, 4, list(range(40)))
            with Client(servers, config=FAST) as own, GroupConsumer(own, topic, [topic]) as other:
                while not (len(member.assignment) == len(other.assignment) == 2):
                    member.poll(20)
                    other.poll(20)
                assert other.has_joined
                assert not [fetched for fetched in other.poll(20) if fetched.records], "it is committed"
        assert {committed.offset for committed in committed_offsets(client, topic).values()} == {10}
