"""A table of another format as a table that jobs write into: a step's files are checked, and committed with the spans.

Rules:
  1. a directory is held by an flock, so that a second writer is refused before it reads anything; on an object store
     there is no such lock, and the commit itself refuses the second writer (``table_target``, rule 2);
  2. bad rows are committed to the quarantine first, with spans of its own; a run that dies between the two commits
     finds there which of them it has, and does not add them again;
  3. a step whose commit is refused leaves nothing but files that no commit names, and removes those as far as it can.
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
from oncelog.spark.targets.address import TableAddress
from oncelog.spark.targets.quarantine import Quarantine, QuarantineTable, QuarantineTopic
from oncelog.spark.targets.step_writer import Places, StepWriter, check_files
from oncelog.spark.targets.table_target import Change, FileStore, Move, Span, Spans, TableMoved, Target
from oncelog.spark.targets.task_files import Written

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

    from oncelog.spark.jobs.spark_reader import SparkReader


class FormatTable:
    """Implements ``LoadTable``. A description waits until the table is there."""

    whole_files = False

    def __init__(self, address: TableAddress, request: LoadRequest, options: SourceOptions) -> None:
        self._target = open_target(address)
        self._address, self._request, self._options = address, request, options
        self._description: dict[str, Any] | None = None
        self._is_described = True
        """True if the table has recorded the description."""
        self._spans: Spans | None = None
        """The spans that the table has by this job's commits; None before it was asked."""
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
        return self._description

    def set_description(self, description: Mapping[str, Any]) -> None:
        """See ``LoadTable``: from ``prepare`` on it is the table's."""
        self._description, self._is_described = dict(description), False

    def drop_unused_description(self) -> None:
        """See ``LoadTable``: no description is recorded before a writer's columns are there."""

    def files(self, partitions: Sequence[TopicPartition]) -> dict[tuple[str, int], list[RowsFile]]:
        if self._spans is None:
            self._spans = self._target.spans(partitions)
        files = [RowsFile.of(one, *span) for one, span in self._spans.items()]
        return {(file.label, file.partition): [file] for file in files}

    @cached_property
    def _columns(self) -> pa.Schema | None:
        """The columns that the table had when the job began."""
        return self._target.columns()

    def needs_columns(self) -> bool:
        return self._columns is None

    def writer(self, reader: SparkReader) -> StepWriter:
        from oncelog.spark.session.sessions import check_shared
        from oncelog.spark.targets.step_writer import SparkStepWriter

        if self._address.is_directory:
            check_shared(reader.job_session, Path(self._address.place))
        include_headers = self._options.include_headers
        return SparkStepWriter(reader, self._request.shape, self._columns, include_headers=include_headers)

    def new_columns(self, writer: StepWriter) -> list[str]:
        has = self._columns
        return [] if has is None else [name for name in writer.schema.names if name not in has.names]

    def prepare(self, writer: StepWriter) -> None:
        """See ``LoadTable``; makes the table if it is not there, and records the description."""
        described = self.describe()
        self._target.prepare(writer.schema, writer.partition_by, described)
        if self._is_described:
            return
        recorded = self._target.describe()
        if recorded.get("id", described["id"]) != described["id"]:
            raise TableMoved(f"another load has made {self.name} meanwhile: run it again")
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
        """See ``LoadTable``. Raises TableMoved if another writer was faster; nothing of the step is there then."""
        moves = self._moves(pieces, kind)
        self._progress.emit("writing")
        bad_store = self._quarantine.store(writer.bad_schema)
        had = {} if bad_store is None else self._quarantine.has(list(moves))
        places = Places(self._target.store(), bad_store, {} if kind == "replace" else had)
        written = writer.write(pieces, places, frame)
        try:
            owners = check_files(written, pieces, lambda one: _store(places, one))
            self._progress.emit("written")
            replaced = [piece.offset_range for piece in pieces] if kind == "replace" else []
            bad = [one.file for one in written if one.bad]
            self._quarantine.commit(bad, _ranges(pieces), had, replaced)
            self._progress.emit("publishing")
            self._commit(Change([one.file for one in written if not one.bad], moves, replaced))
        except TableMoved:
            _discard(written, places)
            raise
        self._count(pieces, written, owners)
        self._progress.emit("committed")

    def record_start_offsets(self, begins: Mapping[TopicPartition, int], writer: StepWriter) -> None:
        """See ``LoadTable``: a commit without rows."""
        moves = {one: Move(None, Span(at, at)) for one, at in begins.items() if one not in self._known_spans}
        if moves:
            self._commit(Change((), moves))

    def publish_empty(self, partition: TopicPartition, offset: int, writer: StepWriter | None) -> None:
        """See ``LoadTable``: ``prepare`` has made a table that can be read."""

    def compact(self, target_bytes: int) -> int:
        before, after = self._target.compact(target_bytes)
        return before if after < before else 0

    @property
    def _known_spans(self) -> Spans:
        assert self._spans is not None, "a job asks for the files before its first step"
        return self._spans

    def _commit(self, change: Change) -> None:
        self._target.commit(change)
        self._known_spans.update({partition: move.after for partition, move in change.moves.items()})

    def _moves(self, pieces: Sequence[Piece], kind: StepKind) -> dict[TopicPartition, Move]:
        moves: dict[TopicPartition, Move] = {}
        for partition, own in _ranges(pieces).items():
            before = self._known_spans.get(partition)
            after = own if before is None else before.joined(own)
            moves[partition] = Move(before, before if kind == "replace" and before is not None else after)
        return moves

    def _count(self, pieces: Sequence[Piece], written: Sequence[Written], owners: Sequence[int]) -> None:
        report = self._progress.report
        report.steps += 1
        for one, owner in zip(written, owners, strict=True):
            rows = one.file.rows
            self._progress.count_rows(pieces[owner], *((0, rows) if one.bad else (rows, 0)))
            if not one.bad:
                report.files += 1
                report.bytes += one.file.size
        for piece in pieces:
            self._progress.count_done(piece)


def _ranges(pieces: Sequence[Piece]) -> Spans:
    """The offsets that a step reads of each partition."""
    found: Spans = {}
    for piece in pieces:
        own = Span(piece.offset_range.start, piece.offset_range.end)
        partition = piece.offset_range.topic_partition
        found[partition] = found[partition].joined(own) if partition in found else own
    return found


def _discard(written: Sequence[Written], places: Places) -> None:
    for one in written:
        if not one.bad:  # those may be in the quarantine, which was committed before
            with suppress(Exception):
                places.store.delete(one.file.path)


def _store(places: Places, one: Written) -> FileStore:
    if not one.bad:
        return places.store
    assert places.bad_store is not None
    return places.bad_store


def open_target(address: TableAddress) -> Target:
    """The table at an address, which may not be there yet. Raises OptionError if the format's package is missing."""
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
    """Hold the table in a role, if it is in a directory. Raises TableBusy."""
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
