"""R10: when all is mended, every replica is in sync and as long as its leader, and nobody has a log that is not his."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from oncelog.base.ids import BrokerId, TopicPartition
from oncelog.sim.checkers.cluster.tree_journal import TreeJournal

NOT_FULL: Final = "R10 replica not in sync after the healing"
UNEQUAL: Final = "R10 replicas are not equally long"
STRAY: Final = "R10 stray log"
MOVING: Final = "R10 reassignment not finished"

Ends = Mapping[BrokerId, Mapping[TopicPartition, int]]
"""Log end offsets of every broker's logs."""


def unlike(journal: TreeJournal, ends: Ends) -> Iterator[tuple[str, str]]:
    """(rule, instance): what is not as it has to be at rest."""
    assigned: dict[TopicPartition, tuple[BrokerId, ...]] = {}
    for partition, state in journal.partitions():
        assigned[partition] = state.replicas
        if set(state.isr) != set(state.replicas) or state.leader not in state.isr:
            what = f"leader {state.leader}, in sync {list(state.isr)} of {list(state.replicas)}"
            yield NOT_FULL, f"{partition}: {what}"
        if state.adding or state.removing:
            yield MOVING, f"{partition}: adding {list(state.adding)}, removing {list(state.removing)}"
        found = {replica: ends.get(replica, {}).get(partition) for replica in state.replicas}
        if len(set(found.values())) > 1:
            yield UNEQUAL, f"{partition}: {found}"
    for broker, logs in sorted(ends.items()):
        for partition in sorted(logs):
            if broker not in assigned.get(partition, ()):
                yield STRAY, f"{partition} on broker {broker}"
