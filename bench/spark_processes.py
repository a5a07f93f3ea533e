"""Processor time and memory of a Spark's processes, as the kernel counts them, and of the machine they run on.

Executor memory is that of the JVM (resident) and of the Python workers that run its tasks (proportional); the Python
process of the driver and those that plan queries are no part of an executor and do not count. A worker's own memory is
what is resident of it, what it shares with others included: so much a worker needs that is alone on a machine.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol, TypeVar

LEFT_ALONE: Final = 0.15
"""Cores that others may use during a reading: above it the reading is taken again, and the calmest one counts."""
MOST_ATTEMPTS: Final = 4
_LOOK_EVERY_S: Final = 0.2
_PAGE: Final = os.sysconf("SC_PAGE_SIZE")
_WORKER: Final = b"pyspark.daemon\0pyspark.worker\0"
"""Ends the command line of the process that makes the workers of tasks, and theirs; those that plan have another module
there."""


class Reading(Protocol):
    """A reading that knows how many cores others used meanwhile."""

    @property
    def others_cores(self) -> float:
        """Cores that were used by what is not measured."""


R = TypeVar("R", bound=Reading)


def calmest(measure: Callable[[], R]) -> R:
    """The reading that others disturbed least, of the fewest that are needed: one, if it was left alone."""
    readings = [measure()]
    while readings[-1].others_cores > LEFT_ALONE and len(readings) < MOST_ATTEMPTS:
        readings.append(measure())
    return min(readings, key=lambda reading: reading.others_cores)


@dataclass
class PeakMemory:
    """The most memory that was seen, in bytes: of all of an executor's processes together, and of one worker."""

    executor_bytes: int = 0
    worker_bytes: int = 0

    def look(self, pid: int) -> None:
        """Look at the processes below ``pid`` once."""
        total = 0
        daemons = set()
        workers: list[tuple[int, int]] = []
        for descendant in descendants(pid):
            with contextlib.suppress(OSError):
                if Path(f"/proc/{descendant}/comm").read_text(encoding="ascii").strip() == "java":
                    total += int(Path(f"/proc/{descendant}/statm").read_text(encoding="ascii").split()[1]) * _PAGE
                elif Path(f"/proc/{descendant}/cmdline").read_bytes().endswith(_WORKER):
                    daemons.add(_parent(descendant))
                    proportional, resident = _rollup(descendant)
                    total += proportional
                    workers.append((descendant, resident))
        self.executor_bytes = max(self.executor_bytes, total)
        mine = [resident for one, resident in workers if one not in daemons]  # who forks workers runs no task
        self.worker_bytes = max(self.worker_bytes, *mine, 0)


@contextlib.contextmanager
def peak_memory(pid: int) -> Iterator[PeakMemory]:
    """The most memory of the executor below a process while this lasts, looked at a few times a second."""
    peak, over = PeakMemory(), threading.Event()

    def look() -> None:
        while not over.wait(_LOOK_EVERY_S):
            peak.look(pid)

    looking = threading.Thread(target=look, daemon=True)
    looking.start()
    try:
        yield peak
    finally:
        over.set()
        looking.join()


def cpu_seconds(pid: int) -> float:
    """Processor time of a process and all below it, those that have ended among them: what a busy machine leaves as it
    is."""
    ticks = 0
    for descendant in descendants(pid):
        with contextlib.suppress(OSError):
            text = Path(f"/proc/{descendant}/stat").read_text(encoding="ascii", errors="replace")
            ticks += sum(map(int, text.rpartition(")")[2].split()[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


def machine_seconds() -> float:
    """Processor time of everything on this machine."""
    user, nice, system, _idle, _wait, irq, softirq = map(int, Path("/proc/stat").read_text().split()[1:8])
    return (user + nice + system + irq + softirq) / os.sysconf("SC_CLK_TCK")


def descendants(pid: int) -> list[int]:
    """A process and all below it."""
    result = [pid]
    for item in result:
        with contextlib.suppress(OSError):
            for task in os.listdir(f"/proc/{item}/task"):
                text = Path(f"/proc/{item}/task/{task}/children").read_text(encoding="ascii")
                result += map(int, text.split())
    return result


def _parent(pid: int) -> int:
    text = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    return int(text.rpartition(")")[2].split()[1])


def _rollup(pid: int) -> tuple[int, int]:
    """A process's proportional and resident memory in bytes."""
    result = {"Pss": 0, "Rss": 0}
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines():
            name, _, rest = line.partition(":")
            if name in result:
                result[name] = int(rest.split()[0]) * 1024
    return result["Pss"], result["Rss"]
