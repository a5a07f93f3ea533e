"""Plans of faults: drawn by seed (swarm testing), read and written as text, carried out, and repaired.

Each fault breaks something and repairs it after its span; at the end of the plan :func:`heal` repairs everything. A
seed draws the kinds that it uses, so that rare combinations get whole runs. A plan is a value: it can be printed,
shortened and run again.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping, Sequence
from typing import Final

from oncelog.sim.faults.brokers import AT_ANSWERS, BY_WORKLOADS, DISK, POWER, PROCESS, TIME
from oncelog.sim.faults.clusters import ALL_BROKERS, FROZEN_AT_END_TXN, LOST_DISK, PATHS, SESSIONS
from oncelog.sim.faults.damage import DAMAGE, REPLICA_DISKS, mend_unread
from oncelog.sim.faults.fault import Fault, Kind
from oncelog.sim.faults.held_fetches import HELD_FETCHES
from oncelog.sim.faults.network import BETWEEN_BROKERS, CLIENTS, TREE_PATHS
from oncelog.sim.faults.replaced import REPLACED
from oncelog.sim.faults.replicas import KILLED_IN_TURN, REPLICAS
from oncelog.sim.virtual.world import World

# Kinds that are drawn by seeds or by their workloads.
KINDS: Final[Mapping[str, Kind]] = {**PROCESS, **POWER, **DISK, **CLIENTS, **TIME, **BY_WORKLOADS}
# Kinds that only clusters draw.
OF_CLUSTERS: Final[Mapping[str, Kind]] = {
    **TREE_PATHS,
    **BETWEEN_BROKERS,
    **ALL_BROKERS,
    **PATHS,
    **SESSIONS,
    **REPLICAS,
    **REPLICA_DISKS,
    **LOST_DISK,
    **DAMAGE,
}
# Kinds of clusters that run by name only.
BY_NAME: Final[Mapping[str, Kind]] = {**REPLACED, **KILLED_IN_TURN, **FROZEN_AT_END_TXN, **HELD_FETCHES}
ALL_KINDS: Final[Mapping[str, Kind]] = {**KINDS, **AT_ANSWERS, **OF_CLUSTERS, **BY_NAME}
# Kinds for a single broker.
ALONE: Final[Mapping[str, Kind]] = {**KINDS, **AT_ANSWERS, **TREE_PATHS}
# (kinds, the most that a seed uses, how often it uses any). Frequent families often overlap.
Families = Sequence[tuple[Sequence[str], int, float]]
FAMILIES: Final[Families] = (
    (sorted(PROCESS), 2, 0.5),
    (sorted(POWER), 2, 0.6),
    (sorted(DISK), 2, 0.4),
    (sorted(CLIENTS), 3, 0.8),
    (sorted(TIME), 1, 0.2),
)
# The same for clusters. A kind that is listed twice is drawn more often.
CLUSTER_FAMILIES: Final[Families] = (
    ((*sorted(PROCESS), "rolling-restart", "kill-of-all"), 2, 0.6),
    ((*sorted(POWER), "power-cut-of-all", "power-cut-of-all"), 2, 0.5),
    ((*sorted(DISK), "failing-disk"), 1, 0.3),
    (sorted(CLIENTS), 2, 0.5),
    ((*sorted(TIME), "frozen-past-session", "frozen-past-session"), 1, 0.3),
    (sorted({**BETWEEN_BROKERS, **PATHS}), 2, 0.4),
    ((*sorted(TREE_PATHS), "late-changes", "tree-isolated"), 2, 0.5),
    (sorted(REPLICAS), 2, 0.5),
)


def parse_plan(text: str) -> list[Fault]:
    """Parse the text of :func:`format_plan`. Raises ValueError."""
    plan = []
    for line in text.splitlines():
        if line.strip():
            at_ms, kind, span_ms, choice = line.split()
            if kind not in ALL_KINDS:
                raise ValueError(f"unknown fault {kind!r}")
            plan.append(Fault(int(at_ms), kind, int(span_ms), int(choice)))
    return plan


def format_plan(plan: Sequence[Fault]) -> str:
    return "".join(f"{fault}\n" for fault in plan)


# Average times between two faults; a seed draws one.
PAUSES_MS: Final = (2_000, 5_000, 10_000)
# The same for kinds chosen by the user.
SHORT_PAUSES_MS: Final = (1_000, 2_000, 3_000)


def draw_plan(
    entropy: random.Random,
    length_ms: int,
    families: Families = FAMILIES,
    pauses_ms: Sequence[int] = PAUSES_MS,
) -> list[Fault]:
    """Draw faults of a few kinds over ``length_ms``, in order of time."""
    used: list[str] = []
    for kinds, maximum, probability in families:
        if entropy.random() < probability:
            used += entropy.sample(kinds, entropy.randint(1, maximum))
    used = used or [entropy.choice(sorted(KINDS.keys() - BY_WORKLOADS))]
    pause_ms = entropy.choice(pauses_ms)
    plan, at_ms = [], 0
    while (at_ms := at_ms + 1 + int(entropy.expovariate(1 / pause_ms))) < length_ms:
        span_ms = min(1 + int(entropy.expovariate(1 / entropy.choice((200, 2_000, 6_000)))), 30_000)
        plan.append(Fault(at_ms, entropy.choice(used), span_ms, entropy.getrandbits(32)))
    return plan


def draw_plan_of(entropy: random.Random, length_ms: int, kinds: Sequence[str], families: Families) -> list[Fault]:
    """Draw faults of the chosen kinds, one every second or two; without a choice, of the families."""
    if not kinds:
        return draw_plan(entropy, length_ms, families)
    return draw_plan(entropy, length_ms, [(kinds, len(kinds), 1.0)], SHORT_PAUSES_MS)


async def carry_out(world: World, plan: Sequence[Fault]) -> None:
    """Start each fault at its time. They may overlap, and end when this is cancelled."""
    running = []
    try:
        for fault in sorted(plan):
            await asyncio.sleep(max(0, fault.at_ms * 1000 - world.kernel.now_us) / 1_000_000)
            world.kernel.trace(f"fault {fault}")
            running.append(asyncio.create_task(_run(ALL_KINDS[fault.kind], world, fault)))
        for task in running:
            await task
    finally:
        for task in running:
            task.cancel()


async def _run(kind: Kind, world: World, fault: Fault) -> None:
    await kind(world, fault)


def heal(world: World) -> None:
    world.network.heal_all()
    mend_unread(world)
    for broker in world.brokers:
        broker.machine.latencies = broker.machine.usual_latencies
        broker.machine.changes_late_us = 0
        broker.files.disarm()
        broker.records.response_trigger = None
        broker.thaw()
        broker.stays_down = False
        if not broker.is_up:
            broker.start_until_up()
