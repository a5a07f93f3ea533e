"""Checks of stopped brokers' directories by the tools that operators have."""

from __future__ import annotations

from pathlib import Path

from oncelog.cli.log.verification import problems
from oncelog.spark.audit.directories import plan
from oncelog.spark.audit.engines.local_engine import LocalEngine
from oncelog.spark.audit.pipeline import audit


def findings_in(*directories: Path) -> list[str]:
    """Findings of ``oncelog log verify`` and ``oncelog audit``."""
    logs = [path for directory in directories for path in sorted(directory.glob("*-*/*.log"))]
    assert logs
    unreadable = [f"{path}: {problem}" for path in logs for problem in problems(path) if problem is not None]
    return [*unreadable, *map(str, audit(plan([*directories]), LocalEngine()).findings)]
