"""Share groups (KIP-932) over one topic: queues whose members accept, release, reject and renew records one by one.

Members die, freeze beyond their locks, and leave records unacknowledged. Some topics lose records under the groups.
Administrators change the offsets of some groups while they are empty. At the end one more member settles everything,
soon after the last locks have ended (L6).
"""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, replace
from typing import Final

from oncelog.admin.configs import ResourceType, alter_configs
from oncelog.client.aio.client import AsyncClient
from oncelog.client.aio.consumer import AsyncConsumer
from oncelog.client.machine.positions import FetchSettings
from oncelog.sim.checkers.history import GroupPartition
from oncelog.sim.workloads.kit.requests import create_topics
from oncelog.sim.workloads.kit.workload import Topic, Workload, WorkloadContext
from oncelog.sim.workloads.log_cleanup import LogCleanup
from oncelog.sim.workloads.producers import Producers
from oncelog.sim.workloads.share_administrators import Altering, read_dead_letters, settled_offsets
from oncelog.sim.workloads.share_group import ShareGroup
from oncelog.sim.workloads.share_members import Member, Settling

# A change is known to all brokers by then; nothing is broken yet.
_KNOWN_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class ShareQueues(Workload):
    name: str
    writers: Producers | LogCleanup
    groups: tuple[ShareGroup, ...]

    @classmethod
    def draw(cls, name: str, entropy: random.Random, transaction_version: int) -> ShareQueues:
        writers: Producers | LogCleanup
        if entropy.random() < 0.6:
            writers = Producers.draw(name, entropy, transaction_version)
            writers = replace(writers, timeout_ms=min(writers.timeout_ms, 10_000))
        else:
            writers = LogCleanup.draw(name, entropy, transaction_version)
        pause_ms = entropy.choice((100, 200, 400))
        writers = replace(writers, producers=1, partitions=entropy.randint(1, 3), pause_ms=pause_ms)
        groups = [ShareGroup.draw(f"{name}-g{index}", name, entropy) for index in range(entropy.choice((1, 1, 2)))]
        return cls(name, writers, tuple(groups))

    @staticmethod
    def draw_config(entropy: random.Random) -> dict[str, str]:
        # Short locks, and a log of states with many snapshots that is pruned all the time.
        return {
            "group.share.record.lock.duration.ms": entropy.choice(("1500", "4000", "4000", "60000")),
            "group.share.min.record.lock.duration.ms": "1000",
            "group.share.delivery.count.limit": entropy.choice(("2", "3", "5")),
            "group.share.partition.max.record.locks": entropy.choice(("100", "2000")),
            "group.share.session.timeout.ms": "6000",
            "group.share.min.session.timeout.ms": "1000",
            "group.share.heartbeat.interval.ms": entropy.choice(("500", "1000")),
            "group.share.min.heartbeat.interval.ms": "100",
            "group.share.assignment.interval.ms": entropy.choice(("0", "1000")),
            "group.share.initialize.retry.interval.ms": "5000",
            "share.coordinator.state.topic.num.partitions": entropy.choice(("1", "3")),
            "share.coordinator.snapshot.update.records.per.snapshot": entropy.choice(("0", "3", "50")),
            "share.coordinator.cold.partition.snapshot.interval.ms": entropy.choice(("2000", "300000")),
            "share.coordinator.state.topic.prune.interval.ms": entropy.choice(("1000", "10000")),
            "errors.deadletterqueue.auto.create.topics.enable": "true",
        }

    def topics(self) -> list[Topic]:
        return self.writers.topics()

    async def prepare(self, context: WorkloadContext, client: AsyncClient) -> None:
        recorder = context.recorder.share_groups
        for group in self.groups:
            await alter_configs(client, ResourceType.GROUP, group.name, change=group.configs)
            if group.is_altered:
                recorder.altered.add(group.name)
            if group.dead_letter_topic:
                recorder.with_dead_letters.add(group.name)
            if group.dead_letter_topic and not group.creates_dead_letter_topic:
                configs = {"errors.deadletterqueue.group.enable": "true"}
                factor = context.replication_factor
                await create_topics(client, [Topic(group.dead_letter_topic, 2, configs, factor)])
        for name, topic in (await client.metadata([topic.name for topic in self.topics()])).items():
            recorder.topic_ids[name] = topic.topic_id
        await asyncio.sleep(_KNOWN_S)

    def start(self, context: WorkloadContext) -> None:
        self.writers.start(context)
        for group in self.groups:
            for index in range(group.members):
                context.launch(f"{group.name}-m{index}", group, Member)
            context.launch(f"{group.name}-settle", group, Settling)
            if group.is_altered:
                context.launch(f"{group.name}-alter", group, Altering)

    async def record_final_state(self, context: WorkloadContext, client: AsyncClient) -> None:
        recorder = context.recorder.share_groups
        for group in self.groups:
            for partition, start in (await settled_offsets(client, group)).items():
                recorder.starts[GroupPartition(group.name, partition)] = start
            if group.dead_letter_topic:
                async with AsyncConsumer(client, FetchSettings(max_wait_ms=100)) as consumer:
                    recorder.dead_letters += await read_dead_letters(client, consumer, group.dead_letter_topic)
