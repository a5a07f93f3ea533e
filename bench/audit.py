"""`oncelog audit` on headers: megabytes of log a second of one core, beside a naive reader."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Final

from bench.report import Comparison, Figures, paired

_RECORDS: Final = 10
_VALUE_BYTES: Final = 90
_GOAL: Final = "≥ 200 MB/s"
_ONE_KB: Final = "batches of 1 KB, MB/s"
_SMALL: Final = "small transactions, MB/s"
_MANY: Final = "a clean log of a million transactions, all steps, CPU s (once)"
_CRC: Final = ", checksums too"


def measure(repeat: int, scale: float, progress: Callable[[str], None]) -> Comparison:
    """The comparison, on files in the page cache."""
    goals = {_ONE_KB: _GOAL, _SMALL: _GOAL}
    comparison = Comparison("Audit: reading segments, one core", "oncelog audit", "naive reader", goals)
    with tempfile.TemporaryDirectory(prefix="oncelog-bench-") as name:
        root = Path(name)
        _write_batches(root / "large", int(200_000 * scale))
        from tests.unit.spark.audit.million import write_transactions

        write_transactions(root / "small", int(400_000 * scale), partitions=1)

        write_transactions(root / "many", int(1_000_000 * scale))
        _warm_up(root / "large")
        whole_s, findings = _whole(root / "many")
        if findings:
            raise RuntimeError(f"a clean log gave {findings} findings")

        def ours(number: int) -> Figures:
            del number
            figures = {}
            for figure, directory in ((_ONE_KB, "large"), (_SMALL, "small")):
                for crc in (False, True):
                    figures[figure + _CRC * crc] = _audit_rate(root / directory, check_crc=crc)
            figures[_MANY] = whole_s
            return figures

        def theirs(number: int) -> Figures:
            del number
            return {figure + _CRC: _naive_rate(root / name) for figure, name in ((_ONE_KB, "large"), (_SMALL, "small"))}

        return paired(comparison, (ours, theirs), repeat, progress)


def _whole(directory: Path) -> tuple[float, int]:
    """CPU seconds of a whole audit in this process, and how many findings it has."""
    from oncelog.spark.audit.directories import plan
    from oncelog.spark.audit.engines.local_engine import LocalEngine
    from oncelog.spark.audit.pipeline import audit

    busy = time.process_time()
    result = audit(plan([directory]), LocalEngine())
    return time.process_time() - busy, result.finding_count


def _warm_up(directory: Path) -> None:
    """Imports, and the files into the page cache."""
    _audit_rate(directory, check_crc=True)


def _audit_rate(directory: Path, *, check_crc: bool) -> float:
    """The work of a task: segments → facts."""
    from oncelog.spark.audit.directories import plan
    from oncelog.spark.audit.segments.segment_facts import ReadOptions, read_segment

    planned = plan([directory])
    options = replace(ReadOptions(), check_crc=check_crc, places=planned.partitions)
    busy = time.process_time()
    for task in planned.tasks:
        for _ in read_segment(task, options):
            pass
    return planned.size_bytes / 1e6 / (time.process_time() - busy)


def _naive_rate(directory: Path) -> float:
    from oncelog.runtime.data.disk_files import DiskFiles
    from oncelog.sim.checkers.disk.scan import scan

    size = sum(path.stat().st_size for path in directory.rglob("*.log"))
    busy = time.process_time()
    scan(DiskFiles(directory))
    return size / 1e6 / (time.process_time() - busy)


def _write_batches(directory: Path, count: int) -> None:
    """Idempotent batches of about 1 KB in one segment of one partition."""
    import struct

    from crc32c import crc32c

    from oncelog.records.batch import ATTRIBUTES_POSITION, CRC_POSITION
    from oncelog.records.builder import build_batch
    from oncelog.records.record import Record

    path = directory / "t-0"
    path.mkdir(parents=True)
    records = [Record(number, 0, b"key", bytes(_VALUE_BYTES)) for number in range(_RECORDS)]
    batch = build_batch(records, producer_id=1, producer_epoch=0, base_sequence=0)
    with (path / f"{0:020d}.log").open("wb") as file:
        for number in range(count):
            struct.pack_into(">q", batch, 0, number * _RECORDS)
            struct.pack_into(">i", batch, 53, number * _RECORDS)
            struct.pack_into(">I", batch, CRC_POSITION, crc32c(memoryview(batch)[ATTRIBUTES_POSITION:]))
            file.write(batch)
