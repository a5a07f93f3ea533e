"""A simulated machine: its disk, its clock, how long it takes for things, and its stream of chance.

It outlives the processes that run on it. Every machine has all of these to itself, so that a fault on one of several
brokers does not change what the others draw.
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
    """Latencies of a machine in microseconds, each as (least, most)."""

    sync_us: tuple[int, int] = (100, 3_000)
    metadata_us: tuple[int, int] = (200, 5_000)
    """A commit to the coordination tree, there and back."""
    slice_us: tuple[int, int] = (50, 2_000)
    """One slice of a job on a worker."""
    read_us: tuple[int, int] = (0, 300)


@dataclass(slots=True)
class Flip:
    """A bit that has flipped in a file: where, and in which batch of which partition."""

    partition: TopicPartition
    offset: int
    node: FileNode
    at: int
    mask: int
    damaged: int = -1
    """The byte as it is with the bit flipped."""

    def make(self) -> None:
        self._flip()
        self.damaged = self.node.data[self.at]

    @property
    def stands(self) -> bool:
        """True while the byte is as the flip has left it."""
        return self.at < len(self.node.data) and self.node.data[self.at] == self.damaged

    def undo(self) -> None:
        """Let the byte be what was written."""
        self._flip()

    def _flip(self) -> None:
        self.node.data[self.at] ^= self.mask
        if self.at < len(self.node.durable):
            self.node.durable[self.at] = self.node.data[self.at]


class Machine:
    """Disk, clock, latencies and chance of one machine. ``name`` is that of its host in the network."""

    def __init__(self, kernel: Kernel, name: str, entropy: random.Random, latencies: Latencies) -> None:
        self.kernel = kernel
        self.name = name
        self.entropy = entropy
        self.files = MemoryFiles(now_ms=self.now_ms)
        self.usual_latencies = latencies
        """The latencies when nothing is wrong."""
        self.latencies = latencies
        self.clock_ms = 0
        """The error of its clock; positive: ahead."""
        self.frozen = False
        """True while the machine's processes stand still: events wait until they go on."""
        self.changes_late_us = 0
        """Changes of the coordination tree reach it so much later."""
        self.flips: list[Flip] = []
        """Bits that have flipped on its disk."""

    def now_ms(self) -> int:
        return self.kernel.now_ms() + self.clock_ms

    def standing_flips(self) -> list[Flip]:
        """The flipped bits that are still in files of the disk."""
        self.flips = [flip for flip in self.flips if flip.stands and self.files.has_node(flip.node)]
        return list(self.flips)

    def takes(self, span_us: tuple[int, int]) -> int:
        return self.entropy.randint(*span_us)


@dataclass(slots=True)
class SeededEntropy:
    stream: random.Random

    def token(self, size: int) -> bytes:
        return self.stream.randbytes(size)
