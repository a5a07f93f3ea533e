"""A table directory: Parquet files whose *names* are the offsets they hold, so that one rename commits both.

Layout::

    DIR/rows-<topic>-<partition>-<start>-<end>.parquet     offsets from start (inclusive) to end (exclusive)
    DIR/offsets=<topic>-<partition>-<start>-<end>/day=…/   the same in a table partitioned by event time
    DIR/_quarantine/rows-….parquet                         bad rows of the range of the same name, with their reasons
    DIR/_oncelog/lock, table.json, staging/<run>/…         hidden from Spark, pyarrow and DuckDB by the underscore

Invariants, at whatever moment the process dies (ADR 0001, ADR 0005):
  1. a visible file is complete and durable, and holds exactly the records of its offsets;
  2. the files of a partition do not overlap, so no row occurs twice;
  3. the names alone tell where a load resumes;
  4. a range and its bad rows are committed together: the renames go to a journal first (``intent.json``), and the
     process that opens the table next completes them.

Only the process that holds the lock renames; tasks write only to its staging directory.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import logging
import os
import re
import shutil
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

from oncelog.base.ids import TopicPartition
from oncelog.base.notation.shell_words import option
from oncelog.spark.session.errors import SparkSourceError
from oncelog.spark.table.atomic_swap import SwapUnsupported, fsync, fsync_tree
from oncelog.spark.table.rename_journal import FORMAT, Move, RenameJournal, apply, check_format

# A file name has at most 255 characters; this leaves room for the numbers beside a topic.
_MAX_LABEL_LENGTH: Final = 150
_RANGE: Final = r"(?P<label>.+)-(?P<partition>\d{5,})-(?P<start>\d{20})-(?P<end>\d{20})"
_NAME: Final = re.compile(rf"rows-{_RANGE}\.parquet|offsets={_RANGE.replace('?P<', '?P<d')}")
LOG: Final = logging.getLogger("oncelog.spark")
# The beginning of an object store's address. ``Path`` collapses its two slashes into one.
OBJECT_STORE: Final = re.compile(r"(s3[an]?|gs|gcs|abfss?|adl|az|azure|wasbs?|oss):/+", re.IGNORECASE)


class TableError(SparkSourceError):
    """The directory is not a table as a load leaves it, or is in use."""


def reject_object_store(to: str | Path) -> None:
    """Raise TableError for an object store, which cannot rename."""
    if match := OBJECT_STORE.match(str(to)):
        raise TableError(
            f"a table of Parquet files needs a file system with renames, and {match[1]}:// is an object store: load "
            "into delta:ADDRESS or iceberg:NAMESPACE.TABLE there"
        )


def reject_non_directory(to: str | Path) -> None:
    """Raise TableError for an object store, and for a name that Spark and pyarrow take for an address (a mistyped
    ``delta:``)."""
    reject_object_store(to)
    parts = Path(to).parts
    if parts and ":" in parts[0]:
        raise TableError(
            f"{str(to)!r} has a colon in its first name, which Spark and pyarrow take for the scheme of a file system: "
            f"write delta:… or iceberg:… for these table formats, or the directory's full path, {Path(to).absolute()}"
        )


def existing_table(to: str | Path) -> Path:
    """The directory of an existing table. Raises TableError."""
    reject_non_directory(to)
    path = Path(to)
    if not (path / "_oncelog" / "table.json").exists():
        raise TableError(
            f"{path} is not a table created by a load: run `oncelog load TOPIC {option('--to', path)}` to create one"
        )
    return path


def topic_label(topic: str) -> str:
    """A topic's name for file names; a long one is shortened with ``~`` (never in topic names) and a digest."""
    if len(topic) <= _MAX_LABEL_LENGTH:
        return topic
    return f"{topic[: _MAX_LABEL_LENGTH - 9]}~{hashlib.sha256(topic.encode()).hexdigest()[:8]}"


Role = Literal["append", "fill"]

# Sends the bad rows that a rename journal names to their quarantine topic, unless they were sent already.
QuarantineSender = Callable[[dict[str, Any]], None]


class TableBusy(TableError):
    """Another process holds the table."""


class QuarantineRejected(TableError):
    """A quarantine topic accepts bad rows in no form."""


class RowsFile(NamedTuple):
    """A visible file: the records of one partition, ``end`` exclusive."""

    label: str
    partition: int
    start: int
    end: int

    @classmethod
    def of(cls, partition: TopicPartition, start: int, end: int) -> RowsFile:
        return cls(topic_label(partition.topic), partition.partition, start, end)

    @classmethod
    def parse(cls, name: str) -> RowsFile | None:
        """The file with that name, or None if a load never creates such a name."""
        match = _NAME.fullmatch(name)
        if match is None:
            return None
        label, partition, start, end = [value for value in match.groups() if value is not None]
        return cls(label, int(partition), int(start), int(end))

    @property
    def name(self) -> str:
        """The file's name; names sort by partition, then by offset."""
        return f"rows-{self._range}.parquet"

    @property
    def directory_name(self) -> str:
        """The range's name in a partitioned table, where it is a directory; readers see a partition column."""
        return f"offsets={self._range}"

    @property
    def _range(self) -> str:
        return f"{self.label}-{self.partition:05d}-{self.start:020d}-{self.end:020d}"


class Table:
    def __init__(self, path: Path, role: Role = "append") -> None:
        self.path, self._role = path, role
        self.hidden = path / "_oncelog"
        self.quarantine = path / "_quarantine"
        # True if a range is a directory with one directory per day. Set before the first range is published.
        self.partitioned = False
        self._stagings = self.hidden / ("staging" if role == "append" else f"staging-{role}")
        self._staging = self._stagings / uuid.uuid4().hex

    @classmethod
    @contextmanager
    def open(
        cls, path: Path, send_quarantined: QuarantineSender | None = None, role: Role = "append"
    ) -> Iterator[Table]:
        """Open the table at ``path``, created if missing, and lock it until the end of the block.

        Completes the rename journal of an earlier load, with ``send_quarantined`` for its bad rows, and removes other
        staged files. Raises TableError if another load holds the table, or for Parquet files that no load wrote, which
        a reader would take for rows. The role ``fill`` may be held beside a process that appends; it may publish only
        ranges before a partition's first file or between two files.
        """
        table = cls(path, role)
        if (other := other_format(path, "parquet")) is not None:
            raise TableError(other)
        try:
            table.hidden.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise TableError(f"{path} cannot be used as a table directory: {error.strerror}") from None
        with table._locked():
            table.files()
            table.partitioned = bool(table.describe().get("partitionBy"))
            table._finish(send_quarantined)
            # The lock is held, so these belong to a process that died.
            shutil.rmtree(table._stagings, ignore_errors=True)
            try:
                yield table
            finally:
                if not table._journal.exists():  # a journal still needs its staged files
                    shutil.rmtree(table._staging, ignore_errors=True)

    def files(self) -> dict[tuple[str, int], list[RowsFile]]:
        """The visible files by (topic label, partition), in offset order. Raises TableError."""
        files_by_partition: dict[tuple[str, int], list[RowsFile]] = {}
        for entry in sorted(os.listdir(self.path)):
            if entry.startswith(("_", ".")) or not (entry.endswith(".parquet") or "=" in entry):
                continue
            file = RowsFile.parse(entry)
            if file is None:
                raise TableError(f"{self.path / entry} was not written by a load: use another directory")
            files_by_partition.setdefault((file.label, file.partition), []).append(file)
        for files in files_by_partition.values():
            files.sort(key=lambda file: (file.start, file.end))
            # Invariant 2: files do not overlap.
            for before, after in pairwise(files):
                if after.start < before.end:
                    raise TableError(f"{self.path}: {before.name} and {after.name} overlap: remove one of them")
        return files_by_partition

    def path_of(self, file: RowsFile) -> Path:
        return self.path / (file.directory_name if self.partitioned else file.name)

    def bad_path_of(self, file: RowsFile) -> Path:
        """The path for a range's bad rows, which may not exist."""
        return self.quarantine / file.name

    def staging(self, step: int) -> Path:
        """A directory for one step's files, not created yet."""
        self._staging.mkdir(parents=True, exist_ok=True)
        return self._staging / f"step-{step}"

    def publish(self, staged: Path, file: RowsFile) -> None:
        """Make a staged file visible under its offsets, in place of one with the same offsets. This one rename commits
        durably."""
        # Invariant 1: a file must be durable before its name is visible.
        fsync_tree(staged)
        self._explain_unsupported(lambda: apply(Move(staged, self.path_of(file)), staged.stat().st_ino))

    def publish_with_bad_rows(
        self,
        staged: Path,
        bad: Path | None,
        file: RowsFile,
        send_quarantined: QuarantineSender | None = None,
        **extra: Any,
    ) -> None:
        """Publish a range with its bad rows (None removes them); ``extra`` goes to ``send_quarantined``.

        The durable journal is the commit point: this process or the next one completes it.
        """
        moves = [Move(bad, self.bad_path_of(file)), Move(staged, self.path_of(file))]
        journal = RenameJournal.of(self.path, moves, extra)
        journal.write(self._journal)
        self._finish(send_quarantined)

    def _finish(self, send_quarantined: QuarantineSender | None) -> None:
        journal = RenameJournal.read(self._journal, self.path)
        if journal is None:
            return
        if journal.extra:
            if send_quarantined is None:
                raise TableError(
                    f"the last load of {self.path} ended while it sent bad rows to topic {journal.extra['topic']!r}: "
                    f"run `oncelog load … --to {self.path}` again to complete it"
                )
            try:
                send_quarantined(journal.extra)
            except QuarantineRejected as refused:
                LOG.warning("%s. They are kept in %s instead", refused, self.quarantine)
                # The topic will never accept them: keep the rows in the table's own quarantine.
                journal = journal.with_local_bad_rows(self.path / journal.extra["rows"])
                journal.write(self._journal)
        if any(move.final.parent == self.quarantine for move, _ in journal.moves):
            self.quarantine.mkdir(exist_ok=True)
        self._explain_unsupported(journal.apply)
        self._journal.unlink()
        fsync(self.hidden)

    @property
    def _journal(self) -> Path:
        return self.hidden / ("intent.json" if self._role == "append" else f"intent-{self._role}.json")

    def _explain_unsupported(self, moves: Callable[[], None]) -> None:
        try:
            moves()
        except SwapUnsupported as error:
            raise TableError(
                f"the file system of {self.path} cannot swap two directories in one step ({error.strerror}), "
                "so rows of a partitioned table cannot be replaced there"
            ) from None

    def describe(self) -> dict[str, Any]:
        try:
            described: dict[str, Any] = json.loads((self.hidden / "table.json").read_text(encoding="utf-8"))
        except FileNotFoundError:
            return {}
        except ValueError:
            raise TableError(
                f"{self.hidden / 'table.json'} is not readable JSON: restore it, or load into another directory"
            ) from None
        check_format(str(self.hidden / "table.json"), described)
        return described

    def set_description(self, description: Mapping[str, Any]) -> None:
        """Replace the table's description (topic ids, columns) atomically and durably."""
        temporary = self.hidden / "table.json.new"
        temporary.write_text(json.dumps({"format": FORMAT, **description}, indent=2), encoding="utf-8")
        fsync(temporary)
        os.replace(temporary, self.hidden / "table.json")
        fsync(self.hidden)

    def drop_unused_description(self) -> None:
        """Remove the description left by a run that published nothing: its settings bind no later run.

        The role ``fill`` leaves it: a process that appends may have just written it. Raises TableError like
        :meth:`describe`, because this version may not see files that another published.
        """
        if self._role == "append" and self.describe() and not self.files():
            (self.hidden / "table.json").unlink(missing_ok=True)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        name = "lock" if self._role == "append" else f"lock-{self._role}"
        busy = f"another load is writing to {self.path}"
        with file_lock(self.hidden / name, lambda owner: f"{busy} ({owner or 'process unknown'})") as descriptor:
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"process {os.getpid()}".encode(), 0)
            yield


@contextmanager
def file_lock(path: Path, busy: Callable[[str], str]) -> Iterator[int]:
    """Hold an flock and yield the file's descriptor; the kernel releases it when the process dies.

    Raises TableBusy with ``busy`` applied to the file's content.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise TableBusy(busy(os.pread(descriptor, 100, 0).decode(errors="replace").strip())) from None
        yield descriptor
    finally:
        os.close(descriptor)


TableFormat = Literal["parquet", "delta", "iceberg"]
_MARKS: Final[dict[TableFormat, str]] = {
    "parquet": "_oncelog/table.json",
    "delta": "_delta_log",
    "iceberg": "catalog.db",
}
_ADDRESSES: Final[dict[TableFormat, str]] = {"parquet": "{}", "delta": "delta:{}", "iceberg": "iceberg:{}"}


def other_format(directory: Path, expected: TableFormat) -> str | None:
    """One line about a table of another format in the directory; None if it has none."""
    for kind, mark in _MARKS.items():
        if kind != expected and (directory / mark).exists():
            address = _ADDRESSES[kind].format(directory)
            return f"{directory} holds a table in {kind.capitalize()}: write {address} for it, or use another directory"
    return None
