"""The scenario of a seed in a cluster: the replication of topics, and the faults of brokers.

All draws come from separate random streams: a seed in a cluster has nothing in common with the same seed alone.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from oncelog.sim.faults.brokers import AT_ANSWERS, DISK, POWER, PROCESS
from oncelog.sim.faults.clusters import LOST_DISK
from oncelog.sim.faults.damage import DAMAGE
from oncelog.sim.faults.fault import Fault
from oncelog.sim.faults.held_fetches import HELD_FETCHES
from oncelog.sim.faults.plan import CLUSTER_FAMILIES, draw_plan_of
from oncelog.sim.faults.replicas import KILLED_IN_TURN, REPLICAS
from oncelog.sim.seeds.scenario import (
    Replication,
    Scenario,
    draw_config,
    hanging,
    is_hanging,
    kill_moments,
    queuing,
    regrouping,
    suitable,
)
from oncelog.sim.virtual.machine import Latencies
from oncelog.sim.virtual.network.conditions import NetworkConditions
from oncelog.sim.workloads.hangs import draw_hangs
from oncelog.sim.workloads.kit.workload import Workload
from oncelog.sim.workloads.selection import draw_cluster_workloads, with_old_copiers

# Numbers of brokers; a seed draws one.
COUNTS: Final = (2, 3, 3, 3, 3, 3, 4, 5)
SESSION_TIMEOUTS_MS: Final = (2_000, 6_000)
LAGS_MS: Final = (1_500, 5_000, 10_000)
# Share of seeds in which a broker's death shows only when its session expires, as with ZooKeeper.
OUTLIVING: Final = 0.5
# Share of seeds in which every acknowledged record is on two disks, and one disk is lost or damaged.
LOST_DISKS: Final = 0.2
# Share of these in which bits flip on one disk or another, and no disk is lost.
DAMAGED: Final = 0.5
# Average times between two damages.
DAMAGES_MS: Final = (3_000, 10_000)

# Share of seeds with `log.sync.policy=none`, acknowledged records on three machines, and one power cut.
UNSYNCED: Final = 0.1
# Share of seeds with hanging transactions.
HANGING: Final = 0.15
# Errors of the brokers' clocks there. Small ones: a hang's begin and end are compared.
_HANGING_CLOCKS_MS: Final = (0, 0, -1_000, 1_000)
_POWER_CUT: Final = "power-cut-in-full-sets"
# Faults that may lose unsynced records, or whose detection needs syncs.
_LOSING: Final = frozenset({*POWER, *DISK, "failing-disk", "power-cut-of-all", "killed-ahead", "returns-ahead"})
_KILLING: Final = frozenset({*PROCESS, *REPLICAS, *KILLED_IN_TURN, *HELD_FETCHES, *AT_ANSWERS, "kill-of-all"})
# The time from the power cut until the machine is back with all replicas. A process killed meanwhile may have been the
# last one with them: after an unclean end, a replica does not count, even if its memory survived.
_RETURN_MS: Final = 30_000


class _Draws(NamedTuple):
    """A seed's draws about replicas. ``safe``: acknowledged records are on two disks."""

    brokers: int
    safe: bool
    entropy: random.Random

    def replication(self) -> Replication:
        maximum = min(self.brokers, 3)
        if self.safe:
            return Replication(maximum, 2)
        factor = self.entropy.choice((1, 2, 3, 3, 3))
        return Replication(min(factor, maximum), self.entropy.choice((1, 2)))


def draw_cluster_scenario(
    seed: int, length_ms: int, plan: Sequence[Fault] | None, brokers: int | None = None, kinds: Sequence[str] = ()
) -> Scenario:
    """Draw the scenario of a seed.

    ``plan`` replaces the drawn faults, ``brokers`` the number of brokers, ``kinds`` the kinds of faults to draw from (a
    disk is lost once).
    """
    draws = random.Random(f"{seed}/cluster")
    drawn_count = draws.choice(COUNTS)
    named = (*kinds, *(fault.kind for fault in plan or ()))
    lost_disk = [kind for kind in named if kind in LOST_DISK]
    damage = sorted({kind for kind in named if kind in DAMAGE})
    count = brokers if brokers is not None else max(drawn_count, 3) if lost_disk or damage else drawn_count
    safe = count >= 3 and (draws.random() < LOST_DISKS or bool(lost_disk or damage))
    synced = safe or count < 3 or random.Random(f"{seed}/synced").random() >= UNSYNCED
    safe = safe or not synced
    replicas = _Draws(count, safe, random.Random(f"{seed}/replicas"))
    transaction_version = 1 if draws.random() < 0.1 else 2
    regular_workloads = draw_cluster_workloads(seed, draws, transaction_version)
    old_clients = random.Random(f"{seed}/cluster old clients")
    kills = kill_moments(old_clients, length_ms)  # also drawn with a plan: clients depend on the seed only
    workloads = with_old_copiers(regular_workloads, old_clients, transaction_version)
    late_version = transaction_version if workloads == regular_workloads else 1
    slowest_us = draws.choice((1_000, 5_000, 50_000))
    faults = _draw_faults(random.Random(f"{seed}/cluster faults"), length_ms, kinds)
    if workloads != regular_workloads and not kinds:
        faults += kills
    if not synced:
        faults = _with_power_cut(faults, _once([_POWER_CUT], seed, length_ms))
    is_damaged = safe and synced and _is_damaged(seed, lost_disk, damage)
    if is_damaged:
        faults += _damages(damage or sorted(DAMAGE), seed, length_ms)
    elif safe and synced:
        faults.append(_once(lost_disk or sorted(LOST_DISK), seed, length_ms))
    scenario = Scenario(
        config={
            **draw_config(draws),
            **_internal_topics(replicas),
            **_timing(draws),
            **({} if synced else {"log.sync.policy": "none"}),
            **({"log.flush.offset.checkpoint.interval.ms": "1000"} if is_damaged else {}),
        },
        transaction_version=transaction_version,
        latencies=Latencies(sync_us=(50, slowest_us), metadata_us=(200, slowest_us), slice_us=(50, slowest_us)),
        conditions=NetworkConditions(100, draws.choice((500, 2_000, 10_000))),
        workloads=workloads,
        plan=suitable(sorted(faults) if plan is None else plan, late_version),
        disk_checks=draws.choice((0.0, 0.2)),
        brokers=count,
        session_timeout_ms=draws.choice(SESSION_TIMEOUTS_MS),
        sessions_outlive_processes=random.Random(f"{seed}/sessions").random() < OUTLIVING,
        replication=_replication(replicas, workloads),
        clock_errors_ms=[draws.choice((0, 0, -3_000, 3_000, 60_000)) for _ in range(count)],
    )
    scenario = _with_hangs(scenario, seed, replicas)
    if is_hanging(scenario):
        return scenario
    regrouped = _regrouping(scenario, seed, safe=safe)
    return _queuing(scenario, seed, safe=safe) if regrouped is scenario else regrouped


def _draw_faults(entropy: random.Random, length_ms: int, kinds: Sequence[str]) -> list[Fault]:
    chosen = [kind for kind in kinds if kind not in LOST_DISK and kind not in DAMAGE]
    if not chosen and DAMAGE.keys() & kinds:
        return []
    return draw_plan_of(entropy, length_ms, chosen, CLUSTER_FAMILIES)


def _with_hangs(scenario: Scenario, seed: int, replicas: _Draws) -> Scenario:
    draws = random.Random(f"{seed}/cluster hangs")
    if draws.random() >= HANGING:
        return scenario
    workload, config = draw_hangs("hang", draws, in_cluster=True)
    return replace(
        hanging(scenario, workload, config, scenario.plan),
        replication=_replication(replicas, [workload]),
        clock_errors_ms=[draws.choice(_HANGING_CLOCKS_MS) for _ in range(scenario.brokers)],
    )


def _regrouping(scenario: Scenario, seed: int, *, safe: bool) -> Scenario:
    regrouped = regrouping(scenario, random.Random(f"{seed}/cluster group churn"))
    if regrouped is scenario:
        return scenario
    replicas = _Draws(scenario.brokers, safe, random.Random(f"{seed}/group churn replicas"))
    return replace(regrouped, replication=_replication(replicas, regrouped.workloads))


def _queuing(scenario: Scenario, seed: int, *, safe: bool) -> Scenario:
    queued = queuing(scenario, random.Random(f"{seed}/cluster share queues"))
    if queued is scenario:
        return scenario
    replicas = _Draws(scenario.brokers, safe, random.Random(f"{seed}/share queue replicas"))
    states = replicas.replication()
    config = {
        **queued.config,
        "share.coordinator.state.topic.replication.factor": str(states.factor),
        "share.coordinator.state.topic.min.isr": str(states.min_insync_replicas),
    }
    return replace(queued, config=config, replication=_replication(replicas, queued.workloads))


def _with_power_cut(faults: Sequence[Fault], cut: Fault) -> list[Fault]:
    # Remove the faults that would lose unsynced records, and add one power cut.
    kept = [
        fault
        for fault in faults
        if fault.kind not in _LOSING
        and not (fault.kind in _KILLING and cut.at_ms <= fault.at_ms < cut.at_ms + _RETURN_MS)
    ]
    return [*kept, cut]


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


def _is_damaged(seed: int, lost_disk: Sequence[str], damage: Sequence[str]) -> bool:
    # True if bits flip in the seed's world, which then loses no disk.
    if lost_disk or damage:
        return not lost_disk
    return random.Random(f"{seed}/damage").random() < DAMAGED


def _damages(kinds: Sequence[str], seed: int, length_ms: int) -> list[Fault]:
    # Draw bit flips from a separate random stream.
    draws = random.Random(f"{seed}/damages")
    pause_ms = draws.choice(DAMAGES_MS)
    faults, at_ms = [], 1_000
    while (at_ms := at_ms + 1 + int(draws.expovariate(1 / pause_ms))) < length_ms:
        faults.append(Fault(at_ms, draws.choice(kinds), draws.randint(1, 4_000), draws.getrandbits(32)))
    return faults


def _once(kinds: Sequence[str], seed: int, length_ms: int) -> Fault:
    # Draw one fault from a separate stream, so that the rest of the seed does not depend on it.
    draws = random.Random(f"{seed}/once")
    at_ms, span_ms, choice = draws.randrange(length_ms // 5, length_ms), draws.randint(1, 8_000), draws.getrandbits(32)
    return Fault(at_ms, draws.choice(kinds), span_ms, choice)
