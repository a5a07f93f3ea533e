"""A model of Java's consumer of 1.0.2, for those of ours to get along with: slow to release, and dead after five tries.

From its behaviour, observed: on a change it waits for its fetchers to stop, commits, releases all, reads, computes,
claims node by node, takes back what it has claimed where one is taken, waits ``rebalance.backoff.ms``, and tries again.
"""

from __future__ import annotations

import random
from typing import Final

from oncelog.base.ids import TopicPartition
from oncelog.base.tree import ANY_VERSION, Create, Delete, Set
from oncelog.coordination.zookeeper.client import Refused
from oncelog.legacy.zookeeper_groups.group_nodes import GroupNodes
from oncelog.legacy.zookeeper_groups.machine.assignment import assign_partitions
from oncelog.legacy.zookeeper_groups.machine.nodes import ids_path, offset_path, owner_path, read_offset
from oncelog.legacy.zookeeper_groups.machine.subscription import Subscription, registration_value
from tests.simulation.zookeeper_groups.tree import Tree, TreeSession

TRIES: Final = 4
BACKOFF_MS: Final = 2_000
SLOWEST_STOP_MS: Final = 1_000


class JavaConsumer:
    """One consumer of a topic; ``step`` does what is due. It commits at each change, all that it has read."""

    def __init__(self, name: str, group: str, topic: str, tree: Tree, timeout_ms: int, seed: random.Random) -> None:
        self.name = name
        self.positions: dict[TopicPartition, int] = {}
        self.is_dead = False
        self._group = group
        self._seed = seed
        self._subscription = Subscription.to_topics([topic])
        self._changed = True
        self._due_ms = 0
        self._tries = 0
        self._stopping = False
        self.session = TreeSession(tree, timeout_ms, self._note, seed)
        self._nodes = GroupNodes(self.session, group, lambda _: self._note())  # type: ignore[arg-type]  # as good as one
        self._nodes.register(f"{ids_path(group)}/{name}", registration_value(self._subscription, 0))

    def step(self, now_ms: int) -> None:
        """Do what is due."""
        if self.is_dead or now_ms < self._due_ms or not (self._changed or self._tries):
            return
        if self._changed and not self._stopping:
            self._stopping, self._changed, self._tries = True, False, 1
            self._due_ms = now_ms + self._seed.randrange(SLOWEST_STOP_MS)
            return
        self._stopping = False
        self.release()
        if self._claim():
            self._tries = 0
        elif self._tries > TRIES:
            self.is_dead = True
        else:
            self._tries += 1
            self._due_ms = now_ms + BACKOFF_MS

    def release(self) -> None:
        """Commit and release all."""
        for partition, offset in self.positions.items():
            self.session.transact([Set(offset_path(self._group, partition), str(offset).encode(), ANY_VERSION)])
        self._nodes.release(dict.fromkeys(self.positions, ""))
        self.positions = {}

    def _claim(self) -> bool:
        picture = self._nodes.read_group(self._subscription, exclude_internal=True, protocol="PLAINTEXT")
        share = assign_partitions(self.name, self._subscription, picture, exclude_internal=True)
        begun = {p: self.session.get(offset_path(self._group, p)) for p in share}
        made: list[str] = []
        for partition, thread in share.items():
            path = owner_path(self._group, partition)
            self.session.ensure([path.rpartition("/")[0]])
            try:
                self.session.transact([Create(path, thread.encode(), ephemeral=True)])
            except Refused:
                for item in made:
                    self.session.transact([Delete(item, ANY_VERSION)])
                return False
            made.append(path)
        self.positions = {p: 0 if node is None else read_offset("", node[0]) for p, node in begun.items()}
        return True

    def _note(self) -> None:
        self._changed = True
