"""Our Spark source beside Spark's own Kafka connector: the same rows, the same Spark, the same broker, turn about.

A third side reads nothing: a Python data source that yields ready Arrow batches of the same sizes from memory, in as
many tasks (`bench.spark_ceiling`). What Spark makes of that is the most that any Python data source can reach; so each
row says how near ours comes to it, and how it stands beside the connector itself. What part of our tasks' time Spark
takes is measured in the tasks.

Each side is a Spark process of its own (`bench.spark_side`) with the same heap. Executor memory is the most that the
JVM (resident) and the Python workers that run its tasks (proportional) had together, looked at a few times a second;
the Python process of the driver and those that plan queries are no part of an executor and do not count.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, NamedTuple, Self

from bench.peers import Broker
from bench.report import narrowed
from bench.spark_watched import LOG, spark_share
from bench.workloads import fill
from oncelog.spark.source.read.range_reader import BATCH_BYTES

OURS: Final = "watched"
"""Our source with a watch in each task (`bench.spark_watched`)."""
THEIRS: Final = "kafka"
NOTHING: Final = "ceiling"
_LOOK_EVERY_S: Final = 0.2
_LEFT_ALONE: Final = 0.15
"""Cores that others may use while one side reads: above it the reading is taken again, and the calmest one counts."""
_MOST_ATTEMPTS: Final = 4
_OTHERS: Final = "cores that others used"
_PAGE: Final = os.sysconf("SC_PAGE_SIZE")
_WORKER: Final = b"pyspark.daemon\0pyspark.worker\0"
"""Ends the command line of the process that makes the workers of tasks; those that plan have another module there."""
NOOP: Final = "noop"
PARQUET: Final = "parquet"
SINKS: Final = (NOOP, PARQUET)
_RATES: Final = {NOOP: "≥ 2.5 ×", PARQUET: "≥ 1.5 ×"}
_MEMORY: Final = "≤ 1.0 ×"


class Case(NamedTuple):
    """A topic to read, as one case of the benchmark."""

    record_bytes: int
    partitions: int
    codec: str

    @property
    def label(self) -> str:
        """For a table."""
        number = "one partition" if self.partitions == 1 else f"{self.partitions} partitions"
        return f"{self.record_bytes} B, {number}, {self.codec}"


CASES: Final = tuple(
    Case(size, partitions, codec) for size in (100, 1000) for codec in ("none", "lz4") for partitions in (1, 6)
)
MILLIONS: Final = {100: 4.5, 1000: 1.2}
"""Records of a topic by their size."""


def chosen(only: Sequence[str]) -> tuple[list[Case], list[str]]:
    """The cases and sinks that words like ``100b``, ``6p``, ``lz4``, ``noop`` leave. Raises SystemExit for others."""
    sizes, partitions, codecs, sinks = narrowed(
        only, {"100b": 100, "1000b": 1000}, {"1p": 1, "6p": 6}, {"none": "none", "lz4": "lz4"}, {s: s for s in SINKS}
    )
    cases = [case for case in CASES if case.record_bytes in sizes and case.partitions in partitions]
    return [case for case in cases if case.codec in codecs], list(sinks)


def fill_topic(broker: Broker, case: Case, scale: float) -> tuple[str, int]:
    """A topic for a case: its name and how many records it has."""
    count = int(MILLIONS[case.record_bytes] * 1e6 * scale) // 6 * 6
    name = f"spark-{case.record_bytes}-{case.partitions}-{case.codec}"
    fill(broker, name, case.record_bytes, count, partitions=case.partitions, codec=case.codec)
    return name, count


class Reading(NamedTuple):
    """The time and the cost of one query."""

    elapsed_s: float
    cpu_s: float
    memory_bytes: int
    spark_share: float
    """Of our tasks' time, what Spark took."""
    others_cores: float
    """Cores that neither this side nor the broker used: on a machine that is not left alone no ratio means much."""


class Side:
    """A Spark process that reads with one connector."""

    def __init__(self, format_name: str, settings: Sequence[str] = ()) -> None:
        self._format = format_name
        command = [sys.executable, "-m", "bench.spark_side", *settings]
        self._watch = tempfile.NamedTemporaryFile()  # noqa: SIM115 - closed with the side
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the side
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            env={**os.environ, "PYTHONPATH": os.getcwd(), LOG: self._watch.name},
        )

    def __enter__(self) -> Self:
        self._answer("ready")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._process.wait(60)
        self._errors.close()
        self._watch.close()

    def read(self, broker: Broker, case: Case, topic: str, count: int, to: Path | None) -> Reading:
        """All rows of a topic to Parquet in a directory, or to noop; again when others had a part of the machine."""
        if self._format == NOTHING:
            sizes = {"partitions": case.partitions, "bytes": case.record_bytes, "batch": BATCH_BYTES}
            options: dict[str, Any] = {"rows": count, **sizes}
        else:
            options = {"kafka.bootstrap.servers": broker.bootstrap_servers, "subscribe": topic}
        request = {"format": self._format, "options": options, "to": None if to is None else str(to / self._format)}
        readings = [self._measured(broker, request)]
        while readings[-1].others_cores > _LEFT_ALONE and len(readings) < _MOST_ATTEMPTS:
            readings.append(self._measured(broker, request))
        return min(readings, key=lambda reading: reading.others_cores)

    def _measured(self, broker: Broker, request: Mapping[str, Any]) -> Reading:
        before, machine = cpu_seconds(self._process.pid), _machine_seconds() - cpu_seconds(broker.process.pid)
        started = time.perf_counter()
        with peak_memory(self._process.pid) as peak:
            elapsed = self._ask(request)
        used = cpu_seconds(self._process.pid) - before
        others = _machine_seconds() - cpu_seconds(broker.process.pid) - machine - used
        others_cores = max(0.0, others / (time.perf_counter() - started))
        return Reading(elapsed, used, peak[0], spark_share(Path(self._watch.name)), others_cores)

    def _ask(self, request: Mapping[str, Any]) -> float:
        if self._process.stdin is None:
            raise RuntimeError("the Spark process has no input")
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        return float(self._answer("seconds"))

    def _answer(self, key: str) -> Any:
        line = self._process.stdout.readline() if self._process.stdout is not None else ""
        answer = json.loads(line) if line else {}
        if key not in answer:
            self._errors.seek(0)
            text = self._errors.read().decode(errors="replace")[-2000:]
            raise RuntimeError(f"Spark with {self._format}: {answer.get('error', 'ended')}\n{text}")
        return answer[key]


@contextlib.contextmanager
def peak_memory(pid: int) -> Iterator[list[int]]:
    """The most memory of the executor below a process while this lasts, in bytes, as the only entry of a list."""
    peak, over = [0], threading.Event()

    def look() -> None:
        while not over.wait(_LOOK_EVERY_S):
            peak[0] = max(peak[0], executor_bytes(pid))

    looking = threading.Thread(target=look, daemon=True)
    looking.start()
    try:
        yield peak
    finally:
        over.set()
        looking.join()


def executor_bytes(pid: int) -> int:
    """Memory of the JVM below a process, and of the Python workers that it has for tasks."""
    size = 0
    for one in _descendants(pid):
        with contextlib.suppress(OSError):
            if Path(f"/proc/{one}/comm").read_text(encoding="ascii").strip() == "java":
                size += int(Path(f"/proc/{one}/statm").read_text(encoding="ascii").split()[1]) * _PAGE
            elif Path(f"/proc/{one}/cmdline").read_bytes().endswith(_WORKER):
                size += _pss_bytes(one)
    return size


def cpu_seconds(pid: int) -> float:
    """Processor time of a process and all below it, those that have ended among them: what a busy machine leaves as it
    is."""
    ticks = 0
    for one in _descendants(pid):
        with contextlib.suppress(OSError):
            text = Path(f"/proc/{one}/stat").read_text(encoding="ascii", errors="replace")
            ticks += sum(map(int, text.rpartition(")")[2].split()[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


def _machine_seconds() -> float:
    """Processor time of everything on this machine."""
    user, nice, system, _idle, _wait, irq, softirq = map(int, Path("/proc/stat").read_text().split()[1:8])
    return (user + nice + system + irq + softirq) / os.sysconf("SC_CLK_TCK")


def _descendants(pid: int) -> list[int]:
    found = [pid]
    for one in found:
        with contextlib.suppress(OSError):
            for task in os.listdir(f"/proc/{one}/task"):
                text = Path(f"/proc/{one}/task/{task}/children").read_text(encoding="ascii")
                found += map(int, text.split())
    return found


def _pss_bytes(pid: int) -> int:
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    return 0


@contextlib.contextmanager
def all_sides(settings: Sequence[str]) -> Iterator[tuple[Side, Side, Side]]:
    """Ours, theirs, and the one that reads nothing, ready, all with the same settings of Spark's."""
    with Side(OURS, settings) as ours, Side(THEIRS, settings) as theirs, Side(NOTHING, settings) as nothing:
        yield ours, theirs, nothing


def round_of(
    sides: tuple[Side, Side, Side],
    broker: Broker,
    case: Case,
    sinks: Sequence[str],
    topic: tuple[str, int],
    place: Path,
) -> tuple[dict[str, float], dict[str, float]]:
    """Each side once to each sink, one after the other: our figures and theirs."""
    name, count = topic
    mine: dict[str, float] = {}
    other: dict[str, float] = {}
    for sink in sinks:
        to = None if sink == NOOP else place
        ours, theirs, nothing = (side.read(broker, case, name, count, to) for side in sides)
        label = f"{case.label}, {sink}: "
        for figures, reading in ((mine, ours), (other, theirs)):
            figures |= {label + what: value for what, value in _figures(reading, count).items()}
        for what, value in _figures(nothing, count).items():
            mine[f"{label}{what}, doing nothing"] = value
            other[f"{label}{what}, doing nothing"] = other[label + what]
        mine[f"{label}rows/s, ours of doing nothing"] = nothing.elapsed_s / ours.elapsed_s
        mine[f"{label}of our tasks' time, Spark's part"] = ours.spark_share
        mine[f"{label}{_OTHERS}, beside ours"] = ours.others_cores
        mine[f"{label}{_OTHERS}, beside theirs"] = theirs.others_cores
    return mine, other


def said(mine: Mapping[str, float], other: Mapping[str, float]) -> str:
    """The rates of a round on one line: ours, theirs, and doing nothing; and how much of the machine was not theirs."""
    lines = []
    for name, rate in mine.items():
        if name.endswith("rows/s"):
            used = (mine[name.replace("rows/s", f"{_OTHERS}, beside {whose}")] for whose in ("ours", "theirs"))
            rates = f"{rate:,.0f}, {other[name]:,.0f}, {mine[name + ', doing nothing']:,.0f}"
            lines.append(f"{name} {rates} (others: {', '.join(f'{cores:.2f}' for cores in used)} cores)")
    return "  " + "; ".join(lines)


def _figures(reading: Reading, count: int) -> dict[str, float]:
    return {
        "rows/s": count / reading.elapsed_s,
        "CPU µs/row": reading.cpu_s / count * 1e6,
        "peak memory, MB": reading.memory_bytes / 1e6,
    }


def goals(cases: Sequence[Case], sinks: Sequence[str]) -> dict[str, str]:
    """The goals for each figure."""
    return {
        f"{case.label}, {sink}: {what}": goal
        for case in cases
        for sink in sinks
        for what, goal in (("rows/s", _RATES[sink]), ("peak memory, MB", _MEMORY))
    }
