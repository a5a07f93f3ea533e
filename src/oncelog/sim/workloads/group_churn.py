"""A group of the consumer protocol (KIP-848) under churn: members come, go, and give partitions up late."""

# Storms and quiet times alternate. In a storm visitors join and leave while revocations are pending, static members
# hand over, and topics grow or are created. In a quiet time only the steady members are left: every partition must find
# an owner soon (W18). Former members commit offsets that must be refused.

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import TopicPartition
from oncelog.client.aio.client import AsyncClient
from oncelog.client.errors import BrokerRefused
from oncelog.client.machine.group import GroupSettings
from oncelog.client.machine.positions import FetchSettings
from oncelog.client.programs.group_protocol import GroupProtocol
from oncelog.sim.virtual.world import ClientHost
from oncelog.sim.workloads.former_members import FormerMember
from oncelog.sim.workloads.kit.group_members import MEMBER, RecordedMember, counting_client, record_group_offsets
from oncelog.sim.workloads.kit.requests import add_partitions, create_topics
from oncelog.sim.workloads.kit.workload import Topic, Workload, WorkloadContext, WorkloadProgram
from oncelog.sim.workloads.producers import Producers

WAIT_MS: Final = 250
PROTOCOLS: Final[tuple[tuple[GroupProtocol, ...], ...]] = (("consumer",), *(("classic", "consumer"),) * 2)
MOST_PARTITIONS: Final = 6
MOST_LATE_TOPICS: Final = 3
# Longer than the rebalance time-out: some members are removed while they give up partitions.
SLOWEST_RELEASE_MS: Final = 7_500


@dataclass(frozen=True, slots=True)
class GroupChurn(Workload):
    # One group that reads the records of ``writers``, with ``steady`` members, and others that stay for a moment.

    name: str
    writers: Producers
    steady: int
    visitors: int
    # Hand-made members, which commit after their membership.
    former: int
    # Visitors have instance ids, in whichever protocol they return.
    static: bool
    # Some members of the consumer protocol subscribe by a regular expression.
    patterns: bool
    protocols: tuple[GroupProtocol, ...]
    storm_ms: int
    quiet_ms: int

    @classmethod
    def draw(cls, name: str, entropy: random.Random, transaction_version: int) -> GroupChurn:
        writers = Producers.draw(name, entropy, transaction_version)
        writers = replace(writers, producers=1, partitions=entropy.randint(3, 5))
        return cls(
            name,
            writers,
            # In small groups a partition often goes back to the member that is giving it up.
            steady=entropy.choice((1, 1, 2)),
            visitors=entropy.choice((1, 1, 2, 3)),
            former=entropy.choice((0, 1, 1, 2)),
            static=entropy.random() < 0.5,
            patterns=entropy.random() < 0.5,
            protocols=entropy.choice(PROTOCOLS),
            storm_ms=entropy.choice((10_000, 20_000)),
            quiet_ms=entropy.choice((1_000, 18_000)),
        )

    @staticmethod
    def draw_config(entropy: random.Random) -> dict[str, str]:
        # Delayed target assignments, and a log of groups that is compacted all the time.
        return {
            "group.consumer.assignment.interval.ms": entropy.choice(("0", "1000", "3000")),
            "group.consumer.heartbeat.interval.ms": entropy.choice(("200", "1000")),
            "group.consumer.session.timeout.ms": "5000",
            # An upgrade during the rebalance after a downgrade makes two owners of a partition, in Apache Kafka too.
            "group.consumer.migration.policy": "upgrade",
            "log.roll.ms": entropy.choice(("500", "2000")),
            "log.cleaner.backoff.ms": entropy.choice(("200", "1000")),
            "log.cleaner.min.cleanable.ratio": "0.01",
            "log.cleaner.delete.retention.ms": entropy.choice(("0", "5000", "86400000")),
        }

    @property
    def late_topics(self) -> list[str]:
        # Topics that are created during the run, without records.
        return [f"{self.name}-late{index}" for index in range(MOST_LATE_TOPICS)]

    @property
    def pattern(self) -> str:
        return f"{self.name}.*"

    def topics(self) -> list[Topic]:
        return self.writers.topics()

    def storm_left_ms(self, host: ClientHost) -> int:
        # The rest of a storm; 0 in a quiet time.
        if host.world.is_calm or host.stopping:
            return 0
        return max(0, self.storm_ms - host.now_ms % (self.storm_ms + self.quiet_ms))

    def start(self, context: WorkloadContext) -> None:
        self.writers.start(context)
        context.recorder.followed_groups.add(self.name)
        for index in range(self.steady):
            context.launch(f"{self.name}-s{index}", self, _Steady)
        for index in range(self.visitors):
            context.launch(f"{self.name}-v{index}", self, _Visitor)
        for index in range(self.former):
            context.launch(f"{self.name}-f{index}", self, _Former)
        context.launch(f"{self.name}-grow", self, _Growing)

    async def record_final_state(self, context: WorkloadContext, client: AsyncClient) -> None:
        await record_group_offsets(context, client, self.name)


class _Member(WorkloadProgram[GroupChurn]):
    # Reads as a member, and often gives partitions up late.

    settings: GroupSettings = MEMBER
    lives = 0

    async def read(self, host: ClientHost, life_ms: int, *, may_use_pattern: bool) -> None:
        work, entropy = self.workload, self.entropy
        self.lives += 1
        until_ms = host.now_ms + life_ms
        protocol = entropy.choice(self.protocols())
        by_pattern = may_use_pattern and work.patterns and protocol == "consumer" and entropy.random() < 0.5

        async def release_late(partitions: Sequence[TopicPartition]) -> None:
            if work.storm_left_ms(host) and entropy.random() < 0.6:
                await host.sleep(entropy.randint(0, SLOWEST_RELEASE_MS))

        async with counting_client(host) as client:
            member = RecordedMember(
                self.context,
                client,
                f"{host.name}/{self.lives}",
                work.name,
                [] if by_pattern else self.topic_names(protocol),
                pattern=work.pattern if by_pattern else None,
                settings=self.settings,
                fetch=FetchSettings(max_wait_ms=WAIT_MS, read_committed=True),
                on_revoked=release_late,
                protocol=protocol,
            )
            async with member:
                while not host.stopping and host.now_ms < until_ms:
                    for fetched in await member.poll(WAIT_MS):
                        member.record_fetched(fetched)
                        member.processed(fetched.partition, fetched.next_offset)
                    if entropy.random() < 0.3:
                        await member.commit()
                    await host.pause(entropy, 100)
                    self.end_suddenly(host)

    def protocols(self) -> Sequence[GroupProtocol]:
        return self.workload.protocols

    def topic_names(self, protocol: GroupProtocol) -> list[str]:
        # A client of the classic protocol needs topics that exist.
        return [self.workload.name, *(self.workload.late_topics[:1] if protocol == "consumer" else ())]

    def end_suddenly(self, host: ClientHost) -> None:
        """A visitor may die."""


class _Steady(_Member):
    # A member for most of the time.

    def protocols(self) -> Sequence[GroupProtocol]:
        # Classic members alone would wait for a target assignment for ever where no downgrade is allowed, in Apache
        # Kafka too: only a heartbeat of the new protocol or a join computes one.
        return ("consumer",)

    async def __call__(self, host: ClientHost) -> None:
        while not host.stopping:
            await self.read(host, self.entropy.randint(20_000, 60_000), may_use_pattern=False)
            await host.pause(self.entropy, 1_000)


class _Visitor(_Member):
    # Joins in storms for a moment, and leaves or dies.

    def __init__(self, context: WorkloadContext, workload: GroupChurn, name: str) -> None:
        super().__init__(context, workload, name)
        self.settings = replace(MEMBER, instance_id=name if workload.static else None)

    async def __call__(self, host: ClientHost) -> None:
        while not host.stopping:
            left_ms = self.workload.storm_left_ms(host)
            if left_ms:
                life_ms = self.entropy.randint(200, 4_000)
                await self.read(host, min(life_ms, left_ms), may_use_pattern=True)
            await host.pause(self.entropy, 1_000)

    def end_suddenly(self, host: ClientHost) -> None:
        if self.entropy.random() < 0.01 and not host.stopping:
            host.kill(silent=self.entropy.random() < 0.5)


class _Former(WorkloadProgram[GroupChurn]):
    # Joins in storms by requests of its own, and commits when it must not.

    async def __call__(self, host: ClientHost) -> None:
        work = self.workload
        async with host.client() as client:
            former = FormerMember(self.context, host, client, work.name, work.name, self.entropy)
            while not host.stopping:
                left_ms = work.storm_left_ms(host)
                if left_ms:
                    await former.join_and_commit(left_ms, f"{self.name}-i" if work.static else None)
                await host.pause(self.entropy, 1_000)


class _Growing(WorkloadProgram[GroupChurn]):
    # Adds partitions and topics during storms.

    partitions = 0
    topics = 0

    async def __call__(self, host: ClientHost) -> None:
        work = self.workload
        self.partitions = max(self.partitions, work.writers.partitions)
        async with host.client() as client:
            while not host.stopping:
                await host.sleep(self.entropy.randint(1, 8_000))
                if work.storm_left_ms(host):
                    await self.grow(client)

    async def grow(self, client: AsyncClient) -> None:
        work = self.workload
        try:
            if self.entropy.random() < 0.5 and self.topics < MOST_LATE_TOPICS:
                name, self.topics = work.late_topics[self.topics], self.topics + 1
                factor = self.context.replication_factor
                await create_topics(client, [Topic(name, self.entropy.randint(1, 2), replication_factor=factor)])
            elif self.partitions < MOST_PARTITIONS:
                self.partitions += 1
                await add_partitions(client, work.name, self.partitions)
        except BrokerRefused as error:
            # An attempt without a response has done it.
            if error.code not in (ErrorCode.TOPIC_ALREADY_EXISTS, ErrorCode.INVALID_PARTITIONS):
                raise
