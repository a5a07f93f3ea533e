"""The asyncio client, unchanged, on the simulator's loop: copies by a group in virtual time, the same each time."""

from __future__ import annotations

import hashlib

import pytest

from oncelog.base.ids import TopicName, TopicPartition
from oncelog.client.aio import (
    AsyncClient,
    AsyncConsumer,
    AsyncGroupConsumer,
    AsyncTransactionalProducer,
    Committed,
    FetchSettings,
    GroupSettings,
    TransactionSettings,
    read_fetched,
)
from oncelog.client.errors import TransactionFailed
from oncelog.sim.virtual.world import ClientHost, Program, World
from oncelog.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest

CONFIG = {
    "transaction.state.log.num.partitions": "1",
    "offsets.topic.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "100",
    "group.min.session.timeout.ms": "1000",
}
QUICK = GroupSettings(session_timeout_ms=2_000, rebalance_timeout_ms=3_000, heartbeat_interval_ms=300)
COMMITTED = FetchSettings(read_committed=True, max_wait_ms=100)
COUNT = 80


async def fill(host: ClientHost) -> None:
    async with host.client() as client, AsyncTransactionalProducer(client, TransactionSettings("fill")) as producer:
        topics = [CreatableTopic(name=name, num_partitions=4, replication_factor=1) for name in ("in", "out")]
        await client.request(CreateTopicsRequest(topics=topics))
        await producer.initialize()
        async with producer.transaction():
            for number in range(COUNT):
                await producer.send("in", b"%d" % number, partition=number % 4)


async def copied(client: AsyncClient) -> list[int]:
    """The values in the copy, in the order of partitions."""
    partitions = [TopicPartition(TopicName("out"), index) for index in range(4)]
    result: dict[TopicPartition, list[int]] = {partition: [] for partition in partitions}
    async with AsyncConsumer(client, COMMITTED) as consumer:
        ends = await consumer.list_offsets(dict.fromkeys(partitions, -1), read_committed=True)
        await consumer.assign(dict.fromkeys(partitions, 0), ends)
        while len(consumer.positions):
            for batch in await consumer.poll():
                result[batch.partition] += [int(r.value or b"") for r in read_fetched(batch, read_committed=True)]
    return [number for values in result.values() for number in values]


def copier(name: str) -> Program:
    async def run(host: ClientHost) -> None:
        async with (
            host.client() as client,
            AsyncTransactionalProducer(client, TransactionSettings(name, timeout_ms=4_000)) as producer,
            AsyncGroupConsumer(client, "g", ["in"], settings=QUICK, fetch=COMMITTED) as consumer,
        ):
            await producer.initialize()
            while not host.stopping:
                for batch in await consumer.poll(200):
                    records = list(read_fetched(batch, read_committed=True))[:5]
                    following = records[-1].offset + 1 if records else batch.next_offset
                    try:
                        async with producer.transaction():
                            for record in records:
                                await producer.send("out", record.value, partition=record.partition)
                            await producer.send_offsets(
                                {batch.partition: Committed(following)}, consumer.group_metadata
                            )
                    except TransactionFailed:
                        following = batch.position
                    consumer.seek({batch.partition: following})
                    await host.sleep(20)

    return run


def simulate(seed: int) -> tuple[list[int], str]:
    world = World(seed, CONFIG)
    trace = hashlib.sha256()
    world.kernel.log = lambda line: trace.update(line.encode())

    async def watch(host: ClientHost) -> list[int]:
        async with host.client() as client:
            while len(result := await copied(client)) < COUNT:
                await host.sleep(100)
            world.stopping = True
            return result

    async def main() -> list[int]:
        world.broker.start_until_up()
        await world.on_host("fill", fill)
        for name in ("a", "b"):
            world.supervise(name, copier(name))
        await world.on_host("pause", lambda host: host.sleep(350))
        world.hosts["a.1"].kill()
        actual = await world.on_host("watch", watch)
        await world.finished()
        return actual

    try:
        return world.run(main(), until_s=60), trace.hexdigest()
    finally:
        world.loop.end()


@pytest.mark.slow
def test_copies_by_a_group_are_exact_over_a_death_and_the_same_each_time() -> None:
    result, trace = simulate(1)
    assert result == [number for index in range(4) for number in range(index, COUNT, 4)]
    assert simulate(1) == (result, trace)
    assert simulate(2)[1] != trace
