"""Members of share groups: what they do with the records that they acquire, and how they end."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final

from oncelog.base.ids import TopicName, TopicPartition
from oncelog.client.aio.client import AsyncClient
from oncelog.client.aio.share import AsyncShareConsumer
from oncelog.client.errors import OutOfTurn
from oncelog.client.machine.share.values import Acknowledge, ShareRecord, ShareSettings
from oncelog.sim.checkers.history import Poll, SeenRecord
from oncelog.sim.virtual.world import ClientHost
from oncelog.sim.workloads.kit.recorder import value_of
from oncelog.sim.workloads.kit.workload import WorkloadContext, WorkloadProgram
from oncelog.sim.workloads.share_administrators import is_at_end

WAIT_MS: Final = 250
# Longer than the longest lock and session.
LONGEST_FREEZE_MS: Final = 9_000
# The time to settle everything once it is readable: short locks, and what is written again after pauses of up to 16 s.
SETTLED_WITHIN_MS: Final = 30_000
# The same after the locks of members that are gone, whose end their leaders may have missed.
AFTER_LOCKS_MS: Final = 10_000
# Of the cycle of a group whose offsets are changed: members leave for its last part.
CYCLE_MS: Final = 30_000
CLOSED_MS: Final = 12_000


@dataclass(frozen=True, slots=True)
class ShareGroup:
    name: str
    topic: str
    members: int
    read_committed: bool
    dead_letter_topic: str
    creates_dead_letter_topic: bool
    # Administrators change its offsets now and then, while it is empty.
    is_altered: bool
    # Shares of records.
    releases: float
    rejects: float
    renews: float
    forgets: float

    @classmethod
    def draw(cls, name: str, topic: str, entropy: random.Random) -> ShareGroup:
        has_dead_letters = entropy.random() < 0.5
        return cls(
            name,
            topic,
            members=entropy.randint(1, 3),
            read_committed=entropy.random() < 0.6,
            dead_letter_topic=f"dlq.{name}" if has_dead_letters else "",
            creates_dead_letter_topic=entropy.random() < 0.5,
            is_altered=entropy.random() < 0.2,
            releases=entropy.choice((0.05, 0.3)),
            rejects=entropy.choice((0.02, 0.1)),
            renews=entropy.choice((0.0, 0.05)),
            forgets=entropy.choice((0.0, 0.02)),
        )

    @property
    def configs(self) -> dict[str, str]:
        configs = {
            "share.auto.offset.reset": "earliest",
            "share.isolation.level": "read_committed" if self.read_committed else "read_uncommitted",
        }
        if self.dead_letter_topic:
            configs["errors.deadletterqueue.topic.name"] = self.dead_letter_topic
        return configs

    def is_closed(self, host: ClientHost) -> bool:
        """True while the group is to be empty."""
        if not self.is_altered or host.stopping or host.world.is_calm:
            return False
        return host.now_ms % CYCLE_MS >= CYCLE_MS - CLOSED_MS


class Member(WorkloadProgram[ShareGroup]):
    def __init__(self, context: WorkloadContext, workload: ShareGroup, name: str) -> None:
        super().__init__(context, workload, name)
        self.renewed: list[ShareRecord] = []

    async def __call__(self, host: ClientHost) -> None:
        while not host.stopping:
            if not self.workload.is_closed(host):
                await self.run_membership(host)
            await host.pause(self.entropy, 2_000)

    async def run_membership(self, host: ClientHost) -> None:
        group, entropy = self.workload, self.entropy
        settings = ShareSettings(
            acknowledgement=entropy.choice(("implicit", "explicit", "explicit")),
            acquire=entropy.choice(("batch_optimized", "record_limit")),
            max_records=entropy.choice((1, 5, 500)),
            max_wait_ms=WAIT_MS,
            max_poll_interval_ms=entropy.choice((4_000, 300_000)),
        )
        until_ms = host.now_ms + entropy.randint(2_000, 30_000)
        self.renewed.clear()
        async with (
            host.client() as client,
            AsyncShareConsumer(client, group.name, [group.topic], settings=settings) as consumer,
        ):
            while not host.stopping and host.now_ms < until_ms and not group.is_closed(host):
                records = await consumer.poll(WAIT_MS)
                record_polled(self.context, host, group, records)
                if settings.acknowledgement == "explicit":
                    await self.acknowledge_all(host, consumer, records)
                if entropy.random() < 0.3:
                    await consumer.commit()
                await host.pause(entropy, 100)
                await self.stumble(host)

    async def acknowledge_all(
        self, host: ClientHost, consumer: AsyncShareConsumer, records: Sequence[ShareRecord]
    ) -> None:
        group, entropy = self.workload, self.entropy
        renewed, self.renewed = self.renewed, []
        for record in (*renewed, *records):
            chance = entropy.random() - group.forgets
            if chance < 0:
                continue  # its lock runs out
            kind = Acknowledge.ACCEPT
            for share, other in (
                (group.releases, Acknowledge.RELEASE),
                (group.rejects, Acknowledge.REJECT),
                (group.renews, Acknowledge.RENEW),
            ):
                if 0 <= chance < share:
                    kind = other
                chance -= share
            if kind is Acknowledge.RENEW:
                self.renewed.append(record)
            try:
                consumer.acknowledge(record, kind)
            except OutOfTurn:
                # A renewed record that came again since, to this member: it has acknowledged the later delivery.
                if record not in renewed:
                    raise
        if entropy.random() < 0.2:
            await host.pause(entropy, 1_000)

    async def stumble(self, host: ClientHost) -> None:
        """Now and then freeze beyond the locks, or die."""
        if host.stopping or host.world.is_calm:
            return
        chance = self.entropy.random()
        if chance < 0.01:
            await host.sleep(self.entropy.randint(500, LONGEST_FREEZE_MS))
        elif chance < 0.015:
            host.kill(silent=self.entropy.random() < 0.5)
            await host.sleep(1)


class Settling(WorkloadProgram[ShareGroup]):
    """Accepts what is left once the other programs end, until the group has nothing more to deliver."""

    # The times since which all is calm, and since which all records are readable.
    calm_ms: int | None = None
    readable_ms: int | None = None

    async def __call__(self, host: ClientHost) -> None:
        while not host.stopping:
            await host.sleep(500)
            if host.world.is_calm and self.calm_ms is None:
                self.calm_ms = host.now_ms
        group = self.workload
        settings = ShareSettings(max_wait_ms=WAIT_MS)
        async with (
            host.client() as client,
            AsyncShareConsumer(client, group.name, [group.topic], settings=settings) as consumer,
        ):
            asked_ms = host.now_ms
            while True:
                record_polled(self.context, host, group, await consumer.poll(WAIT_MS))
                if host.now_ms < asked_ms + 1_000:
                    continue
                asked_ms = host.now_ms
                if await self.has_ended(host, client, consumer.lock_timeout_ms or 0):
                    return

    async def has_ended(self, host: ClientHost, client: AsyncClient, lock_ms: int) -> bool:
        end = await is_at_end(client, self.workload.name, self.workload.topic)
        if end.is_readable and self.readable_ms is None:
            self.readable_ms = host.now_ms
        if self.readable_ms is None or end.is_settled:
            return end.is_settled
        calm_ms = self.readable_ms if self.calm_ms is None else self.calm_ms
        if host.now_ms <= max(self.readable_ms + SETTLED_WITHIN_MS, calm_ms + lock_ms + AFTER_LOCKS_MS):
            return False
        self.context.report_violation(
            f"L6 share group not settled: {self.workload.name} starts at {end.starts}, the records end at {end.ends}"
        )
        return True


def record_polled(
    context: WorkloadContext, host: ClientHost, group: ShareGroup, records: Sequence[ShareRecord]
) -> None:
    """Each run of neighbours is a poll of its own: what lies between was not acquired."""
    by_place = groupby(enumerate(records), key=lambda pair: (pair[1].partition, pair[1].offset - pair[0]))
    for (partition, _), pairs in by_place:
        seen = [
            SeenRecord(
                record.offset,
                value_of(record.value, record.headers),
                None if record.key is None else record.key.decode(),
            )
            for _, record in pairs
        ]
        place = TopicPartition(TopicName(group.topic), partition)
        at = context.world.kernel.now_us
        context.recorder.polls.append(Poll(host.name, place, at, seen, True, group.read_committed))
