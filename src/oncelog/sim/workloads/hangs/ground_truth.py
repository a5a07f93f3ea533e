"""Ground truth: hangs by partition and producer, which administrators' verdicts are compared with and they do not see.

A producer id hangs on a partition, or it does not: injected transactions have producer ids of their own, so what such a
producer has open on such a partition hangs, whichever of its batches arrived; on its other partitions it is live.
Whoever is not in here is excused.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from oncelog.base.hashing import coordinator_partition
from oncelog.base.ids import TopicPartition
from oncelog.sim.checkers.hanging_verdicts import InjectedHang
from oncelog.sim.virtual.world import ClientHost
from oncelog.sim.workloads.kit.workload import Program, WorkloadContext


@dataclass(slots=True)
class CountedContext(WorkloadContext):
    """A stage that knows which of the programs that were started through it have not returned."""

    running: set[str] = field(default_factory=set)

    def supervise(self, name: str, program: Program) -> None:
        """Supervise a program as the stage does."""
        self.running.add(name)

        async def counted(host: ClientHost) -> None:
            await program(host)
            self.running.discard(name)

        self.world.supervise(name, counted)


@dataclass(slots=True)
class GroundTruth:
    """Hangs that were injected, by partition and producer."""

    verifies: bool
    """Leaders ask coordinators before a transaction begins: no late write may get in."""
    coordinators: int
    """Partitions of ``__transaction_state``."""
    orphan_action: str
    orphan_grace_ms: int
    injected: dict[tuple[TopicPartition, int], InjectedHang] = field(default_factory=dict)
    judged: bool = False
    """The last look is over: who held a transaction open for it may go on."""
    groups: list[str] = field(default_factory=list)
    """Groups whose offsets are committed in transactions."""
    count: int = 0

    @property
    def lost(self) -> int:
        """The coordinator that loses its log now and then; only hangs injected for that have their ids there."""
        return self.coordinators - 1

    def inject(self, injected: InjectedHang) -> None:
        self.injected[injected.partition, injected.producer_id] = injected

    def certain(self, partition: TopicPartition, producer_id: int, start_offset: int, first_ms: int) -> None:
        """The leader has said that it has it, from an offset on."""
        key = partition, producer_id
        found = self.injected[key]._replace(certain=True, start_offset=start_offset, first_ms=first_ms)
        self.injected[key] = found

    def new_id(self, prefix: str, *, at_lost: bool = False) -> str:
        """A transactional id that nobody has had, whose coordinator is, or is not, the one that loses its log."""
        while True:
            self.count += 1
            name = f"{prefix}-{self.count}"
            if (coordinator_partition(name, self.coordinators) == self.lost) is at_lost:
                return name

    def safe_name(self, prefix: str, programs: int) -> str:
        """A workload's name: none of its ids (``name-0``, ``name-1`` …) is at the coordinator that loses its log."""
        for suffix in "abcdefghijklmnopqrstuvwxyz":
            name = f"{prefix}{suffix}"
            if all(coordinator_partition(f"{name}-{i}", self.coordinators) != self.lost for i in range(programs)):
                return name
        raise AssertionError("no name will do")
