"""The scenario of a seed in a world of several brokers: how topics are replicated, and which faults brokers meet.

What is drawn comes from streams of their own: a seed in a cluster has nothing in common with the same seed alone.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from oncelog.sim.faults.fault import Fault
from oncelog.sim.faults.plan import CLUSTER_FAMILIES, draw_plan
from oncelog.sim.machine import Latencies
from oncelog.sim.network.conditions import NetworkConditions
from oncelog.sim.scenario import Replication, Scenario, draw_config, suitable
from oncelog.sim.workloads.selection import IN_CLUSTERS, draw_workloads
from oncelog.sim.workloads.workload import Workload

COUNTS: Final = (2, 3, 3, 3, 3, 3, 4, 5)
"""Of brokers, one of which a seed draws."""
SESSION_TIMEOUTS_MS: Final = (2_000, 6_000)
LAGS_MS: Final = (1_500, 5_000, 10_000)
OUTLIVING: Final = 0.5
"""Of the seeds: the tree learns of a death by the end of the session, as ZooKeeper does."""
LOST_DISKS: Final = 0.15
"""Of the seeds: every topic is on two disks at least before anything is acknowledged, and one disk is lost."""


class _Draws(NamedTuple):
    """What a seed draws about replicas. ``safe``: what is acknowledged is on two disks."""

    brokers: int
    safe: bool
    entropy: random.Random

    def replication(self) -> Replication:
        """How one topic is replicated."""
        most = min(self.brokers, 3)
        if self.safe:
            return Replication(most, 2)
        factor = self.entropy.choice((1, 2, 3, 3, 3))
        return Replication(min(factor, most), self.entropy.choice((1, 2)))


def draw_cluster_scenario(
    seed: int, length_ms: int, plan: Sequence[Fault] | None, brokers: int | None = None
) -> Scenario:
    """The scenario of a seed; ``plan`` replaces the faults it draws, ``brokers`` the number of brokers."""
    draws = random.Random(f"{seed}/cluster")
    drawn_count = draws.choice(COUNTS)
    count = drawn_count if brokers is None else brokers
    safe = count >= 3 and draws.random() < LOST_DISKS
    replicas = _Draws(count, safe, random.Random(f"{seed}/replicas"))
    transaction_version = 1 if draws.random() < 0.1 else 2
    workloads = draw_workloads(draws, transaction_version, IN_CLUSTERS)
    slowest_us = draws.choice((1_000, 5_000, 50_000))
    faults = draw_plan(random.Random(f"{seed}/cluster faults"), length_ms, CLUSTER_FAMILIES)
    if safe:
        faults.append(_lost_disk(draws, length_ms))
    return Scenario(
        config={**draw_config(draws), **_internal_topics(replicas), **_timing(draws)},
        transaction_version=transaction_version,
        latencies=Latencies(sync_us=(50, slowest_us), metadata_us=(200, slowest_us), slice_us=(50, slowest_us)),
        conditions=NetworkConditions(100, draws.choice((500, 2_000, 10_000))),
        workloads=workloads,
        plan=suitable(sorted(faults) if plan is None else plan, transaction_version),
        disk_checks=draws.choice((0.0, 0.2)),
        brokers=count,
        session_timeout_ms=draws.choice(SESSION_TIMEOUTS_MS),
        sessions_outlive_processes=random.Random(f"{seed}/sessions").random() < OUTLIVING,
        replication=_replication(replicas, workloads),
        clock_errors_ms=[draws.choice((0, 0, -3_000, 3_000, 60_000)) for _ in range(count)],
    )


def _replication(replicas: _Draws, workloads: Sequence[Workload]) -> Mapping[str, Replication]:
    return {topic.name: replicas.replication() for workload in workloads for topic in workload.topics()}


def _internal_topics(replicas: _Draws) -> Mapping[str, str]:
    by_default, offsets, transactions = replicas.replication(), replicas.replication(), replicas.replication()
    return {
        "default.replication.factor": str(by_default.factor),
        "min.insync.replicas": str(by_default.min_insync_replicas),
        "offsets.topic.replication.factor": str(offsets.factor),
        "transaction.state.log.replication.factor": str(transactions.factor),
        "transaction.state.log.min.isr": str(transactions.min_insync_replicas),
    }


def _timing(draws: random.Random) -> Mapping[str, str]:
    return {
        "replica.lag.time.max.ms": str(draws.choice(LAGS_MS)),
        "replica.fetch.wait.max.ms": str(draws.choice((200, 500))),
        "replica.socket.timeout.ms": str(draws.choice((2_000, 30_000))),
    }


def _lost_disk(draws: random.Random, length_ms: int) -> Fault:
    return Fault(
        draws.randrange(length_ms // 5, length_ms), "lose-disk", draws.randint(1, 8_000), draws.getrandbits(32)
    )
