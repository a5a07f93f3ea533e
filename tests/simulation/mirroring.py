"""Two clusters of one broker each and the instances of a mirror between them, in virtual time, by seed.

Writers send numbered records in transactions, some of them aborted; brokers are killed, lose their power and stand
still, the instances of the mirror are killed without a word. In the end both sides have the same records in the same
order, and the offsets of groups leave what the groups had not read.
"""

from __future__ import annotations

import asyncio
import random
import re
from dataclasses import dataclass, replace
from typing import Final

from oncelog.admin.topics import NewTopic, create_topic
from oncelog.base.ids import TopicName, TopicPartition
from oncelog.client.aio import AsyncClient, AsyncTransactionalProducer, Committed, TransactionSettings
from oncelog.client.errors import ClientError
from oncelog.client.programs.group import commit_offsets, committed_offsets
from oncelog.client.programs.log_offsets import offsets_at
from oncelog.coordination.memory import MemoryTree
from oncelog.mirror.engine import Engine
from oncelog.mirror.settings import Cluster, MirrorSettings
from oncelog.mirror.stored_positions import read_to_end
from oncelog.sim.virtual.broker_host import BrokerHost
from oncelog.sim.virtual.tree_session import TreeHost
from oncelog.sim.virtual.world import CLIENT_CONFIG, ClientHost, World

TARGET_BROKER: Final = 51
PARTITIONS: Final = 3
CONFIG: Final = {
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.num.partitions": "2",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
}


@dataclass(frozen=True, slots=True)
class CompletedRun:
    """The result of a run."""

    records: int
    transactions: int
    lives: int
    """Of the mirror's instances."""


class Mirroring:
    """One run; ``instances`` share the work."""

    def __init__(self, seed: int, instances: int, length_ms: int) -> None:
        self.world = World(seed, CONFIG)
        tree = TreeHost(self.world.kernel, self.world.network, MemoryTree(), None)
        self.target = BrokerHost(self.world.kernel, self.world.network, tree, CONFIG, broker_id=TARGET_BROKER)
        self._instances = instances
        self._length_ms = length_ms
        self._chance = random.Random(f"{seed}/mirroring")
        self._engines: dict[int, Engine] = {}
        self._transactions = 0
        self._lives = 0
        self._is_over = False

    def run(self) -> CompletedRun:
        """Run it and compare. Raises AssertionError for what is wrong."""
        for broker in (self.world.broker, self.target):
            broker.start_until_up()
        return self.world.run(self._main(), until_s=600)

    async def _main(self) -> CompletedRun:
        world = self.world
        await world.on_host("admin", self._create)
        for number in range(2):
            world.supervise(f"writer-{number}", lambda host, number=number: self._write(host, number))  # type: ignore[misc]  # bound now
        for number in range(self._instances):
            world.supervise(f"mirror-{number}", lambda host, number=number: self._mirror(host, number))  # type: ignore[misc]  # bound now
        await self._strike()
        world.stopping = True
        records = await world.on_host("judge", self._judge)
        self._is_over = True
        for engine in self._engines.values():
            engine.stop()
        await world.finished()
        return CompletedRun(records, self._transactions, self._lives)

    async def _create(self, host: ClientHost) -> None:
        async with host.client() as client:
            await create_topic(client, NewTopic("t", PARTITIONS, 1))

    async def _write(self, host: ClientHost, number: int) -> None:
        async with host.client() as client:
            producer = AsyncTransactionalProducer(client, TransactionSettings(f"writer-{number}", 5_000))
            async with producer:
                await producer.initialize()
                while not host.stopping:
                    producer.begin()
                    for _ in range(self._chance.randint(1, 6)):
                        value = f"{number}:{self._transactions}".encode() * self._chance.choice((1, 1, 2_000))
                        await producer.send("t", value, partition=self._chance.randrange(PARTITIONS))
                    await (producer.abort() if self._chance.random() < 0.2 else producer.commit())
                    self._transactions += 1
                    await host.sleep(self._chance.randint(1, 300))

    async def _mirror(self, host: ClientHost, number: int) -> None:
        self._lives += 1
        settings = MirrorSettings(
            Cluster("a", host.world.bootstrap, CLIENT_CONFIG),
            Cluster("", self._target_servers, CLIENT_CONFIG),
            re.compile("t"),
            groups=re.compile("g"),
            instance=f"{number}",
            commit_interval_ms=100,
            groups_interval_ms=500,
            refresh_interval_ms=1_000,
        )
        engine = Engine(settings, now_ms=lambda: host.now_ms, entropy=host.world.kernel.entropy(f"mirror {number}"))
        self._engines[number] = engine
        if self._is_over:
            engine.stop()
        await engine.run()

    @property
    def _target_servers(self) -> str:
        return f"{self.target.address[0]}:{self.target.address[1]}"

    async def _strike(self) -> None:
        world, end = self.world, self.world.kernel.now_ms() + self._length_ms
        while world.kernel.now_ms() < end:
            await asyncio.sleep(self._chance.uniform(0.1, 4))
            broker = self._chance.choice((world.broker, self.target))
            choice = self._chance.choice(("kill", "power", "freeze", "mirror", "mirror", "group"))
            if choice == "mirror":
                alive = [host for name, host in world.hosts.items() if name.startswith("mirror")]
                if alive:
                    self._chance.choice(alive).kill(silent=self._chance.random() < 0.5)
            elif choice == "group":
                await self._group_reads()
            elif choice == "freeze":
                broker.freeze()
                await asyncio.sleep(self._chance.uniform(0.1, 8))
                broker.thaw()
            elif broker.is_up:
                await self._down(broker, power=choice == "power")

    async def _down(self, broker: BrokerHost, *, power: bool) -> None:
        (broker.lose_power if power else broker.kill)()
        await asyncio.sleep(self._chance.uniform(0.05, 5))
        broker.start_until_up()

    async def _group_reads(self) -> None:
        """The group stands somewhere, which may be between any two records."""

        async def read(host: ClientHost) -> None:
            async with host.client(replace(CLIENT_CONFIG, retry_timeout_ms=1_000)) as client:
                ends = await offsets_at(client, {_of("t", number): -1 for number in range(PARTITIONS)})
                at = {partition: Committed(self._chance.randint(0, end)) for partition, end in ends.items()}
                await commit_offsets(client, "g", at)

        try:
            await self.world.on_host("group", read)
        except ClientError:
            return

    async def _judge(self, host: ClientHost) -> int:
        async with host.client() as here, AsyncClient(self._target_servers, config=CLIENT_CONFIG) as client:
            ends = await offsets_at(here, {_of("t", number): -1 for number in range(PARTITIONS)})
            await commit_offsets(here, "g", {p: Committed(self._chance.randint(0, end)) for p, end in ends.items()})
            while not await self._is_done(here, client):
                await host.sleep(1_000)
            count = 0
            for number in range(PARTITIONS):
                original, copy = await _read(here, _of("t", number)), await _read(client, _of("a.t", number))
                assert [value for _, value in original] == [value for _, value in copy], f"partition {number}"
                at = (await committed_offsets(here, "g"))[_of("t", number)].offset
                moved = (await committed_offsets(client, "g"))[_of("a.t", number)].offset
                left = [value for offset, value in original if offset >= at]
                assert left == [value for offset, value in copy if offset >= moved], f"group at {at}, moved to {moved}"
                count += len(original)
            return count

    async def _is_done(self, here: AsyncClient, client: AsyncClient) -> bool:
        """True when every record is copied, and the instances have looked at the group since."""
        try:
            for number in range(PARTITIONS):
                if len(await _read(client, _of("a.t", number))) < len(await _read(here, _of("t", number))):
                    return False
        except ClientError:
            return False
        rows = [row for engine in self._engines.values() for row in engine.progress.groups]
        at = await committed_offsets(here, "g")
        stands = {(row.partition, row.source_offset) for row in rows if row.state.name == "synced"}
        return all((partition.partition, found.offset) in stands for partition, found in at.items())


def _of(topic: str, number: int) -> TopicPartition:
    return TopicPartition(TopicName(topic), number)


async def _read(client: AsyncClient, partition: TopicPartition) -> list[tuple[int, bytes | None]]:
    return [(record.offset, record.value) async for record in read_to_end(client, [partition])]


def run(seed: int, instances: int = 2, length_ms: int = 30_000) -> CompletedRun:
    """One run of a seed. Raises AssertionError for what is wrong."""
    return Mirroring(seed, instances, length_ms).run()
