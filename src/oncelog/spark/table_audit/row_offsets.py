"""The offsets of a table's rows by partition, read file by file, and the files that hold given offsets."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from oncelog.base.ids import TopicName, TopicPartition
from oncelog.base.text import counted
from oncelog.spark.table_audit.model import Finding, History
from oncelog.spark.table_audit.offset_runs import EMPTY, Offsets, Runs, RunsBuilder

MOST_RANGES: Final = 10
"""Ranges that a finding's text lists."""
_MOST_FILES: Final = 10
ReportProgress = Callable[[str, int, int], None]


@dataclass(slots=True)
class TableRows:
    """Offsets of all rows. ``files`` has a row for each file and partition: file, partition, first, last offset."""

    history: History
    builders: dict[TopicPartition, RunsBuilder] = field(default_factory=dict)
    twice: dict[TopicPartition, Runs] = field(default_factory=dict)
    offsets: dict[TopicPartition, Runs] = field(default_factory=dict)
    paths: list[str] = field(default_factory=list)
    extents: list[tuple[int, TopicPartition, int, int]] = field(default_factory=list)
    without_offset: int = 0

    def files_with(self, partition: TopicPartition, offset: int) -> tuple[str, ...]:
        """The first files that have a row at an offset, by reading those that may."""
        names: list[str] = []
        for index, at, first, last in self.extents:
            is_candidate = at == partition and first <= offset <= last and self.paths[index] not in names
            if not is_candidate or len(names) == _MOST_FILES:
                continue
            batches = self.history.read_file(self.paths[index])
            if any(offset in values for place, values in _by_partition(batches, self) if place == partition):
                names.append(self.paths[index])
        return tuple(names)


def read_rows(history: History, files: int, report_progress: ReportProgress) -> TableRows:
    """Raises TableError."""
    rows = TableRows(history)
    for index, (path, batches) in enumerate(history.read()):
        report_progress("files", index, files)
        rows.paths.append(path)
        extents: dict[TopicPartition, tuple[int, int]] = {}
        for partition, offsets in _by_partition(batches, rows):
            rows.builders.setdefault(partition, RunsBuilder()).add(offsets)
            low, high = extents.get(partition, (int(offsets.min()), int(offsets.max())))
            extents[partition] = min(low, int(offsets.min())), max(high, int(offsets.max()))
        rows.extents += ((index, partition, *extent) for partition, extent in extents.items())
    for partition, builder in sorted(rows.builders.items()):
        rows.offsets[partition], rows.twice[partition] = builder.build()
    return rows


def _by_partition(batches: Iterator[Any], rows: TableRows) -> Iterator[tuple[TopicPartition, Offsets]]:
    for topics, partitions, offsets in batches:
        table = pa.table([topics, partitions, offsets], ["topic", "partition", "offset"]).drop_null()
        rows.without_offset += len(topics) - table.num_rows
        if not table.num_rows:
            continue
        encoded: Any = pc.dictionary_encode(table["topic"].combine_chunks().cast(pa.string()))
        names = encoded.dictionary.to_pylist()
        keys = np.asarray(encoded.indices).astype(np.int64) << 32 | np.asarray(table["partition"]).astype(np.int64)
        values: npt.NDArray[np.int64] = np.asarray(table["offset"]).astype(np.int64)
        for key in np.unique(keys).tolist():
            yield TopicPartition(TopicName(names[key >> 32]), key & 0xFFFFFFFF), values[keys == key]


def row_findings(rows: TableRows) -> Iterator[Finding]:
    for partition, twice in rows.twice.items():
        if twice is EMPTY or not twice.size:
            continue
        surplus = rows.builders[partition].surplus
        first, last = int(twice.starts[0]), int(twice.ends[-1])
        files = rows.files_with(partition, first)
        yield Finding(
            "duplicate-rows",
            f"{counted(surplus, 'row')} of {partition} too many, at offsets {ranges_text(twice)}; offset {first} is in "
            f"{', '.join(files) or 'files that could not be read again'}",
            topic=str(partition.topic),
            partition=partition.partition,
            first_offset=first,
            last_offset=last,
            rows=surplus,
            files=files,
        )


def ranges_text(runs: Runs) -> str:
    ranges = runs.ranges(MOST_RANGES)
    texts = [str(first) if first == last else f"{first}–{last}" for first, last in ranges]
    more = len(runs.starts) - len(ranges)
    return ", ".join(texts) + (f" and {counted(more, 'more range')}" if more else "")
