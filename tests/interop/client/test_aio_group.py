"""Group consumers over asyncio against our broker: rebalances, fencing, offsets in transactions."""

from __future__ import annotations

import asyncio
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from oncelog.admin.topics import NewTopic, create_topic
from oncelog.base.errors import ErrorCode
from oncelog.base.ids import TopicName, TopicPartition
from oncelog.client.aio import AsyncClient, AsyncGroupConsumer, AsyncProducer, AsyncTransactionalProducer
from oncelog.client.blocking import Client, ClientConfig, FetchSettings
from oncelog.client.errors import BrokerRefused, ClientError, TransactionFailed
from oncelog.client.machine.consumed_records import read_fetched
from oncelog.client.machine.group import GroupSettings
from oncelog.client.machine.offsets import Committed
from oncelog.client.machine.positions import Fetched
from oncelog.client.machine.transaction_values import TransactionSettings
from oncelog.client.programs.group import committed_offsets
from oncelog.testing import Broker

FAST = ClientConfig(retry_backoff_ms=20, unknown_topic_grace_ms=0)
QUICK = GroupSettings(heartbeat_interval_ms=10)
COMMITTED = FetchSettings(read_committed=True, max_wait_ms=50)
ALL = [TopicPartition(TopicName("t"), index) for index in range(4)]
Partitions = tuple[TopicPartition, ...]


def create(broker: Broker, *topics: str) -> None:
    with Client(broker.bootstrap_servers, config=FAST) as client:
        for topic in topics or ("t",):
            create_topic(client, NewTopic(topic, partitions=4))


async def fill(client: AsyncClient, count: int, first: int = 0) -> None:
    async with AsyncProducer(client) as producer:
        for number in range(first, first + count):
            await producer.send("t", b"%d" % number, partition=number % 4)


def numbers(fetched: Sequence[Fetched]) -> list[int]:
    return [int(r.value or b"") for item in fetched for r in read_fetched(item, read_committed=True)]


def share(consumer: AsyncGroupConsumer) -> int:
    return len(consumer.assignment)


async def until_held(consumer: AsyncGroupConsumer, count: int) -> None:
    while share(consumer) != count:
        await consumer.poll(20)


@pytest.mark.slow
def test_two_members_share_a_topic_and_one_takes_over_what_the_other_did_not_do(oncelog_broker: Broker) -> None:
    create(oncelog_broker)
    told: list[tuple[str, int]] = []

    async def assigned(positions: dict[TopicPartition, int]) -> None:
        told.append(("assigned", len(positions)))

    async def revoked(partitions: Partitions) -> None:
        told.append(("revoked", len(partitions)))

    async def run() -> None:
        seen: dict[str, list[int]] = {"first": [], "second": []}
        async with AsyncClient(oncelog_broker.bootstrap_servers, config=FAST) as client:
            await fill(client, 200)

            async def take(name: str, consumer: AsyncGroupConsumer) -> None:
                for fetched in await consumer.poll(20):
                    seen[name] += numbers([fetched])
                    consumer.processed(fetched.partition, fetched.next_offset)

            first = AsyncGroupConsumer(client, "g", ["t"], settings=QUICK, on_assigned=assigned, on_revoked=revoked)
            second = AsyncGroupConsumer(client, "g", ["t"], settings=QUICK)
            while len(seen["first"]) < 200:
                await take("first", first)
            while share(second) != 2 or share(first) != 2:
                await asyncio.gather(take("first", first), take("second", second))
            assert {*first.assignment, *second.assignment} == set(ALL)
            assert seen == {"first": seen["first"], "second": []}, "it was committed before it was given up"
            await fill(client, 200, first=200)
            while len(seen["first"]) + len(seen["second"]) < 400:
                await asyncio.gather(take("first", first), take("second", second))
            await second.close()
            while share(first) != 4:
                await take("first", first)
            await first.close()
            assert sorted(seen["first"] + seen["second"]) == list(range(400))
            committed = await committed_offsets(client, "g")
            assert {p: one.offset for p, one in committed.items()} == dict.fromkeys(ALL, 100)

    asyncio.run(asyncio.wait_for(run(), 30))
    assert told == [
        ("assigned", 4),
        ("revoked", 4),
        ("assigned", 2),
        ("revoked", 2),
        ("assigned", 4),
        ("revoked", 4),
    ]


@pytest.mark.slow
def test_offsets_of_a_generation_that_is_over_are_refused_with_their_transaction(oncelog_broker: Broker) -> None:
    create(oncelog_broker, "t", "out")

    async def run() -> None:
        async with (
            AsyncClient(oncelog_broker.bootstrap_servers, config=FAST) as client,
            AsyncGroupConsumer(client, "g", ["t"], settings=QUICK, fetch=COMMITTED) as zombie,
            AsyncGroupConsumer(client, "g", ["t"], settings=QUICK, fetch=COMMITTED) as other,
            AsyncTransactionalProducer(client, TransactionSettings("z")) as producer,
        ):
            await fill(client, 4)
            await producer.initialize()
            while not (polled := await zombie.poll()):
                pass
            stale, offsets = zombie.group_metadata, {batch.partition: Committed(batch.next_offset) for batch in polled}
            assert stale.generation >= 1
            joining = asyncio.create_task(until_held(other, 2))
            while zombie.group_metadata == stale or not zombie.assignment:
                await zombie.poll(20)
            await joining
            producer.begin()
            await producer.send("out", b"never seen", partition=0)
            with pytest.raises(TransactionFailed) as caught:
                await producer.send_offsets(offsets, stale)
            assert caught.value.code == ErrorCode.ILLEGAL_GENERATION
            await producer.abort()
            mine = {item: Committed(1) for item in zombie.assignment}
            async with producer.transaction():
                await producer.send("out", b"7", partition=0)
                await producer.send_offsets(mine, zombie.group_metadata)
            assert await committed_offsets(client, "g", require_stable=True) == mine
            async with AsyncGroupConsumer(client, "readers", ["out"], fetch=COMMITTED) as reader:
                while not (polled := await reader.poll()):
                    pass
                assert numbers(polled) == [7]

    asyncio.run(asyncio.wait_for(run(), 30))


@pytest.mark.slow
def test_who_is_busy_keeps_its_place_until_it_gives_up_by_itself(oncelog_broker: Broker) -> None:
    """The group waits for the member that works on, which stays alive by heartbeats, and commits before it joins."""
    create(oncelog_broker)

    async def run() -> None:
        async with (
            AsyncClient(oncelog_broker.bootstrap_servers, config=FAST) as client,
            AsyncGroupConsumer(client, "g", ["t"], settings=QUICK) as busy,
            AsyncGroupConsumer(client, "g", ["t"], settings=QUICK) as other,
        ):
            await fill(client, 4)
            while not (polled := await busy.poll()):
                pass
            before = busy.group_metadata
            joining = asyncio.create_task(until_held(other, 2))
            while not busy._membership.news.done():  # called to the rebalance, but it has work to do
                await asyncio.sleep(0)
            assert (busy.group_metadata, len(busy.assignment)) == (before, 4)
            for batch in polled:
                busy.processed(batch.partition, batch.next_offset)
            await busy.commit()
            assert sum(offset.offset for offset in (await committed_offsets(client, "g")).values()) == len(
                numbers(polled)
            )
            while not joining.done():
                await busy.poll(20)
            await joining

    asyncio.run(asyncio.wait_for(run(), 30))


@pytest.mark.slow
def test_a_static_member_comes_back_to_its_partitions_without_a_rebalance(oncelog_broker: Broker) -> None:
    create(oncelog_broker)

    async def run() -> None:
        async with AsyncClient(oncelog_broker.bootstrap_servers, config=FAST) as client:

            def member() -> AsyncGroupConsumer:
                return AsyncGroupConsumer(client, "g", ["t"], settings=GroupSettings(instance_id="one"))

            first = member()
            await until_held(first, 4)
            was = first.group_metadata
            await first.close()
            async with member() as again:
                await until_held(again, 4)
                assert again.group_metadata.generation == was.generation
                assert again.group_metadata.member_id != was.member_id
                again.processed(ALL[0], 0)
                async with member() as usurper:
                    await until_held(usurper, 4)
                    with pytest.raises(BrokerRefused) as caught:
                        await again.commit()
                    assert caught.value.code == ErrorCode.FENCED_INSTANCE_ID

    asyncio.run(asyncio.wait_for(run(), 30))


@pytest.mark.slow
def test_cancelled_polls_a_restart_and_seeking_back(oncelog_broker: Broker) -> None:
    create(oncelog_broker)

    async def run() -> None:
        async with (
            AsyncClient(oncelog_broker.bootstrap_servers, config=FAST) as client,
            AsyncGroupConsumer(client, "g", ["t"], settings=QUICK, fetch=COMMITTED) as consumer,
        ):
            await fill(client, 40)
            seen: list[int] = []
            turn = 0
            while len(seen) < 40:
                task = asyncio.create_task(consumer.poll())
                for _ in range(turn % 13):
                    await asyncio.sleep(0)
                task.cancel()
                (done,), _ = await asyncio.wait([task])
                seen += numbers([] if done.cancelled() else done.result())
                seen += numbers(await consumer.poll(5))
                turn += 1
            assert sorted(seen) == list(range(40))
            await asyncio.to_thread(oncelog_broker.restart)
            consumer.seek({ALL[1]: 9, TopicPartition(TopicName("other"), 0): 3})
            await fill(client, 4, first=40)
            after: list[int] = []
            while len(after) < 5:
                after += numbers(await consumer.poll())
            assert sorted(after) == [37, 40, 41, 42, 43]

    asyncio.run(asyncio.wait_for(run(), 30))


@pytest.mark.slow
def test_where_it_may_not_choose_or_the_offset_is_gone(oncelog_broker: Broker) -> None:
    create(oncelog_broker)

    async def run() -> None:
        async with AsyncClient(oncelog_broker.bootstrap_servers, config=FAST) as client:
            await fill(client, 4)
            async with AsyncGroupConsumer(client, "strict", ["t"], reset="none") as strict:
                for _ in range(2):
                    with pytest.raises(ClientError, match="has no offset for t-0"):
                        await until_held(strict, 1)
            async with AsyncGroupConsumer(client, "g", ["t"]) as consumer:
                await until_held(consumer, 4)
                consumer.seek(dict.fromkeys(ALL, 77))
                again: list[int] = []
                while len(again) < 4:
                    again += numbers(await consumer.poll())
                assert sorted(again) == [0, 1, 2, 3]

    asyncio.run(asyncio.wait_for(run(), 30))


@pytest.mark.slow
def test_the_loop_of_the_guide(oncelog_broker: Broker) -> None:
    create(oncelog_broker, "t", "in", "out")
    guide = (Path(__file__).parents[3] / "docs" / "python-client.md").read_text(encoding="utf-8")
    code = next(part for part in guide.split("```python\n") if part.startswith("from oncelog.client.aio")).split("```")[
        0
    ]
    imports, block = code.split("async with", 1)
    program = f"{imports}\nasync def main():\n" + textwrap.indent(f"async with{block}", "    ")
    names: dict[str, Any] = {}
    exec(program.replace("localhost:9092", oncelog_broker.bootstrap_servers), names)  # our own guide

    async def run() -> None:
        copier = asyncio.create_task(names["main"]())
        async with AsyncClient(oncelog_broker.bootstrap_servers, config=FAST) as client:
            async with AsyncProducer(client) as producer:
                for number in range(20):
                    await producer.send("in", b"%d" % number, key=b"k")
            async with AsyncGroupConsumer(client, "readers", ["out"], fetch=COMMITTED) as reader:
                seen: list[int] = []
                while len(seen) < 20:
                    seen += numbers(await reader.poll())
        copier.cancel()
        await asyncio.wait([copier])
        assert copier.cancelled()
        assert seen == list(range(20))

    asyncio.run(asyncio.wait_for(run(), 30))
