"""Replicas that move under load: partitions with producers, and those of the coordinators, from brokers to others.

Moves are started, changed, and cancelled, and leadership returns to the preferred replica (KIP-455, KIP-460).
Partitions with one replica stay: their records are on one disk only. At the end, no move is left (R10).
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Final

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import INTERNAL_TOPICS, TopicName, TopicPartition
from oncelog.client.aio.client import AsyncClient
from oncelog.client.errors import UnknownTopic
from oncelog.sim.virtual.world import ClientHost
from oncelog.sim.workloads.kit.requests import elect_preferred, move_replicas
from oncelog.sim.workloads.kit.workload import Topic, Workload, WorkloadContext, WorkloadProgram
from oncelog.sim.workloads.producers import Producers

# Responses that depend on the cluster's state; the last one: a chosen broker is down by now.
NOTHING_TO_DO: Final = frozenset(
    {
        ErrorCode.NONE,
        ErrorCode.NO_REASSIGNMENT_IN_PROGRESS,
        ErrorCode.ELECTION_NOT_NEEDED,
        ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
    }
)


@dataclass(frozen=True, slots=True)
class Reassignments(Workload):
    name: str
    writers: Producers
    pause_ms: int

    @classmethod
    def draw(cls, name: str, entropy: random.Random, transaction_version: int) -> Reassignments:
        writers = Producers.draw(name, entropy, transaction_version)
        return cls(name, writers, entropy.choice((300, 1_000, 4_000)))

    def topics(self) -> list[Topic]:
        return self.writers.topics()

    def start(self, context: WorkloadContext) -> None:
        self.writers.start(context)
        context.launch(f"{self.name}-move", self, _Moving)


class _Moving(WorkloadProgram[Reassignments]):
    async def __call__(self, host: ClientHost) -> None:
        async with host.client() as client:
            while not host.stopping:
                await self.run_step(client)
                await host.pause(self.entropy, 2 * self.workload.pause_ms)

    async def run_step(self, client: AsyncClient) -> None:
        own = TopicName(self.workload.name)
        topic = self.entropy.choice([own, own, *sorted(INTERNAL_TOPICS)])
        try:
            await client.metadata([topic])
            partitions = (await client.topic(topic)).partitions
        except UnknownTopic:
            return  # the coordinator's topic does not exist yet
        index = self.entropy.choice(sorted(partitions))
        replicas = partitions[index].replicas
        partition = TopicPartition(topic, index)
        if len(replicas) < 2:
            return
        step = self.entropy.random()
        if step < 0.7:
            brokers, count = sorted(client.view.brokers), min(len(replicas), 3)
            if len(brokers) < count:
                return  # brokers are down; with fewer replicas, records would be on fewer disks than faults assume
            target_brokers = self.entropy.sample(brokers, count)
            code = await move_replicas(client, partition, target_brokers)
        elif step < 0.8:
            code = await move_replicas(client, partition, None)
        else:
            code = await elect_preferred(client, partition)
        self.context.expect(f"a step with {partition}", code, NOTHING_TO_DO)
