"""The quarantine of bad rows: a table of the same format beside the table, or a topic.

The rule: both remember spans of the *source's* partitions, in the very commit that adds the rows. So each bad row of a
span is there once, whenever a run died, and the table's own commit may come later or never.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from oncelog.base.ids import TopicPartition
from oncelog.client.machine.offsets import Committed, GroupMetadata
from oncelog.client.programs.group import committed_offsets
from oncelog.spark.jobs.quarantine_topic import PREFIX, bad_row_producer, send_bad_rows
from oncelog.spark.source.offset_ranges import OffsetRange
from oncelog.spark.source.options import SourceOptions
from oncelog.spark.source.plan.offset_planner import open_client
from oncelog.spark.targets.table_target import Change, FileStore, Move, NewFile, Span, Spans, TableMoved, Target


class Quarantine(Protocol):
    """A place of bad rows."""

    name: str

    def store(self, schema: pa.Schema | None) -> FileStore | None:
        """The place where tasks write files of bad rows; None without a schema: no row can be bad."""

    def has(self, partitions: Sequence[TopicPartition]) -> Spans:
        """The offsets of which all bad rows are there."""

    def commit(self, files: Sequence[NewFile], spans: Spans, had: Spans, replaced: Sequence[OffsetRange]) -> None:
        """Add the bad rows of spans, in place of those of ``replaced``; nothing where there are none of either.

        ``had`` is what ``has`` answered when the rows were read. Raises TableMoved if that has changed.
        """


class QuarantineTable:
    """A table of bad rows; it is made when there is a schema for it."""

    def __init__(self, target: Target) -> None:
        self.name = target.name
        self._target = target
        self._schema: pa.Schema | None = None

    def store(self, schema: pa.Schema | None) -> FileStore | None:
        if schema is None:
            return None
        if self._schema is None:
            self._target.prepare(schema, None, {})
            self._schema = schema
        return self._target.store()

    def has(self, partitions: Sequence[TopicPartition]) -> Spans:
        return self._target.spans(partitions)

    def commit(self, files: Sequence[NewFile], spans: Spans, had: Spans, replaced: Sequence[OffsetRange]) -> None:
        if files or (replaced and had):
            moves = {one: Move(had.get(one), span) for one, span in _joined(spans, had).items()}
            self._target.commit(Change(files, moves, replaced))


class QuarantineTopic:
    """A topic of bad rows; the spans are offsets of a group of the table's own, committed in the rows' transaction."""

    def __init__(self, topic: str, identity: str, options: SourceOptions, table: Target) -> None:
        self.name = topic
        self._identity, self._options, self._table = f"{PREFIX}/{identity}", options, table

    def store(self, schema: pa.Schema | None) -> FileStore | None:
        """See ``Quarantine``: the table's own; its commits do not name these files."""
        return None if schema is None else self._table.store()

    def has(self, partitions: Sequence[TopicPartition]) -> Spans:
        with open_client(self._options) as client:
            found = committed_offsets(client, self._identity, partitions, require_stable=True)
        return {one: Span(json.loads(at.metadata)["begin"], at.offset) for one, at in found.items() if at.metadata}

    def commit(self, files: Sequence[NewFile], spans: Spans, had: Spans, replaced: Sequence[OffsetRange]) -> None:
        """See ``Quarantine``; rows of ``replaced`` ranges are sent again, for a topic keeps what it has."""
        if not files:
            return
        store = self._table.store()
        offsets = {
            one: Committed(span.end, -1, json.dumps({"begin": span.begin})) for one, span in _joined(spans, had).items()
        }

        def batches() -> Iterator[pa.RecordBatch]:
            for file in files:
                with store.open(file.path) as stream, pq.ParquetFile(stream) as rows:
                    yield from rows.iter_batches()

        with open_client(self._options) as client, bad_row_producer(client, self._identity, self.name) as producer:
            if self.has(list(spans)) != had:
                raise TableMoved(f"another load has sent bad rows to {self.name} meanwhile: run it again")
            group = GroupMetadata(self._identity)
            send_bad_rows(client, producer, self.name, batches, lambda: producer.send_offsets(offsets, group))
        for file in files:
            with suppress(Exception):  # no commit names it: the format's own clean-up would take it, too
                store.delete(file.path)


def _joined(spans: Spans, had: Spans) -> Spans:
    return {one: had[one].joined(span) if one in had else span for one, span in spans.items()}
