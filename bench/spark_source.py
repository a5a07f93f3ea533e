"""Our Spark source beside Spark's own Kafka connector: the same rows, the same Spark, the same broker, turn about.

A third side reads nothing: a Python data source that yields ready Arrow batches of the same sizes from memory, in as
many tasks (`bench.spark_ceiling`). What Spark makes of that is the most that any Python data source can reach; so each
row says how near ours comes to it, and how it stands beside the connector itself. What part of our tasks' time Spark
takes is measured in the tasks.

Each side is a Spark process of its own (`bench.spark_side`) with the same heap; its memory is `bench.spark_processes`'.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, NamedTuple, Self

from tests.peers.supply import ROOT

from bench.peers import Broker
from bench.report import narrowed
from bench.spark_processes import PeakMemory, calmest, cpu_seconds, machine_seconds, peak_memory
from bench.spark_side import ALONE
from bench.spark_watched import LOG, spark_share
from bench.workloads import fill
from oncelog.spark.source.read.range_reader import BATCH_BYTES

OURS: Final = "watched"
"""Our source with a watch in each task (`bench.spark_watched`)."""
THEIRS: Final = "kafka"
NOTHING: Final = "ceiling"
_OTHERS: Final = "cores that others used"
NOOP: Final = "noop"
PARQUET: Final = "parquet"
SINKS: Final = (NOOP, PARQUET)
_RATES: Final = {NOOP: "≥ 2.5 ×", PARQUET: "≥ 1.5 ×"}
_MEMORY: Final = "≤ 1.0 ×"
_NEAR: Final = "≥ 0.9"
_WORKER_MEMORY: Final = "≤ 100 MB"


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
    memory: PeakMemory
    spark_share: float
    """Of our tasks' time, what Spark took."""
    others_cores: float
    """Cores that neither this side nor the broker used: on a machine that is not left alone no ratio means much."""


class Side:
    """A Spark process that reads with one connector. ``python``: the Python of another PySpark, which has no jars."""

    def __init__(self, format_name: str, settings: Sequence[str] = (), python: Path | None = None) -> None:
        self._format = format_name
        command = [str(python or sys.executable), "-m", "bench.spark_side", *([ALONE] if python else []), *settings]
        path = os.pathsep.join([os.getcwd(), *([str(ROOT / "src")] if python else [])])
        self._watch = tempfile.NamedTemporaryFile()  # noqa: SIM115 - closed with the side
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the side
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            env={**os.environ, "PYTHONPATH": path, LOG: self._watch.name},
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
        return calmest(lambda: self._measured(broker, request))

    def _measured(self, broker: Broker, request: Mapping[str, Any]) -> Reading:
        before, machine = cpu_seconds(self._process.pid), machine_seconds() - cpu_seconds(broker.process.pid)
        started = time.perf_counter()
        with peak_memory(self._process.pid) as peak:
            elapsed = self._ask(request)
        used = cpu_seconds(self._process.pid) - before
        others = machine_seconds() - cpu_seconds(broker.process.pid) - machine - used
        others_cores = max(0.0, others / (time.perf_counter() - started))
        return Reading(elapsed, used, peak, spark_share(Path(self._watch.name)), others_cores)

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
        for text, value in _figures(nothing, count).items():
            mine[f"{label}{text}, doing nothing"] = value
            other[f"{label}{text}, doing nothing"] = other[label + text]
        mine[f"{label}rows/s, ours of doing nothing"] = nothing.elapsed_s / ours.elapsed_s
        mine[f"{label}peak memory of a worker, MB"] = ours.memory.worker_bytes / 1e6
        mine[f"{label}peak memory of a worker, MB, doing nothing"] = nothing.memory.worker_bytes / 1e6
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
        "peak memory, MB": reading.memory.executor_bytes / 1e6,
    }


def goals(cases: Sequence[Case], sinks: Sequence[str]) -> dict[str, str]:
    """The goals for each figure."""
    return {
        f"{case.label}, {sink}: {what}": goal
        for case in cases
        for sink in sinks
        for what, goal in (
            ("rows/s", _RATES[sink]),
            ("peak memory, MB", _MEMORY),
            ("rows/s, ours of doing nothing", _NEAR),
            ("peak memory of a worker, MB", _WORKER_MEMORY),
        )
    }
