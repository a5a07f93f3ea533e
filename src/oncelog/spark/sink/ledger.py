"""Mode ``ledger``, for brokers without two-phase commit (Apache Kafka): a group's offset names the last epoch written.

A task has one transactional id and one group, both ``oncelog-sink/<query id>/<partition>``, and commits its own
transaction: rows, and with them (TxnOffsetCommit) the epoch as an offset, row count and checksum as its metadata. A
task that comes again takes the id (which fences the attempt before and ends what it left), reads the offset with
``require_stable``, and where the epoch is there already writes nothing, but compares.

Not promised, and said in the documentation: that an epoch's rows become visible at once; plans that give other rows the
second time, or another number of tasks (the first is noticed, by row count and checksum); queries that stood still for
longer than the broker keeps the offsets of an empty group (``offsets.retention.minutes``).
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from typing import Final

import pyarrow as pa

from oncelog.base.ids import TopicName, TopicPartition
from oncelog.base.units import MINUTE_MS
from oncelog.client.blocking import Client
from oncelog.client.machine.offsets import Committed, GroupMetadata
from oncelog.client.machine.transaction_values import TransactionSettings
from oncelog.spark.session.errors import SinkError
from oncelog.spark.sink import modes
from oncelog.spark.sink.body_producer import TransactionalBodyProducer
from oncelog.spark.sink.fault_points import reach
from oncelog.spark.sink.options import Mode, SinkOptions
from oncelog.spark.sink.row_digest import Digest, compare
from oncelog.spark.sink.row_router import coalesced
from oncelog.spark.sink.sink_client import open_client
from oncelog.spark.sink.task_writer import drain, send_all
from oncelog.spark.sink.two_phase.cluster_operations import ClusterOperations, ledger_entry
from oncelog.spark.sink.two_phase.errors import Behind
from oncelog.spark.sink.two_phase.protocol import ticket_id
from oncelog.spark.sink.two_phase.register import Attempt, Standing, State, standing

TIMEOUT_MS: Final = 15 * MINUTE_MS


def write_with_ledger(options: SinkOptions, attempt: Attempt, partition: str, batches: Iterable[pa.RecordBatch]) -> int:
    """Write and commit, unless the ledger has the epoch. The number of rows written. Raises SinkError."""
    name = ticket_id(attempt.query, partition)
    digest = Digest()
    with open_client(options) as client:
        over = was_decided(client, options, attempt)
        settings = TransactionSettings(name, timeout_ms=options.transaction_timeout_ms or TIMEOUT_MS)
        producer = TransactionalBodyProducer(client, settings, options.producer)
        with producer:
            producer.initialize()
            known = ledger_entry(client, name)
            if known is None and partition == "0":
                modes.log_choice(options.mode, Mode.LEDGER)
            tables = digest.of(coalesced(batches))
            if over or (known is not None and known.offset >= attempt.epoch):
                drain(tables)
                if known is not None and not over:
                    compare(known, options, attempt, partition, digest)
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


def was_decided(client: Client, options: SinkOptions, attempt: Attempt) -> bool:
    """True if the epoch was written in two phases, before the query's mode was changed. Raises SinkError if that commit
    is not over, or the change was not asked for."""
    with ClusterOperations(client, attempt.query) as cluster:
        register = cluster.register()
    where = standing(register, attempt)
    if register is None or where is Standing.DONE:
        return register is not None
    if where is Standing.BEHIND and (options.accept_loss is None or options.accept_loss < register.epoch):
        raise Behind(attempt.query, attempt.epoch, register.epoch)
    if options.mode is Mode.AUTO:
        raise SinkError(
            f"query {attempt.query} was written in two phases up to epoch {register.epoch}, but the cluster "
            "has no two-phase commit now: set transaction.two.phase.commit.enable=true on the brokers again, or "
            "exactlyOnce=ledger"
        )
    if register.state is not State.DONE:
        raise SinkError(
            f"epoch {register.epoch} of query {attempt.query} was begun in two phases and is not over: run it once "
            "with exactlyOnce=2pc before it goes on with the ledger"
        )
    return where is Standing.BEHIND


def _place(options: SinkOptions, first: pa.Table) -> TopicPartition:
    """The partition under which the ledger's offset is committed: one that exists."""
    topic = options.topic
    if topic is None:
        column = next(name for name in first.column_names if name.lower() == "topic")
        topic = str(first.column(column)[0].as_py())
    return TopicPartition(TopicName(topic), 0)
