"""A table's audit as plain values, for JSON and for printing."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from oncelog.base.text import counted
from oncelog.spark.audit.report import time_text
from oncelog.spark.table_audit.audit import TableAudit
from oncelog.spark.table_audit.model import KINDS, Finding


def as_json(result: TableAudit) -> dict[str, Any]:
    """The whole result; unknown values are left out of findings."""
    counts = kinds(result)
    return {
        "table": result.name,
        "caveats": result.caveats,
        "seconds": round(result.seconds, 3),
        "read": {"commits": result.commits, "files": result.files, "rows": result.rows, "rows_read": result.rows_read},
        "writers": result.writers,
        "partitions": [asdict(partition) for partition in result.partitions],
        "findings": counts,
        "meanings": {kind: KINDS[kind] for kind in counts},
        "listed": [_finding_json(finding) for finding in result.findings.worst_first()],
    }


def kinds(result: TableAudit) -> dict[str, int]:
    """Numbers of findings by kind, worst first."""
    return {kind: result.findings.counts[kind] for kind in KINDS if kind in result.findings.counts}


def headline(result: TableAudit) -> str:
    writers = ", ".join(f"{number:,} by {writer}" for writer, number in sorted(result.writers.items()))
    read = "rows read" if result.rows_read else "rows not read (--rows)"
    return (
        f"{result.name}: {counted(result.commits, 'commit')} ({writers or 'none'}), {counted(result.files, 'file')}, "
        f"{counted(result.rows, 'row')}, {read}, in {result.seconds:.1f} s"
    )


def _finding_json(finding: Finding) -> dict[str, Any]:
    values = {name: value for name, value in asdict(finding).items() if value is not None and value != ()}
    if "time_ms" in values:
        values["time"] = time_text(values.pop("time_ms"))
    return values
