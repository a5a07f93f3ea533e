"""Selects the workloads that a seed runs."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Mapping
from typing import Final, NamedTuple

from oncelog.sim.workloads.administrators import Administrators
from oncelog.sim.workloads.consumers import Consumers
from oncelog.sim.workloads.copiers import Copiers
from oncelog.sim.workloads.group_churn import GroupChurn
from oncelog.sim.workloads.hostile_clients import HostileClients
from oncelog.sim.workloads.kit.workload import Workload
from oncelog.sim.workloads.log_cleanup import LogCleanup
from oncelog.sim.workloads.old_copiers import OldCopiers
from oncelog.sim.workloads.plain_producers import PlainProducers
from oncelog.sim.workloads.producers import Producers
from oncelog.sim.workloads.reassignments import Reassignments
from oncelog.sim.workloads.refused_batches import RefusedBatches
from oncelog.sim.workloads.share_queues import ShareQueues
from oncelog.sim.workloads.topic_churn import TopicChurn
from oncelog.sim.workloads.two_phase_committers import Committers


class Kind(NamedTuple):
    """A kind of workload: its weight in random draws, and the lowest transaction.version that it needs."""

    weight: int
    least_version: int
    draw: Callable[[str, random.Random, int], Workload]


# Every workload by name. Kinds of weight 0 are drawn separately (`with_refused_batches`, `draw_group_churn`,
# `draw_share_queues`, `draw_cluster_workloads`), so that other seeds do not change. They come last: a weighted choice
# never reaches them there.
KINDS: Final[Mapping[str, Kind]] = {
    "administer": Kind(2, 1, Administrators.draw),
    "churn": Kind(2, 1, TopicChurn.draw),
    "clean": Kind(2, 1, LogCleanup.draw),
    "consume": Kind(3, 1, Consumers.draw),
    "copy": Kind(4, 1, Copiers.draw),
    "hostile": Kind(2, 2, HostileClients.draw),
    "plain": Kind(1, 1, PlainProducers.draw),
    "produce": Kind(4, 1, Producers.draw),
    "two-phase": Kind(3, 2, Committers.draw),
    "refuse": Kind(0, 1, RefusedBatches.draw),
    "regroup": Kind(0, 1, GroupChurn.draw),
    "queue": Kind(0, 1, ShareQueues.draw),
    "reassign": Kind(0, 1, Reassignments.draw),
}
# Share of seeds with rejected batches.
REFUSING: Final = 0.15
# Seeds draw old clients.
OLD_CLIENTS: Final = True
# Share of seeds with old copiers, where they are possible.
OLD: Final = 0.15
# Share of seeds with a group under churn.
REGROUPING: Final = 0.1
# Share of seeds with share groups.
QUEUING: Final = 0.1


# Workloads that work with several brokers.
IN_CLUSTERS: Final = frozenset(
    {"administer", "churn", "clean", "consume", "copy", "hostile", "plain", "produce", "two-phase"}
)
# Share of cluster seeds in which replicas move.
MOVING: Final = 0.25


def draw_workloads(
    entropy: random.Random, transaction_version: int, among: Collection[str] = KINDS.keys()
) -> list[Workload]:
    kinds = [name for name, kind in KINDS.items() if kind.least_version <= transaction_version and name in among]
    weights = [KINDS[name].weight for name in kinds]
    drawn = entropy.choices(kinds, weights, k=entropy.randint(1, 2))
    return [KINDS[kind].draw(f"{kind}{index}", entropy, transaction_version) for index, kind in enumerate(drawn)]


def draw_cluster_workloads(seed: int, entropy: random.Random, transaction_version: int) -> list[Workload]:
    """Draw one or two cluster workloads. In some seeds, keep only the first and add one with rejected batches, or one
    that moves replicas.
    """
    drawn = draw_workloads(entropy, transaction_version, IN_CLUSTERS)
    drawn = with_refused_batches(drawn, random.Random(f"{seed}/cluster refusals"), transaction_version)
    moves = random.Random(f"{seed}/moves")
    if moves.random() >= MOVING:
        return drawn
    return [*drawn[:1], KINDS["reassign"].draw("move1", moves, transaction_version)]


def with_refused_batches(drawn: list[Workload], entropy: random.Random, transaction_version: int) -> list[Workload]:
    """In some seeds, keep only the first workload and add one with rejected batches."""
    if entropy.random() >= REFUSING:
        return drawn
    return [*drawn[:1], KINDS["refuse"].draw("refuse1", entropy, transaction_version)]


def with_old_copiers(drawn: list[Workload], entropy: random.Random, transaction_version: int) -> list[Workload]:
    """In some seeds, keep only the first workload and add old copiers. ``entropy`` is a random stream of its own, so
    that other draws do not change.
    """
    if entropy.random() >= OLD:
        return drawn
    return [*drawn[:1], OldCopiers.draw("old1", entropy, transaction_version)]


def draw_group_churn(entropy: random.Random, transaction_version: int) -> tuple[GroupChurn, Mapping[str, str]] | None:
    # In some seeds, a group under churn, which runs alone, and its configuration.
    if entropy.random() >= REGROUPING:
        return None
    return GroupChurn.draw("regroup", entropy, transaction_version), GroupChurn.draw_config(entropy)


def draw_share_queues(entropy: random.Random, transaction_version: int) -> tuple[ShareQueues, Mapping[str, str]] | None:
    # In some seeds, share groups, which run alone, and their configuration.
    if entropy.random() >= QUEUING:
        return None
    return ShareQueues.draw("queue", entropy, transaction_version), ShareQueues.draw_config(entropy)
