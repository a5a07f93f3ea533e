"""A quarantine topic: bad rows with their bytes, where they were and why, exactly once beside the table's commit.

The rule: the rows and the id of their rename journal (metadata of an offset, committed for a group of the table's own)
are in one transaction. A process that finds the journal again fences the writer before it, reads that metadata with
require_stable, and sends the rows only if it names another journal. So the rows are in the topic once, whenever a
process died.

The topic need not take a row as it was: its time may be out of the topic's bounds, its value too large, its key
missing where the topic is compacted. Such rows are sent in a form that the topic takes (``bad_row_records``).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import TopicName, TopicPartition
from oncelog.base.units import MIB
from oncelog.client.blocking import Client
from oncelog.client.blocking.transactions import TransactionalProducer
from oncelog.client.errors import BrokerRefused
from oncelog.client.machine.offsets import Committed, GroupMetadata
from oncelog.client.machine.producer import ProducerSettings
from oncelog.client.machine.transaction_values import TransactionSettings
from oncelog.client.programs.group import committed_offsets
from oncelog.spark.jobs.bad_row_records import Form, bad_row_records
from oncelog.spark.sink.task_writer import largest_batch
from oncelog.spark.source.options import SourceOptions
from oncelog.spark.source.plan.offset_planner import open_client
from oncelog.spark.table.directory import QuarantineRefused, QuarantineSender

PREFIX: Final = "oncelog-load"
_SMALLEST_LIMIT: Final = 1024
_USUAL_LIMIT: Final = 4 * MIB
"""Rows are cut to a quarter of this first, a topic's default, if the topic's own limit may not be read."""
_ATTEMPTS: Final = 20


def quarantine_sender(options: SourceOptions, table: Path) -> QuarantineSender:
    """The function by which a table sends the bad rows of a rename journal to the topic that the journal names."""

    def send_quarantined(extra: dict[str, Any]) -> None:
        described = json.loads((table / "_oncelog" / "table.json").read_text(encoding="utf-8"))
        identity = f"{PREFIX}/{described['id']}"
        noted = TopicPartition(TopicName(extra["topic"]), 0)
        with open_client(options) as client, bad_row_producer(client, identity, extra["topic"]) as producer:
            done = committed_offsets(client, identity, [noted], require_stable=True).get(noted)
            if done is not None and done.metadata == extra["id"]:
                return

            def send_offsets() -> None:
                producer.send_offsets({noted: Committed(0, -1, extra["id"])}, GroupMetadata(identity))

            def batches() -> Iterable[pa.RecordBatch]:
                with pq.ParquetFile(table / extra["rows"]) as rows:
                    yield from rows.iter_batches()

            send_bad_rows(client, producer, extra["topic"], batches, send_offsets)

    return send_quarantined


def bad_row_producer(client: Client, identity: str, topic: str) -> TransactionalProducer:
    """A producer for ``send_bad_rows``, after which no earlier one's transaction ends well. Makes the topic if it is
    missing and brokers do that."""
    client.topic(topic, create=True)
    settings = ProducerSettings()
    settings = replace(settings, batch_bytes=min(settings.batch_bytes, largest_batch(client, topic)))
    producer = TransactionalProducer(client, TransactionSettings(identity), settings)
    try:
        producer.initialize()
    except BaseException:
        producer.close()
        raise
    return producer


def send_bad_rows(
    client: Client,
    producer: TransactionalProducer,
    topic: str,
    batches: Callable[[], Iterable[pa.RecordBatch]],
    send_offsets: Callable[[], None],
) -> None:
    """Send each bad row in one transaction with what ``send_offsets`` sends; again in another form where the topic
    refuses the first. Raises QuarantineRefused if it refuses every form."""
    form = Form(largest_batch(client, topic))
    for _ in range(_ATTEMPTS):
        try:
            with producer.transaction():
                for batch in batches():
                    for record in bad_row_records(batch, form):
                        producer.send(topic, **record)
                        if form.alone:
                            producer.flush()
                send_offsets()
            return
        except BrokerRefused as error:
            other = _other_form(form, error.code)
            if other is None:
                raise
            if other == form:
                raise QuarantineRefused(
                    f"quarantine topic {topic!r} takes bad rows in no form ({error.reason}): change its configuration"
                ) from None
            form = other
    raise AssertionError("a form changes at most a dozen times")


def _other_form(form: Form, code: int) -> Form | None:
    """The form to try after a refusal, the same if there is none left; None if the rows are not the reason."""
    match code:
        case ErrorCode.INVALID_TIMESTAMP:
            return replace(form, time_of_sending=True)
        case ErrorCode.INVALID_RECORD:
            return replace(form, always_with_key=True)
        case ErrorCode.MESSAGE_TOO_LARGE | ErrorCode.RECORD_LIST_TOO_LARGE:
            if not form.alone:
                return replace(form, alone=True)
            return replace(form, limit_bytes=max(_SMALLEST_LIMIT, min(form.limit_bytes, _USUAL_LIMIT) // 4))
    return None
