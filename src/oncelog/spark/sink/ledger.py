"""Mode ``ledger``, for brokers without two-phase commit (Apache Kafka): what was written stands in a group's offsets.

A task has one transactional id and one group, both ``oncelog-sink/<query id>/<partition>``, and commits its own
transaction: rows, and with them (TxnOffsetCommit) the epoch as an offset, row count and checksum as its metadata. A
task that comes again takes the id (which fences the attempt before and ends what it left), reads the offset with
``require_stable``, and where the epoch is there already writes nothing, but compares.

Not promised, and said in the documentation: that an epoch's rows become visible at once; plans that give other rows the
second time, or another number of tasks (the first is noticed, by row count and checksum); queries that stood still for
longer than the broker keeps the offsets of an empty group (``offsets.retention.minutes``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any, Final

import pyarrow as pa
from crc32c import crc32c

from oncelog.base.ids import TopicName, TopicPartition
from oncelog.client.blocking import Client
from oncelog.client.blocking.offsets import committed_offsets
from oncelog.client.machine.offsets import Committed, GroupMetadata
from oncelog.client.machine.transaction_values import TransactionSettings
from oncelog.spark.sink import modes
from oncelog.spark.sink.errors import SinkError
from oncelog.spark.sink.options import Mode, SinkOptions
from oncelog.spark.sink.points import reach
from oncelog.spark.sink.producing import TransactionalBodies
from oncelog.spark.sink.protocol import ticket_id
from oncelog.spark.sink.register import Attempt
from oncelog.spark.sink.rows import gathered
from oncelog.spark.sink.tasks import open_client, send_all

_MASK: Final = (1 << 64) - 1
_ODD: Final = 0x9E3779B97F4A7C15


class Digest:
    """Row count and a checksum of keys and values that does not depend on their order."""

    def __init__(self) -> None:
        self.rows = 0
        self.checksum = 0

    def add(self, table: pa.Table) -> None:
        """Take in some rows."""
        columns: dict[str, Any] = {name.lower(): table.column(name) for name in table.column_names}
        values = columns["value"].cast(pa.binary()).to_pylist()
        keys = columns["key"].cast(pa.binary()).to_pylist() if "key" in columns else [None] * len(values)
        total = 0
        for key, value in zip(keys, values, strict=True):
            crc = crc32c(value or b"", crc32c(key or b"", len(key) + 1 if key is not None else 0))
            total += (crc + (value is not None)) * (_ODD + 2 * len(value or b""))
        self.rows += len(values)
        self.checksum = (self.checksum + total) & _MASK

    def of(self, tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
        """The tables as they are, taken in."""
        for table in tables:
            self.add(table)
            yield table

    def __str__(self) -> str:
        return f"rows={self.rows} checksum={self.checksum:016x}"


def write_with_ledger(options: SinkOptions, attempt: Attempt, partition: str, batches: Iterable[pa.RecordBatch]) -> int:
    """Write and commit, unless the ledger says that was done. The number of rows written. Raises SinkError."""
    name = ticket_id(attempt.query, partition)
    digest = Digest()
    with open_client(options) as client:
        settings = TransactionSettings(name, timeout_ms=options.transaction_timeout_ms)
        producer = TransactionalBodies(client, settings, options.producer)
        with producer:
            producer.initialize()
            known = _entry(client, name)
            if known is None and partition == "0":
                modes.say(options.mode, Mode.LEDGER)
            tables = digest.of(gathered(batches))
            if known is not None and known.offset >= attempt.epoch:
                for _ in tables:
                    pass
                _compare(known, attempt.epoch, partition, digest)
                return 0
            first = next(tables, None)
            if first is None:
                return 0
            producer.begin()
            rows = send_all(client, options, producer, chain([first], tables))
            producer.flush()
            entry = {_place(options, first): Committed(attempt.epoch, metadata=str(digest))}
            producer.send_offsets(entry, GroupMetadata(name))
            reach(options.points, "ledger-before-commit")
            producer.commit()
            reach(options.points, "ledger-after-commit")
            return rows


def _entry(client: Client, group: str) -> Committed | None:
    entries = committed_offsets(client, group, require_stable=True).values()
    return max(entries, key=lambda one: one.offset, default=None)


def _place(options: SinkOptions, first: pa.Table) -> TopicPartition:
    """Under which partition the ledger has its entry: it has to exist."""
    topic = options.topic
    if topic is None:
        column = next(name for name in first.column_names if name.lower() == "topic")
        topic = str(first.column(column)[0].as_py())
    return TopicPartition(TopicName(topic), 0)


def _compare(known: Committed, epoch: int, partition: str, digest: Digest) -> None:
    if known.offset == epoch and known.metadata != str(digest):
        raise SinkError(
            f"epoch {epoch}, task {partition}: {known.metadata} were written before, now it has {digest}. The plan "
            "gives other rows (or another number of tasks) when it runs again; without two-phase commit that cannot be "
            "mended"
        )
