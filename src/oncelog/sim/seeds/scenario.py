"""The scenario of a seed, drawn before the run: configuration, latencies, network, workloads and faults."""

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
from oncelog.sim.workloads.hangs import HangingTransactions, draw_hangs
from oncelog.sim.workloads.hangs.workload import SHARE, TRANSACTION_VERSION
from oncelog.sim.workloads.kit.workload import Workload
from oncelog.sim.workloads.selection import (
    OLD_CLIENTS,
    draw_group_churn,
    draw_share_queues,
    draw_workloads,
    with_old_copiers,
    with_refused_batches,
)

SESSION_TIMEOUT_MS: Final = 6_000


class Replication(NamedTuple):
    factor: int
    min_insync_replicas: int


@dataclass(frozen=True, slots=True)
class Scenario:
    config: Mapping[str, str]
    transaction_version: int
    latencies: Latencies
    conditions: NetworkConditions
    workloads: Sequence[Workload]
    plan: Sequence[Fault]
    # Probability that the disk is checked after a crash; at the end it always is.
    disk_checks: float
    brokers: int = 1
    # The timeout of brokers' sessions with the coordination tree; None: they never expire.
    session_timeout_ms: int | None = None
    sessions_outlive_processes: bool = False
    # Replication by topic, in clusters.
    replication: Mapping[str, Replication] = field(default_factory=dict)
    # Initial errors of the clocks of the brokers' machines.
    clock_errors_ms: Sequence[int] = ()


def draw_scenario(
    seed: int,
    length_ms: int,
    plan: Sequence[Fault] | None,
    *,
    kinds: Sequence[str] = (),
    old_clients: bool = OLD_CLIENTS,
) -> Scenario:
    """Draw the scenario of a seed.

    ``plan`` replaces the drawn faults, ``kinds`` the kinds of faults to draw from, ``old_clients`` adds old clients.
    """
    scenario = _draw_regular(seed, length_ms, plan, kinds, old_clients)
    if is_hanging(scenario):
        return scenario
    regrouped = regrouping(scenario, random.Random(f"{seed}/group churn"))
    return queuing(scenario, random.Random(f"{seed}/share queues")) if regrouped is scenario else regrouped


def _draw_regular(
    seed: int, length_ms: int, plan: Sequence[Fault] | None, kinds: Sequence[str], old_clients: bool
) -> Scenario:
    draws = random.Random(f"{seed}/scene")
    transaction_version = 1 if draws.random() < 0.15 else 2
    drawn_plan = draw_plan_of(random.Random(f"{seed}/faults"), length_ms, kinds, FAMILIES)
    slowest_us = draws.choice((1_000, 5_000, 50_000))
    refusals = random.Random(f"{seed}/refusals")  # separate streams, so that other draws do not change
    hangs = random.Random(f"{seed}/hangs")
    scenario = Scenario(
        config=draw_config(draws),
        transaction_version=transaction_version,
        latencies=Latencies(sync_us=(50, slowest_us), metadata_us=(200, slowest_us), slice_us=(50, slowest_us)),
        conditions=NetworkConditions(100, draws.choice((500, 2_000, 20_000))),
        workloads=with_refused_batches(draw_workloads(draws, transaction_version), refusals, transaction_version),
        plan=suitable(drawn_plan if plan is None else plan, transaction_version),
        disk_checks=draws.choice((0.0, 0.2)),
        session_timeout_ms=_session_timeout_ms(drawn_plan if plan is None else plan),
    )
    if hangs.random() >= SHARE:
        if not old_clients:
            return scenario
        old_entropy = random.Random(f"{seed}/old clients")
        kills = kill_moments(old_entropy, length_ms)  # also drawn with a plan: clients depend on the seed only
        return _with_old_clients(scenario, old_entropy, kills if plan is None and not kinds else [])
    workload, config = draw_hangs("hang", hangs)
    tight_disks = _tight_disks(hangs, length_ms)
    return hanging(scenario, workload, config, [*drawn_plan, *(() if kinds else tight_disks)] if plan is None else plan)


def kill_moments(entropy: random.Random, length_ms: int) -> list[Fault]:
    """Kills at the moment an EndTxn response leaves, in most scenarios with old copiers."""
    if entropy.random() < 0.3:
        return []
    times = range(entropy.randint(1_000, 8_000), length_ms, entropy.choice((4_000, 12_000)))
    return [Fault(at_ms, "kill-at-end-txn", entropy.randint(200, 4_000), entropy.getrandbits(32)) for at_ms in times]


def _tight_disks(entropy: random.Random, length_ms: int) -> list[Fault]:
    # Moments with a full disk, in some scenarios with hangs: markers are rejected and must be written again.
    if entropy.random() < 0.6:
        return []
    times = range(entropy.randint(500, 5_000), length_ms, entropy.choice((2_000, 6_000)))
    return [Fault(at_ms, "tight-disk", entropy.randint(20, 800), entropy.getrandbits(32)) for at_ms in times]


def _session_timeout_ms(plan: Sequence[Fault]) -> int | None:
    # A session timeout for plans that break the path to the tree. Seeds draw such plans only from chosen kinds.
    return SESSION_TIMEOUT_MS if any(fault.kind in TREE_PATHS for fault in plan) else None


def _with_old_clients(scenario: Scenario, entropy: random.Random, kills: Sequence[Fault]) -> Scenario:
    workloads = with_old_copiers(list(scenario.workloads), entropy, scenario.transaction_version)
    if workloads == scenario.workloads:
        return scenario
    # Their late requests would decide the wrong transaction, as in V1.
    return replace(scenario, workloads=workloads, plan=suitable([*scenario.plan, *kills], 1))


def hanging(scenario: Scenario, workload: Workload, config: Mapping[str, str], plan: Sequence[Fault]) -> Scenario:
    """The scenario with hanging transactions, on the same machine and network."""
    return replace(
        scenario,
        config={**scenario.config, **config},
        transaction_version=TRANSACTION_VERSION,
        workloads=[workload],
        plan=suitable(plan, TRANSACTION_VERSION),
        disk_checks=0.5,
    )


def is_hanging(scenario: Scenario) -> bool:
    return any(isinstance(workload, HangingTransactions) for workload in scenario.workloads)


def regrouping(scenario: Scenario, entropy: random.Random) -> Scenario:
    # In some seeds, a group under churn runs instead of the scenario's workloads.
    drawn = draw_group_churn(entropy, scenario.transaction_version)
    if drawn is None:
        return scenario
    workload, config = drawn
    return replace(scenario, workloads=[workload], config={**scenario.config, **config}, disk_checks=0.5)


def queuing(scenario: Scenario, entropy: random.Random) -> Scenario:
    # In some seeds, share groups run instead of the scenario's workloads.
    drawn = draw_share_queues(entropy, scenario.transaction_version)
    if drawn is None:
        return scenario
    workload, config = drawn
    return replace(scenario, workloads=[workload], config={**scenario.config, **config})


def draw_config(draws: random.Random) -> Mapping[str, str]:
    return {
        "transaction.state.log.num.partitions": str(draws.choice((1, 3, 5))),
        "offsets.topic.num.partitions": str(draws.choice((1, 3, 5))),
        "log.roll.ms": str(draws.choice((2_000, 10_000, 3_600_000))),
        "group.initial.rebalance.delay.ms": str(draws.choice((0, 500))),
        "log.cleaner.backoff.ms": str(backoff_ms := draws.choice((1_000, 15_000))),
        "log.retention.check.interval.ms": str(min(backoff_ms, draws.choice((1_000, 20_000)))),
        "transaction.two.phase.commit.enable": "true",
        # As impatient as the members of classic groups.
        "group.consumer.session.timeout.ms": "8000",
        "group.consumer.min.session.timeout.ms": "1000",
        "group.consumer.heartbeat.interval.ms": "1000",
        "group.consumer.min.heartbeat.interval.ms": "100",
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": str(draws.choice((1_000, 10_000))),
    }


def suitable(plan: Sequence[Fault], transaction_version: int) -> Sequence[Fault]:
    """Remove faults that Transactions V1 cannot survive by design."""
    # A late request decides the wrong transaction there (KAFKA-17754).
    late = ("cut-up", "hold-connection", "reset", "repeated-requests")
    return list(plan) if transaction_version >= 2 else [fault for fault in plan if fault.kind not in late]
