"""Writes one task's rows, in each mode. Runs on executors and uses nothing of Spark's.

Input is read to its end even if nothing is written. A task without rows sends no request. A failing task aborts its
transaction; the sweep aborts that of a killed task.
"""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Final, NamedTuple

import pyarrow as pa

from oncelog.base.units import INT32_MAX
from oncelog.client.blocking import Client
from oncelog.client.errors import BrokerRefused, ClientError
from oncelog.client.machine.transaction_values import StoredTransaction, TransactionSettings
from oncelog.spark.sink import modes
from oncelog.spark.sink.body_producer import BodyProducer, IdempotentBodyProducer, TransactionalBodyProducer
from oncelog.spark.sink.fault_points import reach
from oncelog.spark.sink.options import Mode, SinkOptions
from oncelog.spark.sink.row_digest import Digest, compare
from oncelog.spark.sink.row_router import Router, TopicLimits, coalesce
from oncelog.spark.sink.sink_client import open_client
from oncelog.spark.sink.two_phase import protocol
from oncelog.spark.sink.two_phase.cluster_operations import ClusterOperations, ledger_entry
from oncelog.spark.sink.two_phase.errors import FencedDriver
from oncelog.spark.sink.two_phase.protocol import TaskAction, ticket_id
from oncelog.spark.sink.two_phase.register import ONE_WRITE, Attempt, Listed, Standing, standing

BEGIN_ATTEMPTS: Final = 100
_HEAD_START_S: Final = 0.05
# Size of a batch header, and what compression may add to incompressible data.
BATCH_OVERHEAD: Final = 128


@dataclass(frozen=True, slots=True)
class TaskPlace:
    """A task's ``partition`` as text, and its attempt number, which attempts of other stage attempts may share."""

    partition: str
    attempt: int

    @property
    def is_first(self) -> bool:
        """True for the task that begins an epoch while the others wait a moment."""
        return self.partition in ("0", "0.0") and self.attempt == 0


def write_plain(options: SinkOptions, batches: Iterable[pa.RecordBatch]) -> int:
    """Write at least once. Returns the number of rows."""
    tables = coalesce(batches)
    first = next(tables, None)
    if first is None:
        return 0
    with open_client(options) as client, IdempotentBodyProducer(client, options.producer) as producer:
        rows = send_all(client, options, producer, chain([first], tables))
        producer.flush()
        return rows


class TaskResult(NamedTuple):
    """The transaction that the decision must name, if any, and the number of rows received."""

    listed: Listed | None
    rows: int


def write_two_phase(
    options: SinkOptions, attempt: Attempt, place: TaskPlace, batches: Iterable[pa.RecordBatch]
) -> TaskResult:
    """Write the rows into a transaction and leave it open, unless the epoch was decided before."""
    tables = coalesce(batches)
    first = next(tables, None)
    if first is None:
        # A task without rows opens no connection.
        return TaskResult(None, 0)
    tables = chain([first], tables)
    with open_client(options) as client, ClusterOperations(client, attempt.query) as cluster:
        cluster.make_producer = lambda name: TransactionalBodyProducer(
            client, _transaction(options, attempt, name), options.producer
        )
        if place.is_first and cluster.register() is None:
            modes.log_choice(options.mode, Mode.TWO_PHASE)
        action: TaskAction | StoredTransaction = _begin(cluster, options, attempt, place)
        if action is TaskAction.WRITE:
            reach(options.points, "task-begun")
            action = cluster.run(protocol.claim(attempt, place.partition, options.accept_loss))
        match action:
            case TaskAction.COMPARE:
                return TaskResult(None, _compare(client, options, attempt, place, tables))
            case StoredTransaction():
                return _write(cluster, options, attempt, action, tables)
        # The plan may have side effects, so the input is read to its end.
        return TaskResult(None, drain(tables))


def _transaction(options: SinkOptions, attempt: Attempt, name: str) -> TransactionSettings:
    # Settings without a time-out. A write that cannot run again may set one, which must exceed the job's duration.
    if options.transaction_timeout_ms is not None and attempt.query.startswith(ONE_WRITE):
        return TransactionSettings(name, timeout_ms=options.transaction_timeout_ms)
    return TransactionSettings(name, two_phase=True)


def _write(
    cluster: ClusterOperations,
    options: SinkOptions,
    attempt: Attempt,
    stored: StoredTransaction,
    tables: Iterator[pa.Table],
) -> TaskResult:
    producer = cluster.claimed_producer(stored)
    assert isinstance(producer, TransactionalBodyProducer)
    producer.begin()
    try:
        rows = send_all(cluster.client, options, producer, tables)
        reach(options.points, "before-flush")
        producer.flush()
    except BaseException:
        with contextlib.suppress(ClientError):
            # A failed task can abort at once; the sweep would do it only with the next decision.
            producer.abort()
        raise
    reach(options.points, "after-flush")
    if not cluster.run(protocol.confirm(attempt, stored)):
        return TaskResult(None, rows)
    return TaskResult(Listed(stored, rows, producer.deliveries.all()), rows)


def _compare(
    client: Client, options: SinkOptions, attempt: Attempt, place: TaskPlace, tables: Iterator[pa.Table]
) -> int:
    # Compare rows that the ledger wrote before the query's mode changed. Returns the number of rows.
    digest = Digest()
    drain(digest.of(tables))
    recorded = ledger_entry(client, ticket_id(attempt.query, place.partition))
    if recorded is not None:
        compare(recorded, options, attempt, place.partition, digest)
    return digest.rows


def _begin(cluster: ClusterOperations, options: SinkOptions, attempt: Attempt, place: TaskPlace) -> TaskAction:
    # Begin the epoch. Tasks that begin at once fence each other, so one goes first and the others retry after random
    # pauses.
    if not place.is_first:
        # Tasks that begin at once fence each other; one goes first.
        until = time.monotonic() + _HEAD_START_S
        while time.monotonic() < until and standing(cluster.register(), attempt) is Standing.BEGIN:
            time.sleep(0.005)
    for number in range(BEGIN_ATTEMPTS):
        try:
            return cluster.run(protocol.begin(attempt, options.accept_loss, options.accept_duplicates))
        except FencedDriver:
            if number + 1 == BEGIN_ATTEMPTS:
                raise
            time.sleep(random.uniform(0.002, 0.02 + 0.01 * min(number, 20)))
    raise AssertionError("unreachable")


def send_all(client: Client, options: SinkOptions, producer: BodyProducer, tables: Iterator[pa.Table]) -> int:
    limits: dict[str, TopicLimits] = {}

    def limits_of(topic: str) -> TopicLimits:
        if topic not in limits:
            partitions = len(client.topic(topic, create=True).partitions)
            limits[topic] = TopicLimits(partitions, largest_batch(client, topic))
        return limits[topic]

    router = Router(options.topic, limits_of, options.producer)
    rows = 0
    for table in tables:
        for partition, partition_rows in router.route(table):
            rows += len(partition_rows)
            for body in router.encoded(partition, partition_rows):
                producer.send_body(partition, body)
    return rows


def largest_batch(client: Client, topic: str) -> int:
    """The topic's ``max.message.bytes`` minus batch overhead; unlimited if its configuration is not readable."""
    from oncelog.admin.configs import ResourceType, describe_configs

    with contextlib.suppress(BrokerRefused):
        for row in describe_configs(client, ResourceType.TOPIC, topic, ["max.message.bytes"]):
            if row.name == "max.message.bytes" and row.value is not None:
                return max(1, int(row.value) - BATCH_OVERHEAD)
    return INT32_MAX


def drain(tables: Iterable[pa.Table]) -> int:
    return sum(table.num_rows for table in tables)
