"""The world of hanging transactions: what a seed draws for it, and all its programs.

The other workloads know nothing of hangs, so a seed that draws this one runs it alone: with the setting that lets late
writes in, or without it, with coordinators that forget idle ids, and with a broker that ends orphans itself, or not.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from oncelog.base.ids import TopicName, TopicPartition
from oncelog.client.aio.client import AsyncClient
from oncelog.sim.faults import Fault
from oncelog.sim.workloads.base import Stage, Topic
from oncelog.sim.workloads.hangs.administering import Administrator
from oncelog.sim.workloads.hangs.closing import Closing
from oncelog.sim.workloads.hangs.committing import Committing
from oncelog.sim.workloads.hangs.damaging import Vandal
from oncelog.sim.workloads.hangs.excused import Dripping, Keeper, Reader
from oncelog.sim.workloads.hangs.ground import CountedStage, Ground
from oncelog.sim.workloads.hangs.planting import Planter
from oncelog.sim.workloads.members import note_group
from oncelog.sim.workloads.producing import Producers
from oncelog.sim.workloads.two_phase import Committers

SHARE: Final = 0.15
"""Of the seeds."""
TRANSACTION_VERSION: Final = 2
"""Clients under Transactions V1 hang by themselves when requests are late, by Kafka's design; here only who is to."""


@dataclass(frozen=True, slots=True)
class Hangs:
    """Producers and committers, planters among them, and who has to tell them apart."""

    name: str
    partitions: int
    planters: int
    vandal: bool
    administrators: int
    left_for_ever: bool
    writers: Producers
    committers: Committers
    kept: Committers
    """Their transactions stay prepared until the end, each on a partition of its own."""
    ground: Ground = field(repr=False)

    @property
    def leaves_open(self) -> bool:
        """Whether a prepared transaction is never ended."""
        return self.left_for_ever

    def topics(self) -> list[Topic]:
        """All write to one; committers and keepers to others."""
        return [Topic(self.name, self.partitions), *self.committers.topics(), *self.kept.topics()]

    def start(self, stage: Stage) -> None:
        """All programs."""
        counted = CountedStage(stage.world, stage.recorder, stage.transaction_version)
        places = [TopicPartition(TopicName(self.name), index) for index in range(self.partitions)]
        topics = tuple(topic.name for topic in self.topics())
        self.writers.start(counted)
        self.committers.start(counted)
        for index in range(self.kept.committers):
            name = f"{self.kept.name}-{index}"
            for_ever = self.left_for_ever and index == 0
            stage.supervise(name, Keeper(stage, self.kept, name, self.ground, for_ever=for_ever))
        drip = self.ground.safe_name(f"{self.name}-drip", 1) + "-0"
        self.ground.groups.append(drip)
        counted.supervise(drip, Dripping(stage, drip, places))
        counted.supervise(f"{self.name}-reader", Reader(stage, places))
        group = f"{self.name}-commits"
        self.ground.groups.append(group)
        counted.supervise(group, Committing(stage, group, places[0]))
        live_ids = [f"{self.writers.name}-{index}" for index in range(self.writers.producers)]
        for index in range(self.planters):
            name = f"{self.name}-plant{index}"
            counted.supervise(name, Planter(stage, self.ground, name, places, live_ids))
        if self.vandal:
            counted.supervise(f"{self.name}-vandal", Vandal(stage, self.ground, f"{self.name}-vandal", places))
        for index in range(self.administrators):
            name = f"{self.name}-admin{index}"
            counted.supervise(name, Administrator(stage, self.ground, name, topics, self.committers))
        stage.supervise(f"{self.name}-closing", Closing(stage, counted, self.ground))

    async def look_back(self, stage: Stage, client: AsyncClient) -> None:
        """What committers and keepers have in their logs, and what groups have committed."""
        await self.committers.look_back(stage, client)
        await self.kept.look_back(stage, client)
        for group in self.ground.groups:
            await note_group(stage, client, group)


def draw_hangs(name: str, entropy: random.Random) -> tuple[Hangs, Mapping[str, str]]:
    """By chance; with the broker's configuration that goes with it."""
    config = {
        "transaction.state.log.num.partitions": str(entropy.choice((3, 5))),
        "transaction.partition.verification.enable": entropy.choice(("false", "false", "false", "false", "true")),
        "transaction.orphan.action": entropy.choice(("report", "abort")),
        "transaction.orphan.grace.ms": str(entropy.choice((15_000, 2_000, 0))),
        "transaction.two.phase.commit.alarm.ms": str(entropy.choice((5_000, 3_600_000))),
    }
    if entropy.random() < 0.3:
        config["transactional.id.expiration.ms"] = "8000"
        config["transaction.remove.expired.transaction.cleanup.interval.ms"] = str(entropy.choice((1_000, 5_000)))
    ground = Ground(
        verifies=config["transaction.partition.verification.enable"] == "true",
        coordinators=int(config["transaction.state.log.num.partitions"]),
        orphan_action=config["transaction.orphan.action"],
        orphan_grace_ms=int(config["transaction.orphan.grace.ms"]),
    )
    orphans_alone = ground.orphan_action == "abort" and entropy.random() < 0.5
    name = ground.safe_name(name, 1)
    partitions = entropy.randint(2, 4)
    left_for_ever = entropy.random() < 0.3
    keepers = 1 if left_for_ever else entropy.randint(1, 2)
    hangs = Hangs(
        name,
        partitions,
        planters=entropy.randint(1, 3),
        vandal=entropy.random() < 0.4 or ground.verifies,
        administrators=0 if orphans_alone else entropy.randint(1, 2),
        left_for_ever=left_for_ever,
        writers=Producers(name, 1, partitions, entropy.choice((50, 150)), transactional=True, timeout_ms=5_000),
        committers=Committers(
            ground.safe_name(f"{name}-2pc", 2), 2, 2, 100, entropy.choice((0.0, 0.05)), outsiders=True
        ),
        kept=Committers(ground.safe_name(f"{name}-kept", keepers), keepers, keepers, 100, deadly=0.0, outsiders=True),
        ground=ground,
    )
    return hangs, config


def tight_moments(entropy: random.Random, length_ms: int) -> list[Fault]:
    """In some of these worlds the disk is full for moments: markers are refused, and have to be written again."""
    if entropy.random() < 0.6:
        return []
    times = range(entropy.randint(500, 5_000), length_ms, entropy.choice((2_000, 6_000)))
    return [Fault(at_ms, "tight-disk", entropy.randint(20, 800), entropy.getrandbits(32)) for at_ms in times]
