"""The scenario of a seed, drawn before anything happens: configuration, latencies, network, workloads, faults."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from oncelog.sim.faults.fault import Fault
from oncelog.sim.faults.network import TREE_PATHS
from oncelog.sim.faults.plan import FAMILIES, draw_plan_of
from oncelog.sim.virtual.machine import Latencies
from oncelog.sim.virtual.network.conditions import NetworkConditions
from oncelog.sim.workloads.hangs import draw_hangs
from oncelog.sim.workloads.hangs.workload import SHARE, TRANSACTION_VERSION
from oncelog.sim.workloads.kit.workload import Workload
from oncelog.sim.workloads.selection import OLD_CLIENTS, draw_workloads, with_old_copiers, with_refused_batches

SESSION_TIMEOUT_MS: Final = 6_000


class Replication(NamedTuple):
    factor: int
    min_insync_replicas: int


@dataclass(frozen=True, slots=True)
class Scenario:
    """Everything but what happens in it."""

    config: Mapping[str, str]
    transaction_version: int
    latencies: Latencies
    conditions: NetworkConditions
    workloads: Sequence[Workload]
    plan: Sequence[Fault]
    disk_checks: float
    """Probability that the disk is checked after a crash; at the end it always is."""
    brokers: int = 1
    session_timeout_ms: int | None = None
    """The time-out of brokers' sessions with the coordination tree; None: they never end by themselves."""
    sessions_outlive_processes: bool = False
    replication: Mapping[str, Replication] = field(default_factory=dict)
    """Replication by topic, where there are several brokers."""
    clock_errors_ms: Sequence[int] = ()
    """Errors of the clocks of the brokers' machines, from the start."""


def draw_scenario(
    seed: int,
    length_ms: int,
    plan: Sequence[Fault] | None,
    *,
    kinds: Sequence[str] = (),
    old_clients: bool = OLD_CLIENTS,
) -> Scenario:
    """The scenario of a seed; ``plan`` replaces the faults it draws, ``kinds`` the kinds of faults it draws from,
    ``old_clients`` adds clients of the old kind."""
    draws = random.Random(f"{seed}/scene")
    transaction_version = 1 if draws.random() < 0.15 else 2
    drawn = draw_plan_of(random.Random(f"{seed}/faults"), length_ms, kinds, FAMILIES)
    slowest_us = draws.choice((1_000, 5_000, 50_000))
    refusals = random.Random(f"{seed}/refusals")  # streams of their own: the other seeds stay what they are
    hangs = random.Random(f"{seed}/hangs")
    scenario = Scenario(
        config=draw_config(draws),
        transaction_version=transaction_version,
        latencies=Latencies(sync_us=(50, slowest_us), metadata_us=(200, slowest_us), slice_us=(50, slowest_us)),
        conditions=NetworkConditions(100, draws.choice((500, 2_000, 20_000))),
        workloads=with_refused_batches(draw_workloads(draws, transaction_version), refusals, transaction_version),
        plan=suitable(drawn if plan is None else plan, transaction_version),
        disk_checks=draws.choice((0.0, 0.2)),
        session_timeout_ms=_session_timeout_ms(drawn if plan is None else plan),
    )
    if hangs.random() >= SHARE:
        if not old_clients:
            return scenario
        old = random.Random(f"{seed}/old clients")
        moments = kill_moments(old, length_ms)  # drawn with a plan too: the clients are those of the seed
        return _with_old_clients(scenario, old, moments if plan is None and not kinds else [])
    workload, config = draw_hangs("hang", hangs)
    tight = _tight_moments(hangs, length_ms)
    return hanging(scenario, workload, config, [*drawn, *(() if kinds else tight)] if plan is None else plan)


def kill_moments(entropy: random.Random, length_ms: int) -> list[Fault]:
    """Kills in the instants in which answers to EndTxn leave, in most worlds with old copiers."""
    if entropy.random() < 0.3:
        return []
    times = range(entropy.randint(1_000, 8_000), length_ms, entropy.choice((4_000, 12_000)))
    return [Fault(at_ms, "kill-at-end-txn", entropy.randint(200, 4_000), entropy.getrandbits(32)) for at_ms in times]


def _tight_moments(entropy: random.Random, length_ms: int) -> list[Fault]:
    """Moments in which the disk is full, in some worlds of hangs: markers are refused, and have to be written again."""
    if entropy.random() < 0.6:
        return []
    times = range(entropy.randint(500, 5_000), length_ms, entropy.choice((2_000, 6_000)))
    return [Fault(at_ms, "tight-disk", entropy.randint(20, 800), entropy.getrandbits(32)) for at_ms in times]


def _session_timeout_ms(plan: Sequence[Fault]) -> int | None:
    """A time-out, and heartbeats, where a plan breaks the path to the tree: the plans that seeds draw do so only where
    somebody has chosen the kinds."""
    return SESSION_TIMEOUT_MS if any(fault.kind in TREE_PATHS for fault in plan) else None


def _with_old_clients(scenario: Scenario, entropy: random.Random, moments: Sequence[Fault]) -> Scenario:
    """The scenario, in some seeds with copiers of the old kind; their late requests would decide the wrong transaction,
    as in V1."""
    workloads = with_old_copiers(list(scenario.workloads), entropy, scenario.transaction_version)
    if workloads == scenario.workloads:
        return scenario
    return replace(scenario, workloads=workloads, plan=suitable([*scenario.plan, *moments], 1))


def hanging(scenario: Scenario, workload: Workload, config: Mapping[str, str], plan: Sequence[Fault]) -> Scenario:
    """The same machine and network, and the world of hanging transactions."""
    return replace(
        scenario,
        config={**scenario.config, **config},
        transaction_version=TRANSACTION_VERSION,
        workloads=[workload],
        plan=suitable(plan, TRANSACTION_VERSION),
        disk_checks=0.5,
    )


def draw_config(draws: random.Random) -> Mapping[str, str]:
    """Keys of the brokers' configuration, by chance."""
    return {
        "transaction.state.log.num.partitions": str(draws.choice((1, 3, 5))),
        "offsets.topic.num.partitions": str(draws.choice((1, 3, 5))),
        "log.roll.ms": str(draws.choice((2_000, 10_000, 3_600_000))),
        "group.initial.rebalance.delay.ms": str(draws.choice((0, 500))),
        "log.cleaner.backoff.ms": str(backoff_ms := draws.choice((1_000, 15_000))),
        "log.retention.check.interval.ms": str(min(backoff_ms, draws.choice((1_000, 20_000)))),
        "transaction.two.phase.commit.enable": "true",
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": str(draws.choice((1_000, 10_000))),
    }


def suitable(plan: Sequence[Fault], transaction_version: int) -> Sequence[Fault]:
    """Late requests decide the wrong transaction in Transactions V1, by Kafka's design (KAFKA-17754): not there."""
    late = ("cut-up", "hold-connection", "reset", "repeated-requests")
    return list(plan) if transaction_version >= 2 else [fault for fault in plan if fault.kind not in late]
