"""A Delta or Iceberg table as a table that jobs write: each step's files are checked, and committed with the spans.

1. A directory is locked by an flock. An object store has no such lock; there the commit itself rejects the second
   writer (``table_target``, rule 2).
2. Bad rows are committed to the quarantine first, with its own spans.
3. A step whose commit is rejected removes its files, which no commit names, where possible.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from oncelog.base.ids import TopicPartition
from oncelog.spark.jobs.load_plan import Piece, StepKind
from oncelog.spark.jobs.load_report import LoadRequest, Progress
from oncelog.spark.session.errors import OptionError
from oncelog.spark.source.options import SourceOptions
from oncelog.spark.table.directory import Role, RowsFile, TableError, file_lock, other_format
from oncelog.spark.table.rename_journal import FORMAT, check_format
from oncelog.spark.targets.address import TableAddress
from oncelog.spark.targets.quarantine import Quarantine, QuarantineTable, QuarantineTopic
from oncelog.spark.targets.step_writer import StepStores, StepWriter, check_files
from oncelog.spark.targets.table_target import Change, FileStore, Move, Span, Spans, TableMoved, Target
from oncelog.spark.targets.task_files import Written

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

    from oncelog.spark.jobs.spark_reader import SparkReader


class FormatTable:
    """Implements ``LoadTable``. A description is kept until the table exists."""

    whole_files = False

    def __init__(self, address: TableAddress, request: LoadRequest, options: SourceOptions) -> None:
        self._target = open_target(address)
        self._address, self._request, self._options = address, request, options
        self._description: dict[str, Any] | None = None
        # True if the table has the description.
        self._is_described = True
        # The table's spans including this job's commits; None before the first request.
        self._spans: Spans | None = None
        self._quarantine: Quarantine
        self._progress: Progress

    @property
    def name(self) -> str:
        return str(self._address)

    @property
    def spark_log(self) -> Path:
        return Path(self._address.place) / ".oncelog-spark.log" if self._address.is_directory else Path(os.devnull)

    @property
    def quarantine(self) -> str:
        return self._quarantine.name

    def lock(self, role: Role = "append") -> AbstractContextManager[None]:
        return lock(self._address, role)

    def describe(self) -> dict[str, Any]:
        if self._description is None:
            self._description = self._target.describe()
            check_format(f"the property oncelog.table of {self.name}", self._description)
        return self._description

    def set_description(self, description: Mapping[str, Any]) -> None:
        self._description, self._is_described = {"format": FORMAT, **description}, False

    def drop_unused_description(self) -> None:
        """Do nothing: a description is only recorded together with a writer's columns."""

    def files(self, partitions: Sequence[TopicPartition]) -> dict[tuple[str, int], list[RowsFile]]:
        if self._spans is None:
            self._spans = self._target.spans(partitions)
        files = [RowsFile.of(partition, *span) for partition, span in self._spans.items()]
        return {(file.label, file.partition): [file] for file in files}

    @cached_property
    def _columns(self) -> pa.Schema | None:
        return self._target.columns()

    def needs_columns(self) -> bool:
        return self._columns is None

    def writer(self, reader: SparkReader) -> StepWriter:
        from oncelog.spark.session.sessions import check_shared
        from oncelog.spark.targets.step_writer import SparkStepWriter

        if self._address.is_directory:
            check_shared(reader.job_session, Path(self._address.place))
        include_headers = self._options.include_headers
        # The ends of the logs are known: no record before them has a newer schema.
        shape = self._request.shape.current()
        return SparkStepWriter(reader, shape, self._columns, include_headers=include_headers)

    def new_columns(self, writer: StepWriter) -> list[str]:
        existing = self._columns
        return [] if existing is None else [name for name in writer.schema.names if name not in existing.names]

    def prepare(self, writer: StepWriter) -> None:
        described = self.describe()
        self._target.prepare(writer.schema, writer.partition_by, described)
        self.__dict__.pop("_columns", None)
        if self._is_described:
            return
        recorded = self._target.describe()
        if recorded.get("id", described["id"]) != described["id"]:
            raise TableMoved(f"another load created {self.name} meanwhile: run it again")
        if recorded != described:
            self._target.set_description(described)
        self._is_described = True

    def begin(self, progress: Progress) -> None:
        self._progress = progress
        topic = self._request.quarantine_topic
        if topic is None:
            self._quarantine = QuarantineTable(open_target(self._address.quarantine))
        else:
            self._quarantine = QuarantineTopic(topic, self.describe()["id"], self._options, self._target)

    def run_step(
        self, kind: StepKind, pieces: Sequence[Piece], writer: StepWriter, frame: DataFrame | None = None
    ) -> None:
        """Raises TableMoved if another writer committed first; the table then has nothing of the step."""
        moves = self._moves(pieces, kind)
        self._progress.emit("writing")
        bad_store = self._quarantine.store(writer.bad_schema)
        recorded = {} if bad_store is None else self._quarantine.has(list(moves))
        # Replaced rows are judged again, so their bad rows must not be skipped.
        stores = StepStores(self._target.store(), bad_store, {} if kind == "replace" else recorded)
        written = writer.write(pieces, stores, frame)
        try:
            owners = check_files(written, pieces, lambda written_file: _store(stores, written_file))
            self._progress.emit("written")
            replaced = [piece.offset_range for piece in pieces] if kind == "replace" else []
            bad = [written_file.file for written_file in written if written_file.bad]
            # First: a run that dies before the table's commit finds in the quarantine which rows it has.
            self._quarantine.commit(bad, _ranges(pieces), recorded, replaced)
            self._progress.emit("publishing")
            self._commit(
                Change([written_file.file for written_file in written if not written_file.bad], moves, replaced)
            )
        except TableMoved:
            _discard(written, stores)
            raise
        self._count(pieces, written, owners)
        self._progress.emit("committed")

    def record_start_offsets(self, begins: Mapping[TopicPartition, int], writer: StepWriter) -> None:
        # Commit without rows.
        moves = {
            partition: Move(None, Span(offset, offset))
            for partition, offset in begins.items()
            if partition not in self._current_spans
        }
        if moves:
            self._commit(Change((), moves))

    def publish_empty(self, partition: TopicPartition, offset: int, writer: StepWriter | None) -> None:
        """Do nothing: ``prepare`` has created a readable table."""

    def compact(self, target_bytes: int) -> int:
        before, after = self._target.compact(target_bytes)
        return before if after < before else 0

    @property
    def _current_spans(self) -> Spans:
        assert self._spans is not None, "a job requests the files before its first step"
        return self._spans

    def _commit(self, change: Change) -> None:
        self._target.commit(change)
        self._current_spans.update({partition: move.after for partition, move in change.moves.items()})

    def _moves(self, pieces: Sequence[Piece], kind: StepKind) -> dict[TopicPartition, Move]:
        moves: dict[TopicPartition, Move] = {}
        for partition, read_span in _ranges(pieces).items():
            before = self._current_spans.get(partition)
            after = read_span if before is None else before.joined(read_span)
            moves[partition] = Move(before, before if kind == "replace" and before is not None else after)
        return moves

    def _count(self, pieces: Sequence[Piece], written: Sequence[Written], owners: Sequence[int]) -> None:
        report = self._progress.report
        report.steps += 1
        for written_file, owner in zip(written, owners, strict=True):
            rows = written_file.file.rows
            self._progress.count_rows(pieces[owner], *((0, rows) if written_file.bad else (rows, 0)))
            if not written_file.bad:
                report.files += 1
                report.bytes += written_file.file.size
        for piece in pieces:
            self._progress.count_done(piece)


def _ranges(pieces: Sequence[Piece]) -> Spans:
    spans: Spans = {}
    for piece in pieces:
        read_span = Span(piece.offset_range.start, piece.offset_range.end)
        partition = piece.offset_range.topic_partition
        spans[partition] = spans[partition].joined(read_span) if partition in spans else read_span
    return spans


def _discard(written: Sequence[Written], stores: StepStores) -> None:
    for written_file in written:
        if not written_file.bad:  # a bad one may be in the quarantine, which was committed before
            with suppress(Exception):
                stores.store.delete(written_file.file.path)


def _store(stores: StepStores, written_file: Written) -> FileStore:
    if not written_file.bad:
        return stores.store
    assert stores.bad_store is not None
    return stores.bad_store


def open_target(address: TableAddress) -> Target:
    """The table at an address, which may not exist yet. Raises OptionError if the format's package is missing."""
    try:
        if address.kind == "delta":
            from oncelog.spark.targets.delta import DeltaTarget

            return DeltaTarget(address)
        from oncelog.spark.targets.iceberg import IcebergTarget

        return IcebergTarget(address)
    except ImportError as error:
        raise OptionError(
            f"a table in {address.kind} needs a package: pip install 'oncelog[{address.kind}]' ({error})"
        ) from None


@contextmanager
def lock(address: TableAddress, role: Role = "append") -> Iterator[None]:
    """Lock the table in a role if it is a directory. Raises TableBusy."""
    if not address.is_directory:
        yield
        return
    root = Path(address.place)
    if (other := other_format(root, address.kind)) is not None:
        raise TableError(other)
    try:
        root.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise TableError(f"{root} cannot be used as a table's directory: {error.strerror}") from None
    name = ".oncelog-lock" if role == "append" else f".oncelog-lock-{role}"
    with file_lock(root / name, lambda owner: f"another load is writing to {address}"):
        yield
