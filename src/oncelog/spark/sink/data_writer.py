"""The writers that PySpark calls; they learn from Spark which query and task they write for.

Spark 4.0 to 4.3 calls ``streamWriter`` when a micro-batch is planned, and again, in another process, for its ``commit``
or ``abort``, so commit messages carry everything that a commit needs. The planned writer is pickled for the tasks: it
chooses its run when it is created and its mode when it is pickled, so that all tasks share both.
"""

from __future__ import annotations

import json
import logging
import secrets
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from oncelog.client.errors import ClientError
from oncelog.spark.session.errors import OptionError, SinkError, WriteRefused
from oncelog.spark.session.pickling import VersionedPickle
from oncelog.spark.session.versions import StreamArrowWriter
from oncelog.spark.sink.options import Mode, SinkOptions, check_schema, parse_sink_options
from oncelog.spark.sink.two_phase.register import JOB, ONE_WRITE, Attempt, Listed, Register, RegisterState
from oncelog.spark.sink.two_phase.register_records import encode

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

LOG: Final = logging.getLogger("oncelog.spark.sink")
_QUERY_PROPERTIES: Final = ("sql.streaming.queryId", "streaming.sql.queryId")
_BATCH_PROPERTY: Final = "streaming.sql.batchId"


@dataclass(frozen=True)
class SinkMessage(WriterCommitMessage):
    """A task's message to the driver. Without ``attempt`` there is nothing to decide; ``rows`` counts those
    received."""

    attempt: Attempt | None
    listed: Listed | None
    rows: int


class _Writer(VersionedPickle):
    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        self.options: SinkOptions = parse_sink_options(options)
        check_schema(schema, self.options.topic)
        self.run = secrets.token_hex(8)
        self.mode: Mode | None = None

    def __getstate__(self) -> dict[str, Any]:
        # Choose the mode before the writer is pickled, so that all tasks have the same one.
        if self.mode is None:
            from oncelog.spark.sink.modes import choose
            from oncelog.spark.sink.sink_client import open_client

            try:
                with open_client(self.options) as client:
                    self.mode = choose(client, self.options.mode)
            except ClientError as error:
                # PySpark hides every other error behind one about pickling.
                raise WriteRefused(str(error)) from error
        return self.__dict__

    def _write(self, batches: Iterable[pa.RecordBatch], attempt: Attempt | None, partition: str) -> SinkMessage:
        from oncelog.spark.sink import ledger, task_writer

        context, mode = TaskContext.get(), self.mode
        assert context is not None
        if mode is Mode.OFF:
            return SinkMessage(None, None, task_writer.write_plain(self.options, batches))
        if attempt is None or mode is None:
            raise SinkError(
                "this Spark does not tell its tasks the query and batch id, so rows cannot be written exactly once; "
                "exactlyOnce=off writes at least once"
            )
        if mode is Mode.LEDGER:
            return SinkMessage(None, None, ledger.write_with_ledger(self.options, attempt, partition, batches))
        place = task_writer.TaskPlace(partition, context.attemptNumber())
        return SinkMessage(attempt, *task_writer.write_two_phase(self.options, attempt, place, batches))


class SinkStreamWriter(_Writer, StreamArrowWriter):
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:  # type: ignore[override]  # PySpark's own
        context = TaskContext.get()
        assert context is not None
        # Query id and batch id reach a task only as undocumented local properties, whose names differ by version.
        query = next((value for name in _QUERY_PROPERTIES if (value := context.getLocalProperty(name))), None)
        epoch = context.getLocalProperty(_BATCH_PROPERTY)
        attempt = None if query is None or epoch is None else Attempt(query, int(epoch), self.run)
        return self._write(iterator, attempt, str(context.partitionId()))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - PySpark's name
        """Decide the epoch and make its rows visible. Repeating it for the same epoch changes nothing."""
        _commit(self.options, messages)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - PySpark's name
        """Abort the transactions in the messages; the next epoch's sweep handles others."""
        _abort(self.options, messages)


class SinkWriter(_Writer, DataSourceArrowWriter):
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:  # type: ignore[override]  # PySpark's own
        context = TaskContext.get()
        assert context is not None
        attempt, prefix = self._attempt()
        return self._write(iterator, attempt, f"{prefix}{context.partitionId()}")

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        if self.options.gather is not None:
            _leave_for_transaction(self.options.gather, messages)
            return
        _commit(self.options, messages, forget=self.options.job_id is None)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        if self.options.gather is None and self.mode is Mode.TWO_PHASE:
            _abort_attempt(self.options, self._attempt()[0])

    def _attempt(self) -> tuple[Attempt, str]:
        if self.options.member is not None:
            query, epoch, run, index = json.loads(self.options.member)
            return Attempt(query, epoch, run), f"{index}."
        job = self.options.job_id
        return Attempt(f"{JOB}{job}" if job is not None else f"{ONE_WRITE}{self.run}", 0, self.run), ""


def batch_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> SinkWriter:
    """The writer of ``df.write.format("oncelog")``. Raises OptionError."""
    if overwrite:
        raise OptionError("Save mode overwrite not allowed for Kafka. Use mode('append')")
    return SinkWriter(options, schema)


def stream_writer(options: Mapping[str, str], schema: StructType) -> SinkStreamWriter:
    """The writer of ``df.writeStream.format("oncelog")``. Raises OptionError."""
    if any(name.lower() == "jobid" for name in options):
        raise OptionError(
            "jobId is only for batch writes: omit it, because the checkpoint identifies a streaming query"
        )
    return SinkStreamWriter(options, schema)


def _with_attempt(messages: Iterable[WriterCommitMessage | None]) -> list[SinkMessage]:
    return [message for message in messages if isinstance(message, SinkMessage) and message.attempt is not None]


def _commit(options: SinkOptions, messages: Iterable[WriterCommitMessage | None], *, forget: bool = False) -> None:
    decided = _with_attempt(messages)
    listed = tuple(message.listed for message in decided if message.listed is not None)
    if not decided or decided[0].attempt is None:
        return
    from oncelog.spark.sink import epoch_commit

    rows = sum(message.rows for message in decided)
    epoch_commit.commit(options, decided[0].attempt, listed, rows=rows, forget=forget)


def _abort(options: SinkOptions, messages: Iterable[WriterCommitMessage | None]) -> None:
    decided = _with_attempt(messages)
    if decided and decided[0].attempt is not None and any(message.listed for message in decided):
        _abort_attempt(options, decided[0].attempt)


def _abort_attempt(options: SinkOptions, attempt: Attempt) -> None:
    from oncelog.spark.sink import epoch_commit

    epoch_commit.abort(options, attempt)


def _leave_for_transaction(directory: str, messages: Iterable[WriterCommitMessage | None]) -> None:
    """Write the transactions of a write to a file, for ``oncelog.spark.transaction`` to decide."""
    listed = tuple(message.listed for message in _with_attempt(messages) if message.listed is not None)
    if not Path(directory).is_dir():
        raise SinkError(
            "the transaction's process and Spark's driver are on different machines: write in foreachBatch, whose "
            "function runs beside the driver, or in a single write with jobId"
        )
    path = Path(directory) / f"{secrets.token_hex(8)}.json"
    part = path.with_suffix(".part")
    part.write_bytes(encode(Register(0, "", RegisterState.DECIDED, listed)))
    # A reader must not find half a file.
    part.rename(path)
