"""Where a test may kill a process of the sink, by name. Nothing happens unless the query names a directory for it.

A file with the point's name in the directory of option ``oncelog.testing.points`` is an order: whoever reaches the
point first takes it away and is gone, as with ``kill -9``.
"""

from __future__ import annotations

import os
import signal
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


def reach(directory: str | None, name: str) -> None:
    """Die here, if that was ordered."""
    if directory is None:
        return
    try:
        (Path(directory) / name).unlink()
    except FileNotFoundError:
        return
    os.kill(os.getpid(), signal.SIGKILL)
