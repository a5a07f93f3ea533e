"""The port to a table of another format: one commit adds files *and* the offsets from which its partitions go on.

The rule: after ``commit`` either both are there or neither; ``next_offsets`` answers by the newest commit alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

import pyarrow as pa

from oncelog.base.ids import TopicPartition

NextOffsets = dict[TopicPartition, int]


class NewFile(NamedTuple):
    """A Parquet file to be added: its rows, their offsets, and the directories that stand for columns."""

    path: Path
    rows: int
    first_offset: int
    last_offset: int
    levels: Mapping[str, str | None]


class Target(Protocol):
    """A table of some format. One process at a time writes to it."""

    root: Path

    def next_offsets(self, partitions: Sequence[TopicPartition]) -> NextOffsets:
        """Partition → next offset by the newest commit; partitions without rows in the table are left out."""

    def columns(self) -> pa.Schema | None:
        """The table's columns; None if there is no table yet."""

    def commit(self, files: Sequence[NewFile], ends: NextOffsets, schema: pa.Schema, partition_by: str | None) -> None:
        """Add files and record ``ends`` as their partitions' next offsets, in one commit; new columns are added."""
