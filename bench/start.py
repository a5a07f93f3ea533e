"""The start of ``oncelog serve`` beside the start of Python itself: what a process costs until it is ready.

Rules: the CPU time is the whole process's, user and system, as the kernel accounts for it at its end; the broker is
killed when its ready line comes. Byte code is on the disk, as an installation leaves it: a first start and a first
record are not counted, and ``bench.__main__`` does not hand PYTHONDONTWRITEBYTECODE on.
"""

from __future__ import annotations

import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from tests.peers.oncelog_serve import OncelogServe

from bench.report import Figures
from oncelog.admin.topics import NewTopic, create_topic
from oncelog.client.blocking import Client, Producer

BARE: Final = (sys.executable, "-c", "pass")
ASYNCIO: Final = (sys.executable, "-c", "import asyncio")
START_GOALS: Final = {"ready, CPU s": "≤ 5 ×", "ready, s": "≤ 5 ×"}
_READY: Final = b" ready on "
_SAMPLES: Final = 5


def serve_figures(_: int) -> Figures:
    """A broker on an empty directory until it is ready, its first record, and importing asyncio alone, which is the
    least that a start can take."""
    return {
        **_figures("ready", _serve_sample),
        **_figures("first record", _first_record_sample),
        **_figures("asyncio alone", lambda: _sample(ASYNCIO)),
    }


def bare_figures(_: int) -> Figures:
    """``python -c pass``, as the other side of each figure."""
    names = ("ready", "first record", "asyncio alone")
    return {key: value for name in names for key, value in _figures(name, lambda: _sample(BARE)).items()}


def _figures(name: str, sample: Callable[[], tuple[float, float]]) -> Figures:
    """The medians of some starts."""
    cpu_s, wall_s = zip(*(sample() for _ in range(_SAMPLES)), strict=True)
    return {f"{name}, CPU s": statistics.median(cpu_s), f"{name}, s": statistics.median(wall_s)}


def _serve_sample() -> tuple[float, float]:
    with tempfile.TemporaryDirectory(prefix="oncelog-bench-") as directory:
        data = str(Path(directory) / "data")
        return _sample(
            (sys.executable, "-m", "oncelog", "serve", "--data-dir", data, "--listen", "127.0.0.1:0"), until=_READY
        )


def _first_record_sample() -> tuple[float, float]:
    """CPU of a new broker, and wall seconds, for the first record of an idempotent producer in a topic that exists;
    most of it are imports."""
    with tempfile.TemporaryDirectory(prefix="oncelog-bench-") as directory, OncelogServe(Path(directory)) as broker:
        broker.start()
        client = Client(broker.bootstrap_servers)
        create_topic(client, NewTopic("first", 1, 1))
        producer = Producer(client)
        cpu_s, begun_s = _running_s(broker.process.pid), time.perf_counter()
        producer.send("first", b"x")
        producer.flush()
        took_s = time.perf_counter() - begun_s
        return _running_s(broker.process.pid) - cpu_s, took_s


def _running_s(pid: int) -> float:
    """Processor time of all threads of a process, in nanoseconds as the scheduler counts it: ticks of 10 ms are too
    coarse here."""
    stats = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(stat.read_text().split()[0]) for stat in stats) / 1e9


def _sample(command: Sequence[str], until: bytes | None = None) -> tuple[float, float]:
    """CPU and wall seconds of ``command`` until it ends, or prints a line with ``until`` and is killed."""
    begun_s = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        result = any(until is not None and until in line for line in process.stdout)
        took_s = time.perf_counter() - begun_s
        os.kill(process.pid, signal.SIGKILL)  # Popen.kill would reap a process that has ended, and its usage with it
        _, process.returncode, usage = os.wait4(process.pid, 0)
    if until is not None and not result:
        raise RuntimeError(f"not ready: {' '.join(command)}")
    return usage.ru_utime + usage.ru_stime, took_s
