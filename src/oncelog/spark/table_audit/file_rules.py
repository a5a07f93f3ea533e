"""Rules about data files: each is registered once, within its commit's offsets, and apart from other commits' offsets.

Files are read twice: once into arrays of 40 bytes a file, then, if anything is wrong, for the names of those concerned.
An overlap of two files is judged by column statistics, so it is a suspicion; the rows prove it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from hashlib import blake2b
from itertools import count
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from oncelog.base.ids import TopicPartition
from oncelog.base.text import counted
from oncelog.spark.table_audit.model import Commit, FileEntry, Finding, History
from oncelog.spark.targets.table_target import Spans

_ENTRIES_PER_PIECE: Final = 1 << 16
_MOST_NEIGHBOURS: Final = 1000
_MOST_OVERLAPS: Final = 1000
_LAYOUT: Final = np.dtype(
    [("file", "u8"), ("commit", "i4"), ("partition", "i4"), ("first", "i8"), ("last", "i8"), ("rows", "i8")]
)
Files = npt.NDArray[np.void]
ReportProgress = Callable[[str, int, int], None]


class FileFacts(NamedTuple):
    files: int
    rows: int
    findings: list[Finding]


def location(path: str) -> str:
    """The path without spellings that name the same file: ``file:///a`` and ``/a``, ``s3a://`` and ``s3://``."""
    if path.startswith("file:"):
        return "/" + path.removeprefix("file:").lstrip("/")
    return path.replace("s3a://", "s3://", 1).replace("s3n://", "s3://", 1) if path.startswith("s3") else path


def judge_files(history: History, report_progress: ReportProgress) -> FileFacts:
    """Raises TableError."""
    partitions: dict[TopicPartition, int] = {}
    live = _table(history.live(), partitions)
    findings = list(_registered_twice(history, live))
    twice = {path for finding in findings for path in finding.files}
    added, outside = _added(history, partitions, report_progress)
    findings += outside
    findings += (again for again in _registered_again(history, added) if twice.isdisjoint(again.files))
    findings += _overlaps(history, live, list(partitions))
    return FileFacts(len(live), int(live["rows"].sum()), findings)


def _table(entries: Iterable[FileEntry], partitions: dict[TopicPartition, int]) -> Files:
    pieces: list[Files] = []
    rows: list[tuple[int, int, int, int, int, int]] = []
    for entry in entries:
        place = (-1, 0, 0)
        if entry.range is not None:
            at = partitions.setdefault(entry.range.partition, len(partitions))
            place = (at, entry.range.first, entry.range.last)
        rows.append((_digest(entry.path), entry.commit, *place, entry.rows))
        if len(rows) == _ENTRIES_PER_PIECE:
            pieces.append(np.array(rows, _LAYOUT))
            rows = []
    return np.concatenate([*pieces, np.array(rows, _LAYOUT)])


def _digest(path: str) -> int:
    return int.from_bytes(blake2b(location(path).encode(), digest_size=8).digest())


def _repeated(digests: npt.NDArray[np.uint64]) -> set[int]:
    ordered = np.sort(digests)
    return set(ordered[1:][ordered[1:] == ordered[:-1]].tolist())


def _registered_twice(history: History, live: Files) -> Iterator[Finding]:
    repeated = _repeated(live["file"])
    entries: dict[str, list[FileEntry]] = defaultdict(list)
    for entry in history.live() if repeated else ():
        if _digest(entry.path) in repeated:
            entries[location(entry.path)].append(entry)
    for same in entries.values():
        commits = [_commit(history, entry.commit) for entry in same]
        newest = max((commit for commit in commits if commit is not None), key=_time, default=None)
        again = sum(entry.rows for entry in same) - same[0].rows
        yield Finding(
            "registered-twice",
            f"{same[0].path} is listed {len(same)} times, by {_sources(commits)}: {counted(again, 'row')} too many are "
            "read",
            None if newest is None else newest.name,
            None if newest is None else newest.time_ms,
            rows=again,
            files=tuple(dict.fromkeys(entry.path for entry in same)),
            **_place(same[0]),
        )


def _added(
    history: History, partitions: dict[TopicPartition, int], report_progress: ReportProgress
) -> tuple[Files, list[Finding]]:
    outside: list[Finding] = []
    numbers = count(1)

    def entries() -> Iterator[FileEntry]:
        for index, commit in enumerate(history.commits):
            report_progress("commits", next(numbers), len(history.commits))
            spans = commit.spans
            for entry in history.added(index):
                if (finding := _outside(commit, spans, entry)) is not None and len(outside) < _MOST_OVERLAPS:
                    outside.append(finding)
                yield entry

    return _table(entries(), partitions), outside


def _outside(commit: Commit, spans: Spans | None, entry: FileEntry) -> Finding | None:
    if spans is None or entry.range is None:
        return None
    partition, first, last = entry.range
    span = spans.get(partition)
    if span is not None and first in span and last in span:
        return None
    recorded = f"{span.begin} to before {span.end}" if span is not None else "no offsets"
    return Finding(
        "outside-commit",
        f"{entry.path} has offsets {first} to {last} of {partition}; its commit {commit.name} records {recorded}",
        commit.name,
        commit.time_ms,
        rows=entry.rows,
        files=(entry.path,),
        **_place(entry),
    )


def _registered_again(history: History, added: Files) -> Iterator[Finding]:
    repeated = _repeated(added["file"])
    commits_of: dict[str, list[int]] = defaultdict(list)
    entries: dict[str, FileEntry] = {}
    for commit in sorted({int(row["commit"]) for row in added if int(row["file"]) in repeated}) if repeated else ():
        for entry in history.added(commit):
            if _digest(entry.path) in repeated:
                commits_of[location(entry.path)].append(commit)
                entries[location(entry.path)] = entry
    lines = [{position: index for index, position in enumerate(line)} for line in history.lines()]
    for path, commits in commits_of.items():
        # A snapshot that was cherry-picked has its files in two lines, once in each.
        on_one_line = max(([commit for commit in commits if commit in line] for line in lines), key=len)
        if len(on_one_line) > 1:
            adders = [_commit(history, commit) for commit in on_one_line]
            last, entry = adders[-1], entries[path]
            yield Finding(
                "registered-again",
                f"{entry.path} was added by {_sources(adders)}",
                None if last is None else last.name,
                None if last is None else last.time_ms,
                rows=entry.rows,
                files=(entry.path,),
                **_place(entry),
            )


def _overlaps(history: History, live: Files, partitions: list[TopicPartition]) -> Iterator[Finding]:
    """Overlapping ranges of files that different appending commits added."""
    appended = np.array([commit.appends for commit in history.commits] + [False])
    ranged = live[(live["partition"] >= 0) & appended[live["commit"]]]
    ranged = ranged[np.lexsort((ranged["last"], ranged["first"], ranged["partition"]))]
    pairs: list[tuple[int, int]] = []
    for number in range(len(partitions)):
        low, high = np.searchsorted(ranged["partition"], [number, number + 1])
        own = ranged[low:high]
        if len(own) < 2:
            continue
        reach = np.maximum.accumulate(own["last"])
        for later in (np.flatnonzero(own["first"][1:] <= reach[:-1]) + 1).tolist():
            for earlier in range(later - 1, max(-1, later - _MOST_NEIGHBOURS), -1):
                is_other = own["commit"][earlier] != own["commit"][later] and own["file"][earlier] != own["file"][later]
                if own["last"][earlier] >= own["first"][later] and is_other:
                    pairs.append((int(low) + earlier, int(low) + later))
                    break
            if len(pairs) >= _MOST_OVERLAPS:
                break
    names = _names(history, {int(ranged["file"][index]) for pair in pairs for index in pair})
    for earlier, later in pairs:
        sides = ranged[[earlier, later]]
        partition = partitions[int(sides["partition"][0])]
        first, last = int(sides["first"][1]), int(sides["last"].min())
        files = names[int(sides["file"][0])], names[int(sides["file"][1])]
        commits = [_commit(history, int(commit)) for commit in sides["commit"]]
        newest = max((commit for commit in commits if commit is not None), key=_time)
        yield Finding(
            "overlap",
            f"{files[0]} and {files[1]} of {_sources(commits)} both reach over offsets {first} to {last} of "
            f"{partition}; --rows tells whether rows are there twice",
            newest.name,
            newest.time_ms,
            str(partition.topic),
            partition.partition,
            first,
            last,
            files=files,
        )


def _names(history: History, digests: set[int]) -> dict[int, str]:
    if not digests:
        return {}
    return {digest: entry.path for entry in history.live() if (digest := _digest(entry.path)) in digests}


def _commit(history: History, index: int) -> Commit | None:
    return history.commits[index] if index >= 0 else None


def _time(commit: Commit) -> int:
    return commit.time_ms


def _sources(commits: Iterable[Commit | None]) -> str:
    """Commits in words, with what tells a sink's apart."""
    texts = []
    for commit in commits:
        if commit is None:
            texts.append("a commit that has expired")
            continue
        marks = [f"{name} {text}" for name, text in commit.connect.items() if name != "valid-through-ts"]
        marks += [
            f"control offsets {', '.join(f'{part}: {end}' for part, end in sorted(offsets.items()))}"
            for offsets in commit.control.values()
        ]
        texts.append(commit.name + (f" ({'; '.join(marks)})" if marks else ""))
    return " and ".join(dict.fromkeys(texts))


def _place(entry: FileEntry) -> dict[str, Any]:
    if entry.range is None:
        return {}
    (topic, partition), first, last = entry.range
    return {"topic": str(topic), "partition": partition, "first_offset": first, "last_offset": last}
