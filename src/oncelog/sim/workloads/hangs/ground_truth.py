"""Ground truth: the injected hangs by partition and producer, to compare with administrators' verdicts.

Injected transactions have their own producer ids: all open data of one on such a partition hangs, whichever of its
batches arrived. Everything else is live.
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
    """A context that tracks which of its programs are still running."""

    running: set[str] = field(default_factory=set)

    def supervise(self, name: str, program: Program) -> None:
        self.running.add(name)

        async def counted(host: ClientHost) -> None:
            await program(host)
            self.running.discard(name)

        self.world.supervise(name, counted)


@dataclass(slots=True)
class GroundTruth:
    # Leaders verify with the coordinator before a transaction begins: late writes must be rejected.
    verifies: bool
    # Partitions of `__transaction_state`.
    coordinators: int
    orphan_action: str
    orphan_grace_ms: int
    injected: dict[tuple[TopicPartition, int], InjectedHang] = field(default_factory=dict)
    # The final verdict is done: transactions kept open for it may end.
    judged: bool = False
    # Groups with offsets committed in transactions.
    groups: list[str] = field(default_factory=list)
    count: int = 0

    @property
    def lost(self) -> int:
        """The coordinator that loses its log now and then."""
        return self.coordinators - 1

    def inject(self, injected: InjectedHang) -> None:
        self.injected[injected.partition, injected.producer_id] = injected

    def certain(self, partition: TopicPartition, producer_id: int, start_offset: int, first_ms: int) -> None:
        """The leader has acknowledged the hang. ``start_offset``: its first offset."""
        key = partition, producer_id
        hang = self.injected[key]._replace(certain=True, start_offset=start_offset, first_ms=first_ms)
        self.injected[key] = hang

    def new_id(self, prefix: str, *, at_lost: bool = False) -> str:
        """A fresh transactional id. ``at_lost``: its coordinator is the one that loses its log; otherwise it is not."""
        while True:
            self.count += 1
            name = f"{prefix}-{self.count}"
            if (coordinator_partition(name, self.coordinators) == self.lost) is at_lost:
                return name

    def safe_name(self, prefix: str, programs: int) -> str:
        """A workload name whose ids (``name-0``, ``name-1`` …) avoid the coordinator that loses its log."""
        for suffix in "abcdefghijklmnopqrstuvwxyz":
            name = f"{prefix}{suffix}"
            if all(coordinator_partition(f"{name}-{i}", self.coordinators) != self.lost for i in range(programs)):
                return name
        raise AssertionError("no suffix avoids the lost coordinator")
