"""Mode ``ledger``, for brokers without two-phase commit (Apache Kafka): a group's offset is the last epoch written.

A task has one transactional id and one group of the same name. It commits its own transaction: the rows, and with them
(TxnOffsetCommit) the epoch as an offset, with row count and checksum as metadata. A repeated task only compares. See
docs/spark-sink.md for the mode's limits.
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
from oncelog.spark.sink.row_router import coalesce
from oncelog.spark.sink.sink_client import open_client
from oncelog.spark.sink.task_writer import drain, send_all
from oncelog.spark.sink.two_phase.cluster_operations import ClusterOperations, ledger_entry
from oncelog.spark.sink.two_phase.errors import Behind
from oncelog.spark.sink.two_phase.protocol import ticket_id
from oncelog.spark.sink.two_phase.register import Attempt, RegisterState, Standing, standing

TIMEOUT_MS: Final = 15 * MINUTE_MS


def write_with_ledger(options: SinkOptions, attempt: Attempt, partition: str, batches: Iterable[pa.RecordBatch]) -> int:
    """Write and commit, unless the ledger has the epoch. Returns the number of rows written. Raises SinkError."""
    name = ticket_id(attempt.query, partition)
    digest = Digest()
    with open_client(options) as client:
        was_written = was_decided(client, options, attempt)
        settings = TransactionSettings(name, timeout_ms=options.transaction_timeout_ms or TIMEOUT_MS)
        producer = TransactionalBodyProducer(client, settings, options.producer)
        with producer:
            producer.initialize()
            # initialize() has fenced the earlier attempt and ended its transaction, so this entry is final.
            entry = ledger_entry(client, name)
            # Only one task logs the choice, and only for a new query.
            if entry is None and partition == "0":
                modes.log_choice(options.mode, Mode.LEDGER)
            tables = digest.of(coalesce(batches))
            if was_written or (entry is not None and entry.offset >= attempt.epoch):
                # Read the input anyway: the plan may have side effects.
                drain(tables)
                if entry is not None and not was_written:
                    # Another number or checksum of rows shows that the plan is not repeatable.
                    compare(entry, options, attempt, partition, digest)
                return 0
            first = next(tables, None)
            if first is None:
                return 0
            producer.begin()
            rows = send_all(client, options, producer, chain([first], tables))
            producer.flush()
            offsets = {_ledger_partition(options, first): Committed(attempt.epoch, metadata=str(digest))}
            producer.send_offsets(offsets, GroupMetadata(name))
            reach(options.points, "ledger-before-commit")
            producer.commit()
            reach(options.points, "ledger-after-commit")
            return rows


def was_decided(client: Client, options: SinkOptions, attempt: Attempt) -> bool:
    """True if the epoch was written in two phases before the mode changed. Raises SinkError if that commit is
    incomplete, or the mode was not changed deliberately."""
    with ClusterOperations(client, attempt.query) as cluster:
        register = cluster.register()
    state = standing(register, attempt)
    if register is None or state is Standing.DONE:
        return register is not None
    if state is Standing.BEHIND and (options.accept_loss is None or options.accept_loss < register.epoch):
        raise Behind(attempt.query, attempt.epoch, register.epoch)
    if options.mode is Mode.AUTO:
        raise SinkError(
            f"query {attempt.query} was written in two phases up to epoch {register.epoch}, but the cluster no longer "
            "has two-phase commit: set transaction.two.phase.commit.enable=true on the brokers again, or "
            "exactlyOnce=ledger"
        )
    if register.state is not RegisterState.DONE:
        raise SinkError(
            f"epoch {register.epoch} of query {attempt.query} was begun in two phases and is not complete: run it once "
            "with exactlyOnce=2pc before the query continues with the ledger"
        )
    return state is Standing.BEHIND


def _ledger_partition(options: SinkOptions, first: pa.Table) -> TopicPartition:
    # An existing partition under which the ledger's offset is committed.
    topic = options.topic
    if topic is None:
        column = next(name for name in first.column_names if name.lower() == "topic")
        topic = str(first.column(column)[0].as_py())
    return TopicPartition(TopicName(topic), 0)
