"""Changes of a partition directory that were cut short: a finished compaction is applied, all else undone.

``.swap`` files count, in the place of the segments that they were made from; ``.cleaned`` and temporary files were not
finished; ``.deleted`` ones had left the log.
"""

from __future__ import annotations

from typing import Final

from oncelog.ports import Files
from oncelog.storage.file_names import (
    CLEANED,
    DELETED,
    LOG,
    SNAPSHOT,
    SWAP,
    TEMPORARY,
    parse_segment_file,
    segment_file,
)
from oncelog.storage.segment.index_budget import IndexBudget
from oncelog.storage.segment.segment import Segment

_MARKS: Final = (CLEANED, SWAP, DELETED, TEMPORARY)


def is_interrupted(name: str) -> bool:
    """True for the name of a file that belongs to a change which did not come to its end."""
    return name.endswith(_MARKS)


def finish_interrupted(files: Files, directory: str, names: list[str], budget: IndexBudget) -> list[str]:
    """Put a directory right that holds files called ``names``; the names it holds then."""
    parsed = [(name, parse_segment_file(name)) for name in names]
    cleaned = [item[0] for _, item in parsed if item and item[2] == CLEANED]
    swaps = [(name, item) for name, item in parsed if item and item[2] == SWAP]
    valid = [(name, item) for name, item in swaps if not cleaned or item[0] < min(cleaned)]
    kept = {name for name, _ in valid}
    for name in names:
        if name.endswith((CLEANED, DELETED, TEMPORARY)) or (name.endswith(SWAP) and name not in kept):
            files.remove(f"{directory}/{name}")
    ranges = [_range_of(files, directory, item[0], budget) for _, item in valid if item[1] == LOG]
    if ranges:
        low, high = min(start for start, _ in ranges), max(end for _, end in ranges)
        for name, item in parsed:
            if item and not item[2] and item[1] != SNAPSHOT and low <= item[0] < high:
                files.remove(f"{directory}/{name}")
    for name, _ in valid:
        files.rename(f"{directory}/{name}", f"{directory}/{name.removesuffix(SWAP)}")
    return files.list(directory)


def _range_of(files: Files, directory: str, base: int, budget: IndexBudget) -> tuple[int, int]:
    """First offset of a compacted segment, and the offset after its last batch."""
    size = files.size(f"{directory}/{segment_file(base, LOG, SWAP)}") or 0
    segment = Segment(files, directory, base, size, budget, SWAP)
    end = segment.next_offset()
    budget.forget(segment)
    return base, max(end, base + 1)
