"""Fault points: named places where a test may kill or pause a process of the sink.

The first process to reach a point with a file of its name, in the directory of option ``oncelog.testing.points``,
removes the file and dies as with ``kill -9``. The file's content may change the fault: ``executor`` kills the JVM that
the process works for; ``hold`` makes it wait for a file ``<name>.go``.
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Final

NAMES: Final = (
    "task-begun",
    "before-flush",
    "after-flush",
    "before-decision",
    "after-decision",
    "between-ends",
    "before-done",
    "after-commit",
    "ledger-before-commit",
    "ledger-after-commit",
)
EXECUTOR: Final = "executor"
HOLD: Final = "hold"


def reach(directory: str | None, name: str) -> None:
    """Die or wait here, if ordered."""
    if directory is None:
        return
    order, claimed = Path(directory) / name, Path(directory) / f".{name}.{os.getpid()}"
    try:
        # Renaming is atomic, so exactly one process takes the order.
        order.rename(claimed)
    except FileNotFoundError:
        return
    fault = claimed.read_text()
    claimed.unlink()
    if fault == HOLD:
        (Path(directory) / f".{name}.held").touch()
        while not order.with_suffix(".go").exists():
            time.sleep(0.02)
        return
    os.kill(_java_above(os.getpid()) if fault == EXECUTOR else os.getpid(), signal.SIGKILL)


def _java_above(pid: int) -> int:
    """The nearest ancestor that is a JVM. Linux only."""
    while pid > 1:
        name, _, rest = Path(f"/proc/{pid}/stat").read_text().rpartition(")")
        if name.endswith("(java"):
            return pid
        pid = int(rest.split()[1])
    raise RuntimeError("the order is to kill the executor, but no ancestor of this process is a JVM")
