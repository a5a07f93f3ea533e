"""Small files of a table become larger ones, in one step for every reader.

Renaming one merged file over several small ones is not possible, and any order of single renames shows a reader rows
twice or not at all. So the whole directory is made anew beside the table: hard links to files that stay, merged files
for the others; then the two directories are swapped (``atomic_swap``). A path looked up before the swap leads to the
old table, after it to the new one, never to a mixture. ADR 0005.

Rules: only ranges of one partition that follow each other without a gap are merged, bad rows with them; the merged
file's rows are counted against the footers of the small ones; both locks are held, and they are links, so that they
are held in the new directory, too. A process that dies leaves the old table or the new one, and a hidden sibling that
the next run removes.
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
from oncelog.spark.table.directory import RowsFile, Table, TableError, loaded_directory
from oncelog.spark.table.parquet_files import Kept, files_in, footer_stats, merge

DEFAULT_TARGET_BYTES: Final = 128 * 1024 * 1024
_NOT_LINKED: Final = frozenset({"staging", "staging-fill"})


@dataclass(frozen=True, slots=True)
class CompactReport:
    """``files_before`` small files became ``files_after``; ``rows`` were written again."""

    directory: str
    files_before: int = 0
    files_after: int = 0
    rows: int = 0
    bytes_before: int = 0
    bytes_after: int = 0
    seconds: float = 0.0

    def as_dict(self) -> dict[str, Any]:
        """The report as plain values, for JSON."""
        return asdict(self)


def compact(directory: str | Path, target_bytes: int = DEFAULT_TARGET_BYTES) -> CompactReport:
    """Merge neighbouring files of a table until they have ``target_bytes``. Raises TableError.

    Nothing is read from a cluster and no Spark is needed. A load or stream that holds the table refuses it; those
    compact by themselves with ``compact_below``.
    """
    with Table.open(loaded_directory(directory)) as table:
        return compact_open(table, target_bytes)


def compact_open(table: Table, target_bytes: int, on_step: Callable[[str], None] = lambda step: None) -> CompactReport:
    """Compact a table that this process holds; ``on_step`` is called before each step, for tests."""
    if target_bytes < 1:
        raise TableError(f"the target size of files is {target_bytes} bytes: it must be at least 1")
    started = time.monotonic()
    with Table.open(table.path, role="fill"):  # no backfill or export meanwhile
        beside = table.path.parent / f".{table.path.name}.oncelog-compacting"
        shutil.rmtree(beside, ignore_errors=True)
        runs = [run for files in table.files().values() for run in runs_to_merge(_sized(table, files), target_bytes)]
        if not runs:
            return CompactReport(str(table.path), seconds=round(time.monotonic() - started, 3))
        try:
            on_step("linking")
            merged = {file for run in runs for file in run}
            _link_tree(table.path, beside, leave_out={table.path_of(file) for file in merged} | _bad(table, merged))
            new = [_merge_run(table, run, beside, on_step) for run in runs]
            on_step("syncing")
            fsync_tree(beside)
            on_step("swapping")
            _swap(beside, table.path)
            on_step("swapped")
            before = sum(_size(_within(table, beside, table.path_of(file))) for file in merged)
        finally:
            shutil.rmtree(beside, ignore_errors=True)
        after = sum(_size(table.path_of(file)) for file, _ in new)
    rows = sum(rows for _, rows in new)
    seconds = round(time.monotonic() - started, 3)
    return CompactReport(str(table.path), len(merged), len(new), rows, before, after, seconds)


def runs_to_merge(files: Sequence[tuple[RowsFile, int]], target_bytes: int) -> Iterator[list[RowsFile]]:
    """Neighbours without a gap between them, small ones only, together about the target; two at least."""
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
    return sum(one.stat().st_size for one in files_in(path))


def _within(table: Table, beside: Path, path: Path) -> Path:
    return beside / path.relative_to(table.path)


def _bad(table: Table, files: set[RowsFile]) -> set[Path]:
    return {table.bad_path_of(file) for file in files}


def _link_tree(source: Path, target: Path, leave_out: set[Path]) -> None:
    """Hard links to every file; directories with the modes that they have."""
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
    table: Table, run: Sequence[RowsFile], beside: Path, on_step: Callable[[str], None]
) -> tuple[RowsFile, int]:
    """The merged file of a run, checked."""
    for one, after in pairwise(run):
        if one.end != after.start:
            raise TableError(f"{one.name} and {after.name} cannot be merged: there are offsets between them")
    merged = RowsFile(run[0].label, run[0].partition, run[0].start, run[-1].end)
    on_step("merging")
    rows = _merge_checked([table.path_of(file) for file in run], _within(table, beside, table.path_of(merged)))
    bad = [table.bad_path_of(file) for file in run if table.bad_path_of(file).exists()]
    if bad:
        _merge_checked(bad, _within(table, beside, table.bad_path_of(merged)))
    return merged, rows


def _merge_checked(paths: Sequence[Path], merged: Path) -> int:
    merge([Kept(path) for path in paths], merged)
    before, after = [footer_stats(path) for path in paths], footer_stats(merged)
    filled = [one for one in before if one.rows]
    expected = (
        sum(one.rows for one in before),
        min((one.first_offset for one in filled), default=-1),
        max((one.last_offset for one in filled), default=-1),
    )
    if after != expected:
        raise TableError(f"{merged.name} was to hold {expected} (rows, first, last offset) and holds {tuple(after)}")
    return after.rows


def _swap(beside: Path, table: Path) -> None:
    try:
        swap(beside, table)
    except SwapUnsupported as error:
        raise TableError(
            f"{table} cannot be compacted: its file system cannot swap two directories ({error.strerror})"
        ) from None
    except OSError as error:
        raise TableError(f"{table} cannot be swapped with its compacted copy: {error.strerror}") from None
    fsync(table.parent)
