"""The environment of processes of Python that tests start: their ``sitecustomize`` brings what a run asks for."""

from __future__ import annotations

import os
from collections.abc import MutableMapping
from pathlib import Path
from typing import Final

CHILD_PROCESSES: Final = Path(__file__).parent / "child_processes"
"""A directory for PYTHONPATH, with the ``sitecustomize`` of child processes."""
_ROOT: Final = CHILD_PROCESSES.parents[2]


def for_child_processes(environment: MutableMapping[str, str]) -> None:
    """Let processes with this environment do the same as this one."""
    present = list(filter(None, environment.get("PYTHONPATH", "").split(os.pathsep)))
    added = [path for path in (str(CHILD_PROCESSES), str(_ROOT)) if path not in present]
    environment["PYTHONPATH"] = os.pathsep.join([*added, *present])
