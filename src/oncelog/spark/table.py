"""A table directory: Parquet files whose *names* are the offsets they hold, so that a rename commits both.

Layout::

    DIR/rows-<topic>-<partition>-<start>-<end>.parquet     offsets from start (inclusive) to end (exclusive)
    DIR/_oncelog/lock, table.json, staging/<run>/…         hidden from Spark, pyarrow and DuckDB by the underscore

Invariants, whatever the moment at which the process dies:
  1. a visible file is complete and durable, and holds exactly the records of its offsets;
  2. the files of a partition do not overlap, so no row is there twice;
  3. where a load goes on is read from the names alone: there is no second place that could disagree.
Only the process that holds the lock renames; tasks write into its staging directory and nowhere else. See ADR 0001.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import shutil
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, NamedTuple

from oncelog.base.ids import TopicPartition
from oncelog.spark.errors import SparkSourceError

_LONGEST_LABEL: Final = 150
"""Characters of a topic that fit into a file name of 255 beside the numbers."""
_NAME: Final = re.compile(r"rows-(?P<label>.+)-(?P<partition>\d{5,})-(?P<start>\d{20})-(?P<end>\d{20})\.parquet")
_FORMAT: Final = 1


class TableError(SparkSourceError):
    """The directory is not what a load left behind, or someone else is using it."""


def topic_label(topic: str) -> str:
    """A topic in a file name: itself, or shortened with a digest (``~`` is in no topic's name)."""
    if len(topic) <= _LONGEST_LABEL:
        return topic
    return f"{topic[: _LONGEST_LABEL - 9]}~{hashlib.sha256(topic.encode()).hexdigest()[:8]}"


class RowsFile(NamedTuple):
    """A visible file: the records of one partition from ``start`` (inclusive) to ``end`` (exclusive)."""

    label: str
    partition: int
    start: int
    end: int

    @classmethod
    def of(cls, partition: TopicPartition, start: int, end: int) -> RowsFile:
        """The file for a range of a partition."""
        return cls(topic_label(partition.topic), partition.partition, start, end)

    @classmethod
    def parse(cls, name: str) -> RowsFile | None:
        """The file of that name, None when it is not one of ours."""
        match = _NAME.fullmatch(name)
        if match is None:
            return None
        return cls(match["label"], int(match["partition"]), int(match["start"]), int(match["end"]))

    @property
    def name(self) -> str:
        """Its file name; sorts by partition, then offset."""
        return f"rows-{self.label}-{self.partition:05d}-{self.start:020d}-{self.end:020d}.parquet"


class Table:
    """A table directory, held by one load at a time: use :meth:`open`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._hidden = path / "_oncelog"
        self._staging = self._hidden / "staging" / uuid.uuid4().hex

    @classmethod
    @contextmanager
    def open(cls, path: Path) -> Iterator[Table]:
        """The table at ``path``, created if need be and locked until the end of the block.

        What an earlier load left unfinished is removed. Raises TableError when another load holds it or the
        directory has Parquet files that no load wrote: a reader would take them for rows of the topic.
        """
        table = cls(path)
        try:
            table._hidden.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise TableError(f"{path} cannot be used as a table directory: {error.strerror}") from None
        with table._locked():
            table.files()
            shutil.rmtree(table._hidden / "staging", ignore_errors=True)
            try:
                yield table
            finally:
                shutil.rmtree(table._staging, ignore_errors=True)

    def files(self) -> dict[tuple[str, int], list[RowsFile]]:
        """The visible files by (topic label, partition), in offset order. Raises TableError."""
        found: dict[tuple[str, int], list[RowsFile]] = {}
        for entry in sorted(os.listdir(self.path)):
            if entry.startswith(("_", ".")) or not entry.endswith(".parquet"):
                continue
            file = RowsFile.parse(entry)
            if file is None:
                raise TableError(f"{self.path / entry} was not written by a load; use another directory")
            found.setdefault((file.label, file.partition), []).append(file)
        for files in found.values():
            files.sort(key=lambda file: (file.start, file.end))
            for before, after in pairwise(files):
                if after.start < before.end:
                    raise TableError(f"{self.path}: {before.name} and {after.name} overlap; one must be removed")
        return found

    def path_of(self, file: RowsFile) -> Path:
        """Where a visible file is."""
        return self.path / file.name

    def staging(self, step: int) -> Path:
        """A directory for one step's files; it does not exist yet."""
        self._staging.mkdir(parents=True, exist_ok=True)
        return self._staging / f"step-{step}"

    def publish(self, staged: Path, file: RowsFile) -> None:
        """Make a finished staged file visible under its offsets, in place of a file with the same ones.

        This one rename is the commit of its rows and of its offsets; both are durable when it returns.
        """
        _sync(staged)
        os.replace(staged, self.path_of(file))
        _sync(self.path)

    def describe(self) -> dict[str, Any]:
        """What ``describe_as`` wrote; empty for a new table."""
        try:
            described: dict[str, Any] = json.loads((self._hidden / "table.json").read_text(encoding="utf-8"))
        except FileNotFoundError:
            return {}
        except ValueError:
            raise TableError(f"{self._hidden / 'table.json'} is damaged") from None
        if described.get("format") != _FORMAT:
            raise TableError(f"{self.path} was written by another version of oncelog (format {described['format']})")
        return described

    def describe_as(self, description: Mapping[str, Any]) -> None:
        """Remember what the table holds (topic ids, columns); replaced as a whole, durably."""
        temporary = self._hidden / "table.json.new"
        temporary.write_text(json.dumps({"format": _FORMAT, **description}, indent=2), encoding="utf-8")
        _sync(temporary)
        os.replace(temporary, self._hidden / "table.json")
        _sync(self._hidden)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """An flock: the kernel lets go of it when the process dies, however it dies."""
        descriptor = os.open(self._hidden / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                owner = os.pread(descriptor, 100, 0).decode(errors="replace").strip()
                raise TableError(f"another load is writing to {self.path} ({owner or 'process unknown'})") from None
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"process {os.getpid()}".encode(), 0)
            yield
        finally:
            os.close(descriptor)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
