"""The commit protocol on the real broker in virtual time: tasks, drivers and the broker die, the power fails."""

from __future__ import annotations

import asyncio

import pytest

from oncelog.base.ids import TopicName, TopicPartition
from oncelog.client.aio.consumer import AsyncConsumer
from oncelog.client.errors import ClientError
from oncelog.client.machine.consumed_records import read_fetched
from oncelog.client.machine.positions import FetchSettings
from oncelog.spark.sink.two_phase import protocol
from oncelog.spark.sink.two_phase.errors import FencedDriver, LostRows
from oncelog.spark.sink.two_phase.protocol import TaskAction
from oncelog.spark.sink.two_phase.register import Attempt, Listed
from oncelog.testing.simulation import ClientHost, Simulation
from tests.simulation.sink.port import AsyncCluster

OUT = TopicPartition(TopicName("out"), 0)
PARTITIONS = 3
ROWS = 4
TWO_PHASE = {"transaction.two.phase.commit.enable": "true"}


class TaskDied(ClientError):
    """A task's host was killed, or it failed: the stage fails."""


class Query:
    """A modelled Spark: lives of drivers, tasks on hosts of their own, and a checkpoint that no death touches."""

    def __init__(self, simulation: Simulation) -> None:
        self.world = simulation.world
        self.epoch = 0
        self.runs = 0
        self.unfinished = False
        self.lost: list[str] = []

    async def __call__(self, host: ClientHost) -> None:
        while not host.stopping or self.unfinished:
            self.runs += 1
            self.unfinished = True
            await self.one_epoch(host, Attempt("query", self.epoch, f"run{self.runs}"))
            self.epoch, self.unfinished = self.epoch + 1, False
            await host.sleep(200)

    async def one_epoch(self, host: ClientHost, attempt: Attempt) -> None:
        names = [f"task-{attempt.run}-{partition}" for partition in range(PARTITIONS)]
        tasks = [
            asyncio.ensure_future(self.world.on_host(name, lambda on, p=partition: self.task(on, attempt, p)))  # type: ignore[misc]  # bound now
            for partition, name in enumerate(names)
        ]
        for task in tasks:
            task.add_done_callback(lambda item: item.cancelled() or item.exception())
        results = [await wait_for(task) for task in tasks]
        try:
            async with host.client() as client:
                listed = [result for result in results if result is not None]
                await AsyncCluster(client, "query").run(protocol.commit(attempt, listed))
        except LostRows as error:
            self.lost.append(str(error))
            raise

    async def task(self, host: ClientHost, attempt: Attempt, partition: int) -> Listed | None:
        async with host.client() as client:
            cluster = AsyncCluster(client, "query")
            while True:
                try:
                    action = await cluster.run(protocol.begin(attempt))
                    break
                except FencedDriver:
                    await host.sleep(20 * (1 + partition))
            if action is TaskAction.DRAIN:
                return None
            stored = await cluster.run(protocol.claim(attempt, partition))
            if isinstance(stored, TaskAction):
                return None
            producer = cluster.tasks[stored.transactional_id]
            producer.begin()
            for number in range(ROWS):
                await producer.send(OUT.topic, f"{attempt.epoch}/{partition}/{number}".encode(), partition=0)
            await producer.flush()
            return Listed(stored, ROWS) if await cluster.run(protocol.confirm(attempt, stored)) else None


async def wait_for(task: asyncio.Future[Listed | None]) -> Listed | None:
    """Its result; TaskDied when its host was killed."""
    await asyncio.wait([task])
    if task.cancelled():
        raise TaskDied("killed")
    return task.result()


async def committed(host: ClientHost) -> list[str]:
    async with host.client() as client, AsyncConsumer(client, FetchSettings(read_committed=True)) as consumer:
        ends = await consumer.list_offsets({OUT: -1})
        for _ in range(20):  # EndTxn is answered before the markers are written
            stable = await consumer.list_offsets({OUT: -1}, read_committed=True)
            if stable == ends:
                break
            await host.sleep(500)
            ends = await consumer.list_offsets({OUT: -1})
        assert stable == ends, "a transaction was left open"
        await consumer.assign({OUT: 0}, ends)
        results: list[str] = []
        while len(consumer.positions):
            for fetched in await consumer.poll():
                results += [(record.value or b"").decode() for record in read_fetched(fetched, read_committed=True)]
        return results


@pytest.mark.slow
@pytest.mark.parametrize("seed", [pytest.param(0, marks=pytest.mark.long), 1])
def test_each_row_once_whatever_dies(seed: int) -> None:
    with Simulation(seed, TWO_PHASE) as simulation:
        query = Query(simulation)
        simulation.supervise("driver", query)
        simulation.trouble(20, "kill", "power-cut", "kill-client", "kill-client", "cut-down", "reset", every_s=1.0)
        simulation.settle(within_s=300)
        result = simulation.run(committed)
    assert query.lost == []
    assert query.runs > query.epoch > 2
    everything = [f"{e}/{p}/{n}" for e in range(query.epoch) for p in range(PARTITIONS) for n in range(ROWS)]
    assert sorted(result) == sorted(everything)
