"""Consumers: members of a group that join, leave, die and return, and lone ones that restart and seek."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

from oncelog.client.aio.client import AsyncClient
from oncelog.client.aio.consumer import AsyncConsumer
from oncelog.client.machine.positions import FetchSettings
from oncelog.client.programs.group_protocol import GroupProtocol
from oncelog.sim.virtual.world import ClientHost
from oncelog.sim.workloads.kit.group_members import (
    GROUP_PROTOCOLS,
    MEMBER,
    RecordedMember,
    counting_client,
    record_group_offsets,
    record_seek,
)
from oncelog.sim.workloads.kit.workload import Topic, Workload, WorkloadContext, WorkloadProgram
from oncelog.sim.workloads.producers import Producers

WAIT_MS = 250


@dataclass(frozen=True, slots=True)
class Consumers(Workload):
    """``members`` of one group and ``loners`` with assigned partitions, all reading the records of ``writers``."""

    name: str
    writers: Producers
    members: int
    loners: int
    read_committed: bool
    # Offsets are committed after each poll; otherwise every five seconds.
    by_hand: bool
    # Members have instance ids: a restarted member keeps its place.
    static: bool
    # The protocols that members may use; each life of a member draws one.
    protocols: tuple[GroupProtocol, ...] = ("classic",)

    @classmethod
    def draw(cls, name: str, entropy: random.Random, transaction_version: int) -> Consumers:
        writers = replace(Producers.draw(name, entropy, transaction_version), producers=entropy.randint(1, 2))
        return cls(
            name,
            writers,
            members=entropy.randint(1, 3),
            loners=entropy.randint(0, 2),
            read_committed=entropy.random() < 0.7,
            by_hand=entropy.random() < 0.5,
            static=entropy.random() < 0.3,
            protocols=entropy.choice(GROUP_PROTOCOLS),
        )

    def topics(self) -> list[Topic]:
        return self.writers.topics()

    def start(self, context: WorkloadContext) -> None:
        self.writers.start(context)
        context.recorder.followed_groups.add(self.name)
        for index in range(self.members):
            context.launch(f"{self.name}-m{index}", self, _Member)
        for index in range(self.loners):
            context.launch(f"{self.name}-l{index}", self, _Loner)

    async def record_final_state(self, context: WorkloadContext, client: AsyncClient) -> None:
        await record_group_offsets(context, client, self.name)


class _Member(WorkloadProgram[Consumers]):
    def __init__(self, context: WorkloadContext, workload: Consumers, name: str) -> None:
        super().__init__(context, workload, name)
        self.settings = replace(MEMBER, instance_id=name if workload.static else None)

    async def __call__(self, host: ClientHost) -> None:
        lives = 0
        while not host.stopping:
            lives += 1
            await self.run_membership(host, f"{host.name}/{lives}")
            await host.pause(self.entropy, 2_000)

    async def run_membership(self, host: ClientHost, name: str) -> None:
        # Read as a member, from a join to a leave, a death, or a long silence.
        work, entropy = self.workload, self.entropy
        fetch = FetchSettings(max_wait_ms=WAIT_MS, read_committed=work.read_committed)
        until_ms = host.now_ms + entropy.randint(2_000, 30_000)
        async with counting_client(host) as client:
            member = RecordedMember(
                self.context,
                client,
                name,
                work.name,
                [work.name],
                settings=self.settings,
                fetch=fetch,
                protocol=entropy.choice(work.protocols),
            )
            async with member:
                while not host.stopping and host.now_ms < until_ms:
                    for fetched in await member.poll(WAIT_MS):
                        member.record_fetched(fetched)
                        member.processed(fetched.partition, fetched.next_offset)
                    if work.by_hand:
                        await member.commit()
                    await host.pause(entropy, 100)
                if entropy.random() < 0.2:
                    await host.sleep(
                        2 * MEMBER.rebalance_timeout_ms
                    )  # a member that does not poll is expelled, and polls late
                if entropy.random() < 0.3 and not host.stopping:
                    host.kill(silent=entropy.random() < 0.5)
                    await host.sleep(1)


class _Loner(WorkloadProgram[Consumers]):
    async def __call__(self, host: ClientHost) -> None:
        work, entropy = self.workload, self.entropy
        read_committed = entropy.random() < 0.5
        (topic,) = work.topics()
        partitions = topic.topic_partitions
        fetch = FetchSettings(max_wait_ms=WAIT_MS, read_committed=read_committed, partition_max_bytes=2_000)
        async with host.client() as client, AsyncConsumer(client, fetch) as consumer:
            await consumer.assign(dict.fromkeys(partitions, 0))
            while not host.stopping:
                for fetched in await consumer.poll(WAIT_MS):
                    self.context.recorder.polled(host.name, fetched, read_committed=read_committed)
                if entropy.random() < 0.02:
                    partition = entropy.choice(partitions)
                    end = consumer.positions.of(partition) or 0
                    record_seek(self.context, host.name, partition, read_committed=read_committed)
                    consumer.seek({partition: entropy.randint(0, end)})
                await host.pause(entropy, 200)
