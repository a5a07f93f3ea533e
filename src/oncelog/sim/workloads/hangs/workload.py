"""The workload of hanging transactions: a seed's draws for it, and all its programs.

Other workloads do not expect hangs, so this one runs alone: with or without verification of late writes, with
coordinators that expire idle ids, and a broker that may end hanging transactions.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from oncelog.client.aio.client import AsyncClient
from oncelog.sim.workloads.hangs.administrator import Administrator
from oncelog.sim.workloads.hangs.final_verdict import FinalVerdict
from oncelog.sim.workloads.hangs.ground_truth import CountedContext, GroundTruth
from oncelog.sim.workloads.hangs.injector import HangInjector
from oncelog.sim.workloads.hangs.live_transactions import Keeper, OffsetCommitter, Reader, SlowTransactions
from oncelog.sim.workloads.hangs.log_damage import LogDamager
from oncelog.sim.workloads.hangs.request_hangs import REQUEST_KINDS
from oncelog.sim.workloads.kit.group_members import record_group_offsets
from oncelog.sim.workloads.kit.workload import Topic, Workload, WorkloadContext
from oncelog.sim.workloads.producers import Producers
from oncelog.sim.workloads.two_phase_committers import Committers

# Share of seeds with this workload.
SHARE: Final = 0.15
# Transactions V1 may hang by design when requests are late; here only injected ones may.
TRANSACTION_VERSION: Final = 2


@dataclass(frozen=True, slots=True)
class HangingTransactions(Workload):
    name: str
    partitions: int
    injectors: int
    log_damager: bool
    administrators: int
    left_for_ever: bool
    writers: Producers
    committers: Committers
    # Committers whose transactions stay prepared until the end, each on its own partition.
    kept: Committers
    truth: GroundTruth = field(repr=False)

    @property
    def leaves_open(self) -> bool:
        return self.left_for_ever

    def topics(self) -> list[Topic]:
        return [Topic(self.name, self.partitions), *self.committers.topics(), *self.kept.topics()]

    def start(self, context: WorkloadContext) -> None:
        counted = CountedContext(context.world, context.recorder, context.transaction_version)
        places = Topic(self.name, self.partitions).topic_partitions
        topics = tuple(topic.name for topic in self.topics())
        self.writers.start(counted)
        self.committers.start(counted)
        for index in range(self.kept.committers):
            name = f"{self.kept.name}-{index}"
            for_ever = self.left_for_ever and index == 0
            context.supervise(name, Keeper(context, self.kept, name, self.truth, for_ever=for_ever))
        slow = self.truth.safe_name(f"{self.name}-drip", 1) + "-0"
        self.truth.groups.append(slow)
        counted.supervise(slow, SlowTransactions(context, slow, places))
        counted.supervise(f"{self.name}-reader", Reader(context, places))
        group = f"{self.name}-commits"
        self.truth.groups.append(group)
        counted.supervise(group, OffsetCommitter(context, group, places[0]))
        live_ids = [f"{self.writers.name}-{index}" for index in range(self.writers.producers)]
        for index in range(self.injectors):
            name = f"{self.name}-plant{index}"
            counted.supervise(name, HangInjector(context, self.truth, name, places, live_ids, REQUEST_KINDS))
        if self.log_damager:
            counted.supervise(f"{self.name}-vandal", LogDamager(context, self.truth, f"{self.name}-vandal", places))
        for index in range(self.administrators):
            name = f"{self.name}-admin{index}"
            counted.supervise(name, Administrator(context, self.truth, name, topics, self.committers))
        context.supervise(f"{self.name}-closing", FinalVerdict(context, counted, self.truth))

    async def record_final_state(self, context: WorkloadContext, client: AsyncClient) -> None:
        await self.committers.record_final_state(context, client)
        await self.kept.record_final_state(context, client)
        for group in self.truth.groups:
            await record_group_offsets(context, client, group)


def draw_hangs(
    name: str, entropy: random.Random, *, in_cluster: bool = False
) -> tuple[HangingTransactions, Mapping[str, str]]:
    config = {
        "transaction.state.log.num.partitions": str(entropy.choice((3, 5))),
        "transaction.partition.verification.enable": entropy.choice(("false", "false", "false", "false", "true")),
        "transaction.hanging.action": entropy.choice(("report", "abort")),
        "transaction.hanging.grace.ms": str(entropy.choice((15_000, 2_000, 0))),
        "transaction.two.phase.commit.alarm.ms": str(entropy.choice((5_000, 3_600_000))),
    }
    if entropy.random() < 0.3:
        config["transactional.id.expiration.ms"] = "8000"
        config["transaction.remove.expired.transaction.cleanup.interval.ms"] = str(entropy.choice((1_000, 5_000)))
    truth = GroundTruth(
        verifies=config["transaction.partition.verification.enable"] == "true",
        coordinators=int(config["transaction.state.log.num.partitions"]),
        orphan_action=config["transaction.hanging.action"],
        orphan_grace_ms=int(config["transaction.hanging.grace.ms"]),
    )
    orphans_alone = truth.orphan_action == "abort" and entropy.random() < 0.5
    name = truth.safe_name(name, 1)
    partitions = entropy.randint(2, 4)
    left_for_ever = entropy.random() < 0.3
    keepers = 1 if left_for_ever else entropy.randint(1, 2)
    hangs = HangingTransactions(
        name,
        partitions,
        injectors=entropy.randint(1, 3),
        # In a cluster, the other replicas would restore a damaged log.
        log_damager=(entropy.random() < 0.4 or truth.verifies) and not in_cluster,
        administrators=0 if orphans_alone else entropy.randint(1, 2),
        left_for_ever=left_for_ever,
        writers=Producers(name, 1, partitions, entropy.choice((50, 150)), transactional=True, timeout_ms=5_000),
        committers=Committers(
            truth.safe_name(f"{name}-2pc", 2), 2, 2, 100, entropy.choice((0.0, 0.05)), outsiders=True
        ),
        kept=Committers(truth.safe_name(f"{name}-kept", keepers), keepers, keepers, 100, deadly=0.0, outsiders=True),
        truth=truth,
    )
    return hangs, config
