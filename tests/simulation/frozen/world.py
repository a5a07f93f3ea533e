"""A world of brokers with one topic and one writer, in which processes stand still."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from itertools import pairwise

from oncelog.base.ids import TopicName, TopicPartition
from oncelog.client.aio.consumer import AsyncConsumer
from oncelog.client.aio.producer import AsyncProducer
from oncelog.client.config import ClientConfig
from oncelog.client.machine.producer import ProducerSettings
from oncelog.core.controller.image.cluster_image import ClusterImage
from oncelog.node.listeners.broker_settings import read_settings
from oncelog.sim.checkers.cluster.observer import ClusterObserver
from oncelog.sim.faults.fault import image_of
from oncelog.sim.virtual.broker_host import BrokerHost
from oncelog.sim.virtual.world import ClientHost, World
from oncelog.sim.workloads.kit.requests import create_topics
from oncelog.sim.workloads.kit.workload import Topic

TOPIC = TopicName("written")
WRITTEN = TopicPartition(TOPIC, 0)
SMALL = {
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "log.sync.policy": "none",
}
IMPATIENT = ClientConfig(
    connect_timeout_ms=200,
    bootstrap_timeout_ms=2_000,
    request_timeout_ms=250,
    retry_timeout_ms=60_000,
    retry_backoff_ms=20,
    retry_backoff_max_ms=20,
)
"""A client that looks for the new leader every 20 ms: what it measures is the cluster's pause."""


class FrozenWorld:
    """Brokers 1, 2, …; ``violations`` are broken rules, ``acknowledged_s``, ``read_s`` and ``elections_s`` are the
    times of acknowledgements, of fetched records and of elections in the topic."""

    def __init__(
        self,
        seed: int,
        brokers: int = 3,
        config: Mapping[str, str] | None = None,
        *,
        factor: int = 3,
        pause_ms: int = 50,
        turned_off: Collection[int] = (),
        client: ClientConfig = IMPATIENT,
    ) -> None:
        self.world = World(seed, {**SMALL, **(config or {})}, brokers=brokers, session_timeout_ms=6_000)
        self.violations: list[str] = []
        self.acknowledged_s: list[float] = []
        self.read_s: list[float] = []
        self.elections_s: list[float] = []
        self.observer = ClusterObserver(self.world.brokers, self.world.tree, self.violations.append, synced=False)
        self.observer.journal.on_change.append(self._changed)
        self._factor = min(factor, brokers)
        self._pause_ms = pause_ms
        self._client = client
        for broker in self.world.brokers:
            if broker.broker_id in turned_off:
                keys = {**SMALL, "node.id": str(broker.broker_id), "oncelog.broker.freeze.timeout.ms": "0"}
                broker.settings = read_settings(keys, data_directory="data", listen=broker.address)
            broker.start_until_up()

    def broker(self, broker_id: int) -> BrokerHost:
        return self.world.brokers[broker_id - 1]

    def run(self, steps: Callable[[], Awaitable[None]], until_s: float | None = 300) -> None:
        """Run ``steps`` while a client writes."""

        async def main() -> None:
            await self._start()
            await self.in_sync()
            await asyncio.sleep(1)
            await steps()
            self.world.stopping = True
            await self.world.finished()

        try:
            self.world.run(main(), until_s=until_s)
        finally:
            self.world.loop.end()

    async def _start(self) -> None:
        await self.world.on_host("setup", self._create)
        self.world.supervise("writer", self._write)
        self.world.supervise("reader", self._read)
        while not self.acknowledged_s:
            await asyncio.sleep(0.1)

    async def _create(self, host: ClientHost) -> None:
        factor = self._factor
        async with host.client() as client:
            while len(client.view.brokers) < len(self.world.brokers):
                await host.sleep(100)
                await client.refresh()
            configs = {"min.insync.replicas": str(max(1, factor - 1))}
            await create_topics(client, [Topic(TOPIC, 1, configs, replication_factor=factor)])

    async def _write(self, host: ClientHost) -> None:
        async with host.client(self._client) as client:
            producer = AsyncProducer(client, ProducerSettings(delivery_timeout_ms=120_000, linger_ms=0))
            while not self.world.stopping:
                await producer.send(TOPIC, b"x", partition=0)
                await producer.flush()
                self.acknowledged_s.append(self.now_s)
                await host.sleep(self._pause_ms)

    async def _read(self, host: ClientHost) -> None:
        async with host.client(self._client) as client, AsyncConsumer(client) as consumer:
            await consumer.assign({WRITTEN: 0})
            while not self.world.stopping:
                if any(fetched.records for fetched in await consumer.poll()):
                    self.read_s.append(self.now_s)

    def _changed(self, before: ClusterImage, after: ClusterImage) -> None:
        old, new = before.partition(WRITTEN), after.partition(WRITTEN)
        if old is not None and new is not None and old.leader != new.leader:
            self.elections_s.append(self.now_s)

    @property
    def now_s(self) -> float:
        return self.world.kernel.now_us / 1_000_000

    def leader(self) -> BrokerHost:
        partition = image_of(self.world).partition(WRITTEN)
        assert partition is not None
        return self.broker(partition.leader)

    async def in_sync(self) -> None:
        """Wait until all replicas are in sync."""
        while True:
            partition = image_of(self.world).partition(WRITTEN)
            if partition is not None and set(partition.isr) == set(partition.replicas):
                return
            await asyncio.sleep(0.1)

    def pause_s(self, since_s: float) -> float:
        """The longest time without an acknowledgement since then."""
        return self._longest_s(self.acknowledged_s, since_s)

    def pause_of_reader_s(self, since_s: float) -> float:
        """The longest time in which no record was fetched since then."""
        return self._longest_s(self.read_s, since_s)

    def _longest_s(self, events_s: list[float], since_s: float) -> float:
        times = [since_s, *(at for at in events_s if at > since_s), self.now_s]
        return max(later - earlier for earlier, later in pairwise(times))

    def reports(self) -> list[str]:
        return [report for broker in self.world.brokers for report in broker.reports]
