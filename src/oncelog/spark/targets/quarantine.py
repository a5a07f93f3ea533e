"""The quarantine of bad rows: a table of the same format beside the table, or a topic.

Both record spans of the *source's* partitions in the commit that adds the rows, so each bad row is stored once,
whenever a run died (ADR 0015).
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
    name: str

    def store(self, schema: pa.Schema | None) -> FileStore | None:
        """The store where tasks write bad rows; None without a schema, when no row can be bad."""

    def has(self, partitions: Sequence[TopicPartition]) -> Spans:
        """The spans whose bad rows are all stored."""

    def commit(self, files: Sequence[NewFile], spans: Spans, had: Spans, replaced: Sequence[OffsetRange]) -> None:
        """Add the bad rows of spans, replacing those of ``replaced``; does nothing if there are none of either.

        ``had`` is the earlier result of ``has``. Raises TableMoved if it has changed.
        """


class QuarantineTable:
    """A table of bad rows, created when there is a schema for it."""

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
            moves = {partition: Move(had.get(partition), span) for partition, span in _joined(spans, had).items()}
            self._target.commit(Change(files, moves, replaced))


class QuarantineTopic:
    """A topic of bad rows. Spans are offsets of the table's own group, committed in the rows' transaction."""

    def __init__(self, topic: str, identity: str, options: SourceOptions, table: Target) -> None:
        self.name = topic
        self._identity, self._options, self._table = f"{PREFIX}/{identity}", options, table

    def store(self, schema: pa.Schema | None) -> FileStore | None:
        # The table's own store; its commits do not name these files.
        return None if schema is None else self._table.store()

    def has(self, partitions: Sequence[TopicPartition]) -> Spans:
        with open_client(self._options) as client:
            offsets = committed_offsets(client, self._identity, partitions, require_stable=True)
        return {
            partition: Span(json.loads(committed.metadata)["begin"], committed.offset)
            for partition, committed in offsets.items()
            if committed.metadata
        }

    def commit(self, files: Sequence[NewFile], spans: Spans, had: Spans, replaced: Sequence[OffsetRange]) -> None:
        """Send the rows; those of ``replaced`` ranges are sent again, because a topic keeps what it has."""
        if not files:
            return
        store = self._table.store()
        offsets = {
            partition: Committed(span.end, -1, json.dumps({"begin": span.begin}))
            for partition, span in _joined(spans, had).items()
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
            with suppress(Exception):  # no commit names the file; the format's own clean-up would remove it too
                store.delete(file.path)


def _joined(spans: Spans, had: Spans) -> Spans:
    return {partition: had[partition].joined(span) if partition in had else span for partition, span in spans.items()}
