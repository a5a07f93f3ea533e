"""Members of share groups: they settle records in all ways, work too long, freeze, die and leave."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Final

from oncelog.base.ids import TopicName, TopicPartition
from oncelog.client.aio.client import AsyncClient
from oncelog.client.aio.share import AsyncShareConsumer
from oncelog.client.errors import OutOfTurn
from oncelog.client.machine.share.values import Acknowledge, ShareRecord, ShareSettings
from oncelog.sim.checkers.history import Poll
from oncelog.sim.virtual.world import ClientHost
from oncelog.sim.workloads.kit.recorder import seen_record
from oncelog.sim.workloads.kit.workload import WorkloadContext, WorkloadProgram
from oncelog.sim.workloads.share_administrators import is_at_end, unsettled_batches
from oncelog.sim.workloads.share_group import ShareGroup

WAIT_MS: Final = 250
# Longer than the longest lock and session.
LONGEST_FREEZE_MS: Final = 9_000
# Mostly longer than the shorter locks.
LONGEST_WORK_MS: Final = 6_000
# The time to settle everything once it is readable: short locks, and writes that are repeated after up to 16 s.
SETTLED_WITHIN_MS: Final = 30_000
# The same after the locks of members that are gone, whose end their leaders may have missed.
AFTER_LOCKS_MS: Final = 10_000


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
                if records and entropy.random() < group.slow and not host.stopping and not host.world.is_calm:
                    await host.sleep(entropy.randint(0, LONGEST_WORK_MS))
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
        # The rest of a group is due when the locks of before the calm have ended.
        forgets = 0.0 if host.world.is_calm else group.forgets
        for record in (*renewed, *records):
            chance = entropy.random() - forgets
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
    """Accepts the rest once the other programs end, until the group has nothing more to deliver."""

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
        if left := await unsettled_batches(client, self.workload.name, end):
            self.context.report_violation(
                f"L6 share group not settled: {self.workload.name} starts at {end.starts}, the records end at "
                f"{end.ends}; not settled: {left}"
            )
        return True


def record_polled(
    context: WorkloadContext, host: ClientHost, group: ShareGroup, records: Sequence[ShareRecord]
) -> None:
    """Each run of neighbours is a poll of its own: what lies between was not acquired."""
    by_place = groupby(enumerate(records), key=lambda pair: (pair[1].partition, pair[1].offset - pair[0]))
    for (partition, _), pairs in by_place:
        seen = [seen_record(record) for _, record in pairs]
        place = TopicPartition(TopicName(group.topic), partition)
        at = context.world.kernel.now_us
        context.recorder.polls.append(Poll(host.name, place, at, seen, True, group.read_committed))
