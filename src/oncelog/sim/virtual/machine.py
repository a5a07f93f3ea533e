"""A simulated machine: its disk, clock, latencies and random stream.

It outlives its processes. Each machine has its own streams: a fault on one does not change the draws of the others.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from oncelog.base.ids import TopicPartition
from oncelog.sim.virtual.file_node import FileNode
from oncelog.sim.virtual.files import MemoryFiles
from oncelog.sim.virtual.kernel import Kernel


@dataclass(frozen=True, slots=True)
class Latencies:
    """Latencies of a machine in microseconds, each as (minimum, maximum)."""

    sync_us: tuple[int, int] = (100, 3_000)
    # A commit to the coordination tree, including the response.
    metadata_us: tuple[int, int] = (200, 5_000)
    # One slice of a job on a worker.
    slice_us: tuple[int, int] = (50, 2_000)
    read_us: tuple[int, int] = (0, 300)


@dataclass(slots=True)
class Flip:
    """A flipped bit: its place in the file, and its batch and partition."""

    partition: TopicPartition
    offset: int
    node: FileNode
    at: int
    mask: int
    # The byte with the flipped bit.
    damaged: int = -1

    def make(self) -> None:
        self._flip()
        self.damaged = self.node.data[self.at]

    @property
    def stands(self) -> bool:
        """True while the byte is as the flip left it."""
        return self.at < len(self.node.data) and self.node.data[self.at] == self.damaged

    def undo(self) -> None:
        self._flip()

    def _flip(self) -> None:
        self.node.data[self.at] ^= self.mask
        if self.at < len(self.node.durable):
            self.node.durable[self.at] = self.node.data[self.at]


class Machine:
    def __init__(self, kernel: Kernel, name: str, entropy: random.Random, latencies: Latencies) -> None:
        self.kernel = kernel
        self.name = name
        self.entropy = entropy
        self.files = MemoryFiles(now_ms=self.now_ms)
        # The latencies without faults.
        self.usual_latencies = latencies
        self.latencies = latencies
        # The error of its clock; positive: ahead.
        self.clock_ms = 0
        # True while the machine's processes are frozen: events wait.
        self.frozen = False
        # Delay of changes of the coordination tree.
        self.changes_late_us = 0
        # Flipped bits on its disk.
        self.flips: list[Flip] = []

    def now_ms(self) -> int:
        return self.kernel.now_ms() + self.clock_ms

    def standing_flips(self) -> list[Flip]:
        self.flips = [flip for flip in self.flips if flip.stands and self.files.has_node(flip.node)]
        return list(self.flips)

    def takes(self, span_us: tuple[int, int]) -> int:
        return self.entropy.randint(*span_us)


@dataclass(slots=True)
class SeededEntropy:
    stream: random.Random

    def token(self, size: int) -> bytes:
        return self.stream.randbytes(size)
