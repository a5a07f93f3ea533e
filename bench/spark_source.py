"""Our Spark source beside Spark's own Kafka connector: the same rows, the same Spark, the same broker, turn about.

Each side is a Spark process of its own (`bench.spark_side`), so that memory can be told apart: what is counted is the
proportional set size of the JVM and its Python workers together, looked at twenty times a second while a query runs.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Final, NamedTuple, Self

from bench.peers import Broker
from bench.workloads import fill

OURS: Final = "oncelog"
THEIRS: Final = "kafka"
_LOOK_EVERY_S: Final = 0.05
SOURCE_GOALS: Final = {"noop": "≥ 2.5 ×", "Parquet": "≥ 1.5 ×", "peak memory": "≤ 1.0 ×"}


class Case(NamedTuple):
    """One topic to read."""

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
MILLIONS: Final = {100: 3.0, 1000: 0.6}
"""Records of a topic by their size."""


def fill_topics(broker: Broker, scale: float) -> dict[Case, tuple[str, int]]:
    """A topic for every case: its name and how many records it has."""
    topics = {}
    for case in CASES:
        count = int(MILLIONS[case.record_bytes] * 1e6 * scale) // 6 * 6
        name = f"spark-{case.record_bytes}-{case.partitions}-{case.codec}"
        fill(broker, name, case.record_bytes, count, partitions=case.partitions, codec=case.codec)
        topics[case] = (name, count)
    return topics


class Side:
    """A Spark process that reads with one connector."""

    def __init__(self, format_name: str) -> None:
        self._format = format_name
        command = [sys.executable, "-m", "bench.spark_side"]
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the side
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            env={**os.environ, "PYTHONPATH": os.getcwd()},
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

    def figures(self, broker: Broker, case: Case, topic: str, count: int, place: Path) -> dict[str, float]:
        """Rows a second to both sinks, and the most memory seen."""
        result: dict[str, float] = {}
        options = {"kafka.bootstrap.servers": broker.bootstrap_servers, "subscribe": topic}
        with peak_memory(self._process.pid) as peak:
            for sink, to in (("noop", None), ("Parquet", str(place / self._format))):
                request = {"format": self._format, "options": options, "to": to}
                before = cpu_seconds(self._process.pid)
                result[f"{case.label}: {sink}, rows/s"] = count / self._ask(request)
                used = cpu_seconds(self._process.pid) - before
                result[f"{case.label}: {sink}, CPU µs/row"] = used / count * 1e6
        result[f"{case.label}: peak memory, MB"] = peak[0] / 1e6
        if self._format == OURS:
            result |= self._nearness(case, count, place, result)
        return result

    def _nearness(self, case: Case, count: int, place: Path, result: Mapping[str, float]) -> dict[str, float]:
        """How near this comes to a data source that has nothing to do: near 1, Spark is the limit."""
        options = {"rows": count, "partitions": case.partitions, "bytes": case.record_bytes}
        near = {}
        for sink, to in (("noop", None), ("Parquet", str(place / "ceiling"))):
            most = count / self._ask({"format": "ceiling", "options": options, "to": to})
            near[f"{case.label}: {sink}, share of a source that does nothing"] = (
                result[f"{case.label}: {sink}, rows/s"] / most
            )
        return near

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
    """The largest memory of a process and all below it while this lasts, in bytes, as the only entry of a list."""
    peak, over = [0], threading.Event()

    def look() -> None:
        while not over.is_set():
            peak[0] = max(peak[0], sum(map(_pss_bytes, _descendants(pid))))
            over.wait(_LOOK_EVERY_S)

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
    for one in _descendants(pid):
        with contextlib.suppress(OSError):
            text = Path(f"/proc/{one}/stat").read_text(encoding="ascii", errors="replace")
            ticks += sum(map(int, text.rpartition(")")[2].split()[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


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
def both_sides() -> Iterator[tuple[Side, Side]]:
    """Both Spark processes, ready."""
    with Side(OURS) as ours, Side(THEIRS) as theirs:
        yield ours, theirs


def goals() -> dict[str, str]:
    """What each figure should reach."""
    return {
        f"{case.label}: {what}": SOURCE_GOALS[kind]
        for case in CASES
        for what, kind in (("noop, rows/s", "noop"), ("Parquet, rows/s", "Parquet"), ("peak memory, MB", "peak memory"))
    }
