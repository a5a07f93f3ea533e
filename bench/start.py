"""The start of ``oncelog serve`` beside the start of Python itself: what a process costs until it is ready.

Rules: the CPU time is the whole process's, user and system, as the kernel accounts for it at its end; the broker is
killed when its ready line comes. Byte code is on the disk, as an installation leaves it: a first start is not counted,
and PYTHONDONTWRITEBYTECODE, which would make every start compile all sources, is not handed on.
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

from bench.report import Figures

BARE: Final = (sys.executable, "-c", "pass")
ASYNCIO: Final = (sys.executable, "-c", "import asyncio")
START_GOALS: Final = {"ready, CPU s": "≤ 5 ×", "ready, s": "≤ 5 ×"}
_READY: Final = b" ready on "
_SAMPLES: Final = 5


def serve_figures(_: int) -> Figures:
    """A broker on an empty directory until it is ready; and importing asyncio alone, which is the least it can take."""
    return {**_figures("ready", _serve_sample), **_figures("asyncio alone", lambda: _sample(ASYNCIO))}


def bare_figures(_: int) -> Figures:
    """``python -c pass``, as the other side of each figure."""
    return {**_figures("ready", lambda: _sample(BARE)), **_figures("asyncio alone", lambda: _sample(BARE))}


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


def _sample(command: Sequence[str], until: bytes | None = None) -> tuple[float, float]:
    """CPU and wall seconds of ``command`` until it ends, or prints a line with ``until`` and is killed."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    begun_s = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment) as process:
        assert process.stdout is not None
        result = any(until is not None and until in line for line in process.stdout)
        took_s = time.perf_counter() - begun_s
        os.kill(process.pid, signal.SIGKILL)  # Popen.kill would reap a process that has ended, and its usage with it
        _, process.returncode, usage = os.wait4(process.pid, 0)
    if until is not None and not result:
        raise RuntimeError(f"not ready: {' '.join(command)}")
    return usage.ru_utime + usage.ru_stime, took_s
