"""A simulated machine: its disk, its clock, how long it takes for things, and its stream of chance.

It outlives the processes that run on it. Every machine has all of these to itself, so that a fault on one of several
brokers does not change what the others draw.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from oncelog.sim.files import MemoryFiles
from oncelog.sim.kernel import Kernel


@dataclass(frozen=True, slots=True)
class Latencies:
    """Latencies of a machine in microseconds, each as (least, most)."""

    sync_us: tuple[int, int] = (100, 3_000)
    metadata_us: tuple[int, int] = (200, 5_000)
    """A commit to the coordination tree, there and back."""
    slice_us: tuple[int, int] = (50, 2_000)
    """One slice of a job on a worker."""
    read_us: tuple[int, int] = (0, 300)


class Machine:
    """See the module. ``name`` is that of its host in the network."""

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
        """Its processes stand still: events wait until they go on."""
        self.changes_late_us = 0
        """Changes of the coordination tree reach it so much later."""

    def now_ms(self) -> int:
        """Wall time by its own clock."""
        return self.kernel.now_ms() + self.clock_ms

    def takes(self, span_us: tuple[int, int]) -> int:
        """A latency drawn from (least, most)."""
        return self.entropy.randint(*span_us)


@dataclass(slots=True)
class SeededEntropy:
    """The Entropy port over a stream of chance."""

    stream: random.Random

    def token(self, size: int) -> bytes:
        """``size`` bytes from the stream."""
        return self.stream.randbytes(size)
