"""Records fetched for an assignment are gone with the assignment, whenever the answer came."""

from __future__ import annotations

from oncelog.base.ids import TopicName, TopicPartition
from oncelog.client.aio.consumer import AsyncConsumer
from oncelog.client.aio.producer import AsyncProducer
from oncelog.sim.virtual.world import ClientHost, World
from oncelog.sim.workloads.kit.requests import create_topics
from oncelog.sim.workloads.kit.workload import Topic

ONE, OTHER = TopicPartition(TopicName("t"), 0), TopicPartition(TopicName("t"), 1)


def run(program: object) -> None:
    world = World(1, {})
    world.broker.start_until_up()
    world.run(world.on_host("client", program))  # type: ignore[arg-type]  # one of the programs below


async def fill(host: ClientHost) -> None:
    async with host.client() as client, AsyncProducer(client) as producer:
        await create_topics(client, [Topic("t", 2)])
        for partition in (ONE, OTHER):
            for number in range(3):
                await producer.send("t", b"%d" % number, partition=partition.partition)


async def begun(consumer: AsyncConsumer) -> None:
    """A fetch of the first partition was asked for, and its answer comes while nobody polls."""
    await consumer.assign({ONE: 0})
    assert await consumer.poll(0) == []


def test_an_answer_that_came_before_another_assignment_is_not_handed_out_under_it() -> None:
    async def program(host: ClientHost) -> None:
        await fill(host)
        async with host.client() as client, AsyncConsumer(client) as consumer:
            await begun(consumer)
            await host.sleep(1_000)
            await consumer.assign({OTHER: 0})
            polled = await consumer.poll() or await consumer.poll()
            assert [batch.partition for batch in polled] == [OTHER]

    run(program)


def test_an_answer_that_came_before_a_seek_is_not_handed_out_after_it() -> None:
    async def program(host: ClientHost) -> None:
        await fill(host)
        async with host.client() as client, AsyncConsumer(client) as consumer:
            await begun(consumer)
            await host.sleep(1_000)
            consumer.seek({ONE: 2})
            polled = await consumer.poll() or await consumer.poll()
            assert [item.position for item in polled] == [2]

    run(program)
