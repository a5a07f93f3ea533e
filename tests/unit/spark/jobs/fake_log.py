"""A log in memory, and a writer that does what Spark does with it, so that loads can be tested by the hundred."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from oncelog.base.ids import TopicName, TopicPartition
from oncelog.spark.jobs.load_plan import PartitionState, Piece
from oncelog.spark.jobs.load_report import LoadRequest
from oncelog.spark.jobs.load_table import TableFiles
from oncelog.spark.table.parquet_files import table_schema

Row = tuple[str, int, int]


class FakeLog:
    """Partitions of values; a value's offset is its index, its timestamp its offset. Markers are None."""

    def __init__(self, partitions: dict[tuple[str, int], list[bytes | None]]) -> None:
        self.partitions = partitions
        self.log_start: dict[tuple[str, int], int] = {}
        self.ids = {topic: "id-" + topic for topic, _ in partitions}
        self.from_ms: int | None = None

    def topic_ids(self) -> dict[str, str]:
        return self.ids

    def states(self, table: TableFiles) -> list[PartitionState]:
        files = table.files([TopicPartition(TopicName(topic), number) for topic, number in sorted(self.partitions)])
        return [
            PartitionState(
                TopicPartition(TopicName(topic), number),
                files.get((topic, number), []),
                self.log_start.get((topic, number), 0),
                len(values),
                None
                if self.from_ms is None
                else max(self.log_start.get((topic, number), 0), min(self.from_ms, len(values))),
            )
            for (topic, number), values in sorted(self.partitions.items())
        ]

    def rows(self) -> list[Row]:
        """Every record, as a complete table has them."""
        return [
            (topic, number, offset)
            for (topic, number), values in sorted(self.partitions.items())
            for offset, value in enumerate(values)
            if value is not None
        ]


class FakeWriter:
    """One file for each piece that has rows."""

    parallelism = 2

    def __init__(self, log: FakeLog, *, suffix: bytes = b"") -> None:
        self._log, self._suffix = log, suffix

    def write(self, pieces: Sequence[Piece], directory: Path, frame: object = None) -> dict[int, Path]:
        directory.mkdir()
        files: dict[int, Path] = {}
        for index, piece in enumerate(pieces):
            one = piece.offset_range
            values = self._log.partitions[one.topic, one.partition]
            rows: list[dict[str, Any]] = [
                {
                    "key": None,
                    "value": (values[offset] or b"") + self._suffix,
                    "topic": one.topic,
                    "partition": one.partition,
                    "offset": offset,
                    "timestamp": offset * 1000,
                    "timestampType": 0,
                }
                for offset in range(one.start, one.end)
                if values[offset] is not None
            ]
            if rows:
                files[index] = directory / f"part-{index:05d}.parquet"
                pq.write_table(pa.Table.from_pylist(rows, table_schema(include_headers=False)), files[index])
        return files


def visible_rows(directory: Path, *columns: str) -> list[Row]:
    """The rows that any reader of the directory sees, sorted."""
    if not any(directory.glob("*.parquet")):
        return []
    wanted = list(columns or ("topic", "partition", "offset"))
    table = pq.read_table(directory, columns=wanted)
    return sorted(zip(*(table[name].to_pylist() for name in wanted), strict=True))


def request(directory: Path, log: FakeLog, rows_per_step: int = 10) -> LoadRequest:
    topics = tuple(sorted({topic for topic, _ in log.partitions}))
    return LoadRequest(topics, directory, {}, log.from_ms, rows_per_step)
