"""Compacts a table: merges small files into larger ones in one atomic step for every reader (ADR 0005).

A copy of the directory beside the table, with hard links to the files that stay and merged files for the others, is
swapped with it (``atomic_swap``). Only ranges of one partition without gaps between them are merged, with their bad
rows; footers check the row count. A dead process leaves a hidden sibling that the next run removes.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from oncelog.spark.table.atomic_swap import SwapUnsupported, fsync, fsync_tree, swap
from oncelog.spark.table.directory import RowsFile, Table, TableError, existing_table
from oncelog.spark.table.parquet_files import MergeSource, files_in, footer_stats, merge

DEFAULT_TARGET_BYTES: Final = 128 * 1024 * 1024
_NOT_LINKED: Final = frozenset({"staging", "staging-fill"})


@dataclass(frozen=True, slots=True)
class CompactReport:
    """``files_before`` small files became ``files_after``; ``rows`` were rewritten."""

    directory: str
    files_before: int = 0
    files_after: int = 0
    rows: int = 0
    bytes_before: int = 0
    bytes_after: int = 0
    seconds: float = 0.0

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def compact(directory: str | Path, target_bytes: int = DEFAULT_TARGET_BYTES) -> CompactReport:
    """Merge adjacent files of a table up to ``target_bytes``, without cluster and Spark. Raises TableError.

    Raises TableBusy while a load or stream holds the table; those compact by themselves (``compact_below``).
    """
    with Table.open(existing_table(directory)) as table:
        return compact_open(table, target_bytes)


def compact_open(table: Table, target_bytes: int, on_step: Callable[[str], None] = lambda step: None) -> CompactReport:
    """Compact a table held by this process. ``on_step`` is called before each step, for tests."""
    if target_bytes < 1:
        raise TableError(f"the target size of files must be at least 1 byte, got {target_bytes}")
    started = time.monotonic()
    # Lock files are linked like all others, so both locks are also held in the new directory.
    with Table.open(table.path, role="fill"):  # no backfill or export meanwhile
        copy = table.path.parent / f".{table.path.name}.oncelog-compacting"
        shutil.rmtree(copy, ignore_errors=True)
        # The copy of a run that died was just removed.
        runs = [run for files in table.files().values() for run in runs_to_merge(_sized(table, files), target_bytes)]
        if not runs:
            return CompactReport(str(table.path), seconds=round(time.monotonic() - started, 3))
        try:
            on_step("linking")
            merged = {file for run in runs for file in run}
            _link_tree(table.path, copy, leave_out={table.path_of(file) for file in merged} | _bad(table, merged))
            new = [_merge_run(table, run, copy, on_step) for run in runs]
            on_step("syncing")
            fsync_tree(copy)
            on_step("swapping")
            # Renames one by one would show some rows twice or not at all. A path leads to the old table or to the new
            # one.
            _swap(copy, table.path)
            on_step("swapped")
            before = sum(_size(_within(table, copy, table.path_of(file))) for file in merged)
        finally:
            shutil.rmtree(copy, ignore_errors=True)
        after = sum(_size(table.path_of(file)) for file, _ in new)
    rows = sum(rows for _, rows in new)
    seconds = round(time.monotonic() - started, 3)
    return CompactReport(str(table.path), len(merged), len(new), rows, before, after, seconds)


def runs_to_merge(files: Sequence[tuple[RowsFile, int]], target_bytes: int) -> Iterator[list[RowsFile]]:
    """Yield runs of at least two adjacent small files without gaps, each up to the target size."""
    run: list[RowsFile] = []
    size = 0
    for file, file_bytes in files:
        fits = not run or (run[-1].end == file.start and size + file_bytes <= target_bytes)
        if not fits or file_bytes >= target_bytes:
            if len(run) > 1:
                yield run
            run, size = [], 0
        if file_bytes < target_bytes:
            run.append(file)
            size += file_bytes
    if len(run) > 1:
        yield run


def _sized(table: Table, files: Sequence[RowsFile]) -> list[tuple[RowsFile, int]]:
    return [(file, _size(table.path_of(file))) for file in files]


def _size(path: Path) -> int:
    return sum(file.stat().st_size for file in files_in(path))


def _within(table: Table, copy: Path, path: Path) -> Path:
    return copy / path.relative_to(table.path)


def _bad(table: Table, files: set[RowsFile]) -> set[Path]:
    return {table.bad_path_of(file) for file in files}


def _link_tree(source: Path, target: Path, leave_out: set[Path]) -> None:
    target.mkdir()
    shutil.copystat(source, target)
    for entry in sorted(source.iterdir()):
        if entry in leave_out or (source.name == "_oncelog" and entry.name in _NOT_LINKED):
            continue
        if entry.is_dir() and not entry.is_symlink():
            _link_tree(entry, target / entry.name, leave_out)
        else:
            os.link(entry, target / entry.name, follow_symlinks=False)


def _merge_run(
    table: Table, run: Sequence[RowsFile], copy: Path, on_step: Callable[[str], None]
) -> tuple[RowsFile, int]:
    for before, after in pairwise(run):
        if before.end != after.start:
            raise TableError(f"{before.name} and {after.name} cannot be merged: offsets between them are missing")
    merged = RowsFile(run[0].label, run[0].partition, run[0].start, run[-1].end)
    on_step("merging")
    rows = _merge_checked([table.path_of(file) for file in run], _within(table, copy, table.path_of(merged)))
    bad = [table.bad_path_of(file) for file in run if table.bad_path_of(file).exists()]
    if bad:
        _merge_checked(bad, _within(table, copy, table.bad_path_of(merged)))
    return merged, rows


def _merge_checked(paths: Sequence[Path], merged: Path) -> int:
    merge([MergeSource(path) for path in paths], merged)
    before, after = [footer_stats(path) for path in paths], footer_stats(merged)
    filled = [stats for stats in before if stats.rows]
    expected = (
        sum(stats.rows for stats in before),
        min((stats.first_offset for stats in filled), default=-1),
        max((stats.last_offset for stats in filled), default=-1),
    )
    if after != expected:
        raise TableError(f"{merged.name} should hold {expected} (rows, first, last offset) but holds {tuple(after)}")
    return after.rows


def _swap(copy: Path, table: Path) -> None:
    try:
        swap(copy, table)
    except SwapUnsupported as error:
        raise TableError(
            f"{table} cannot be compacted: its file system cannot swap two directories ({error.strerror})"
        ) from None
    except OSError as error:
        raise TableError(f"{table} cannot be swapped with its compacted copy: {error.strerror}") from None
    fsync(table.parent)
