"""Deletes and recreates a topic while clients use it, adds partitions to another, and alters their configurations.

Producers meet topics that are gone, recreated, or not created yet, and continue. The history has every deletion before
it is requested. At the end the topic exists.
"""

from __future__ import annotations

import random
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import TopicName, TopicPartition
from oncelog.client.aio.client import AsyncClient
from oncelog.client.aio.consumer import AsyncConsumer
from oncelog.client.aio.transactions import AsyncTransactionalProducer
from oncelog.client.errors import BrokerRefused, UnknownTopic
from oncelog.client.machine.positions import Fetched, FetchSettings
from oncelog.client.machine.producer import ProducerSettings
from oncelog.sim.checkers.history import Deletion, Write
from oncelog.sim.virtual.world import ClientHost
from oncelog.sim.workloads.kit.group_members import record_seek
from oncelog.sim.workloads.kit.reader import POLL_MS, ReadingProgram
from oncelog.sim.workloads.kit.requests import add_partitions, alter_topic, create_topics, delete_topic
from oncelog.sim.workloads.kit.sender import SendingProgram
from oncelog.sim.workloads.kit.workload import Topic, Workload, WorkloadContext, WorkloadProgram

MOST_PARTITIONS: Final = 6
ALTERATIONS: Final = (
    {"segment.ms": "1000"},
    {"segment.ms": "60000"},
    {"max.message.bytes": "100000"},
    {"index.interval.bytes": "100"},
    {"message.timestamp.after.max.ms": "3600000"},
)


@dataclass(frozen=True, slots=True)
class TopicChurn(Workload):
    name: str
    producers: int
    transactional: bool
    pause_ms: int
    # Mean life of the topic.
    life_ms: int

    @classmethod
    def draw(cls, name: str, entropy: random.Random, transaction_version: int) -> TopicChurn:
        return cls(
            name,
            entropy.randint(1, 2),
            entropy.random() < 0.6,
            entropy.choice((80, 150, 300)),
            entropy.choice((2_000, 8_000, 30_000)),
        )

    @property
    def growing(self) -> str:
        return f"{self.name}-grows"

    def topics(self) -> list[Topic]:
        return [Topic(self.name, 2), Topic(self.growing, 1)]

    def start(self, context: WorkloadContext) -> None:
        context.launch(f"{self.name}-delete", self, _Deleting)
        context.launch(f"{self.name}-alter", self, _Altering)
        context.launch(f"{self.name}-read", self, _Reading)
        for index in range(self.producers):
            context.launch(f"{self.name}-{index}", self, _Sending)

    async def record_final_state(self, context: WorkloadContext, client: AsyncClient) -> None:
        with suppress(UnknownTopic):  # a deletion without a response may have followed the creation
            context.recorder.topic_ids[self.name] = (await client.topic(self.name)).topic_id


class _Deleting(WorkloadProgram[TopicChurn]):
    # False while the topic is deleted, or perhaps deleted.
    exists = True

    async def __call__(self, host: ClientHost) -> None:
        work, entropy = self.workload, self.entropy
        async with host.client() as client:
            while True:
                if not self.exists:
                    await self.create(client)
                if host.stopping:
                    return
                await host.sleep(entropy.randint(100, 2 * work.life_ms))
                if not host.stopping:
                    await self.delete(client)
                    await host.sleep(entropy.choice((0, entropy.randint(0, 2_000))))

    async def create(self, client: AsyncClient) -> None:
        try:
            partitions, factor = self.entropy.randint(1, 3), self.context.replication_factor
            await create_topics(client, [Topic(self.workload.name, partitions, replication_factor=factor)])
        except BrokerRefused as error:
            if error.code != ErrorCode.TOPIC_ALREADY_EXISTS:
                raise
        self.exists = True

    async def delete(self, client: AsyncClient) -> None:
        deletions, kernel = self.context.recorder.deletions, self.context.world.kernel
        index, requested_at = len(deletions), kernel.now_us
        deletions.append(Deletion(self.workload.name, requested_at, None))
        # A death after this point must not leave the topic deleted.
        self.exists = False
        try:
            await delete_topic(client, self.workload.name)
        except BrokerRefused as error:
            if error.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise
        deletions[index] = Deletion(self.workload.name, requested_at, kernel.now_us)


class _Altering(WorkloadProgram[TopicChurn]):
    # Partitions of the growing topic.
    count = 1

    async def __call__(self, host: ClientHost) -> None:
        entropy, work = self.entropy, self.workload
        async with host.client() as client:
            while not host.stopping:
                await host.sleep(entropy.randint(1, 6_000))
                try:
                    if self.count < MOST_PARTITIONS and entropy.random() < 0.3:
                        self.count += 1
                        await add_partitions(client, work.growing, self.count)
                    else:
                        topic = entropy.choice((work.name, work.growing))
                        await alter_topic(client, topic, entropy.choice(ALTERATIONS))
                except BrokerRefused:
                    continue  # the topic is gone, or an attempt without a response has added the partitions


class _Reading(ReadingProgram[TopicChurn]):
    """Reads the deleted topic from any position that works."""

    pause_ms = 300

    def __init__(self, context: WorkloadContext, workload: TopicChurn, name: str) -> None:
        super().__init__(context, workload, name)
        del self.partitions[1:]  # recreated, it may have only one

    async def __call__(self, host: ClientHost) -> None:
        read_committed = self.entropy.random() < 0.5
        fetch = FetchSettings(max_wait_ms=POLL_MS, read_committed=read_committed)
        async with host.client() as client, AsyncConsumer(client, fetch) as consumer:
            while not host.stopping:
                until_ms = host.now_ms + self.entropy.randint(500, 10_000)
                try:
                    await consumer.assign(dict.fromkeys(self.partitions, 0))
                    for partition in self.partitions:
                        record_seek(self.context, host.name, partition, read_committed=read_committed)
                    await self.read(host, consumer, until_ms=until_ms, read_committed=read_committed)
                except BrokerRefused:
                    await host.sleep(300)

    def is_over(self, refused: Fetched) -> bool:
        # False: a deleted topic may be recreated.
        return False


class _Sending(SendingProgram[TopicChurn]):
    """Sends to both topics; a missing topic ends a round, not the program."""

    settings = ProducerSettings(delivery_timeout_ms=5_000)
    most_records = 3

    async def draw_write(self, client: AsyncClient) -> Write:
        topic = TopicName(self.entropy.choice((self.workload.name, self.workload.growing)))
        partitions = sorted((await client.topic(topic)).partitions)
        value = self.next_value()
        return Write(TopicPartition(topic, self.entropy.choice(partitions)), value)

    async def run_transaction(
        self, host: ClientHost, client: AsyncClient, producer: AsyncTransactionalProducer
    ) -> None:
        try:
            await super().run_transaction(host, client, producer)
        except UnknownTopic:
            await producer.abort()
