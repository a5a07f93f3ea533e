"""A quarantine topic: bad rows with their bytes, their place and the reason, exactly once with the table's commit.

One transaction has the rows and, as metadata of an offset committed for the table's own group, the id of their rename
journal. The topic thus has them once, whenever a process died (ADR 0005).

A row that the topic rejects is sent in another form. Headers (``oncelog.timestamp``, ``oncelog.key``, ``oncelog.cut``)
tell what was changed (docs/jobs.md, Bad rows).
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
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
from oncelog.spark.sink.task_writer import largest_batch
from oncelog.spark.source.options import SourceOptions
from oncelog.spark.source.plan.offset_planner import open_client
from oncelog.spark.table.directory import QuarantineRejected, QuarantineSender

PREFIX: Final = "oncelog-load"
_SMALLEST_LIMIT: Final = 1024
# A topic's default limit. Rows are first cut to a quarter of it if the topic's own limit may not be read.
_USUAL_LIMIT: Final = 4 * MIB
_ATTEMPTS: Final = 20
# Prefix of oncelog's headers: ``topic``, ``partition``, ``offset``, ``reason``.
HEADER: Final = "oncelog."
_RECORD_BYTES: Final = 40
_HEADER_BYTES: Final = 10
_MAX_REASON_BYTES: Final = 200

Headers = list[tuple[str, bytes | None]]


def quarantine_sender(options: SourceOptions, table: Path) -> QuarantineSender:
    """The function with which a table sends a rename journal's bad rows to the topic named there."""

    def send_quarantined(extra: dict[str, Any]) -> None:
        described = json.loads((table / "_oncelog" / "table.json").read_text(encoding="utf-8"))
        identity = f"{PREFIX}/{described['id']}"
        marker = TopicPartition(TopicName(extra["topic"]), 0)
        with open_client(options) as client, bad_row_producer(client, identity, extra["topic"]) as producer:
            # The new producer has fenced the earlier writer, so its transaction is either committed or aborted here.
            done = committed_offsets(client, identity, [marker], require_stable=True).get(marker)
            # The metadata names this journal: an earlier process has already sent these rows.
            if done is not None and done.metadata == extra["id"]:
                return

            def send_offsets() -> None:
                producer.send_offsets({marker: Committed(0, -1, extra["id"])}, GroupMetadata(identity))

            def batches() -> Iterable[pa.RecordBatch]:
                with pq.ParquetFile(table / extra["rows"]) as rows:
                    yield from rows.iter_batches()

            send_bad_rows(client, producer, extra["topic"], batches, send_offsets)

    return send_quarantined


def bad_row_producer(client: Client, identity: str, topic: str) -> TransactionalProducer:
    """A producer for ``send_bad_rows`` that fences earlier ones. Creates a missing topic if the brokers allow it."""
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
    """Send all bad rows and the result of ``send_offsets`` in one transaction, in other forms if the topic rejects it.

    Raises QuarantineRejected if the topic rejects every form.
    """
    form = RecordForm(largest_batch(client, topic))
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
            next_form = _other_form(form, error.code)
            if next_form is None:
                raise
            if next_form == form:
                raise QuarantineRejected(
                    f"quarantine topic {topic!r} rejects bad rows in every form ({error.reason}): change its settings"
                ) from None
            form = next_form
    raise AssertionError("a form changes at most a dozen times")


def _other_form(form: RecordForm, code: int) -> RecordForm | None:
    """The form to try after an error; ``form`` itself if none is left; None if the rows are not the cause."""
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


@dataclass(frozen=True, slots=True)
class RecordForm:
    """How to build records: at most ``limit_bytes``; ``alone`` in their batch; with the time of sending; with a key
    even if the row has none."""

    limit_bytes: int
    alone: bool = False
    time_of_sending: bool = False
    always_with_key: bool = False


def bad_row_records(rows: pa.RecordBatch, form: RecordForm) -> Iterator[dict[str, Any]]:
    times: Any = rows.column(rows.schema.get_field_index("timestamp")).cast(pa.int64())
    columns: Any = rows.drop_columns(["timestamp"])
    for row, micros in zip(columns.to_pylist(), times.to_pylist(), strict=True):
        yield _record(row, None if micros is None else micros // 1000, form)


def _record(row: dict[str, Any], row_ms: int | None, form: RecordForm) -> dict[str, Any]:
    row_headers: Headers = [(header["key"], header["value"]) for header in row.get("headers") or ()]
    place_headers: Headers = [
        (HEADER + name, str(row[name]).encode()) for name in ("topic", "partition", "offset", "reason")
    ]
    changes: Headers = []
    key: bytes | None = row["key"]
    time_ms = row_ms
    if form.time_of_sending or time_ms is None or time_ms < -1:
        time_ms = time.time_ns() // 1_000_000
        # The record has another time than the row.
        changes.append((HEADER + "timestamp", b"unknown" if row_ms is None else b"%d" % row_ms))
    if key is None and form.always_with_key:
        key = f"{row['topic']}-{row['partition']}-{row['offset']}".encode()
        # The record has a key although the row has none.
        changes.append((HEADER + "key", b"null"))
    value: bytes | None = row["value"]
    if _size(key, value, [*row_headers, *place_headers, *changes]) > form.limit_bytes:
        key, value, row_headers, place_headers, changes = _cut(
            key, value, row_headers, place_headers, changes, form.limit_bytes
        )
    return {"value": value, "key": key, "headers": (*row_headers, *place_headers, *changes), "timestamp_ms": time_ms}


def _cut(
    key: bytes | None,
    value: bytes | None,
    row_headers: Headers,
    place_headers: Headers,
    changes: Headers,
    limit_bytes: int,
) -> tuple[bytes | None, bytes | None, Headers, Headers, Headers]:
    """Cut a record to ``limit_bytes``: first the value, then headers are dropped, then key and reason are cut."""
    place_headers = [(name, text and text[:_MAX_REASON_BYTES]) for name, text in place_headers]
    # Reserve room for the longest value; the parts really cut are filled in below.
    changes = [*changes, (HEADER + "cut", b"value,headers,key")]
    changes += _describe_cut("value", value)
    remaining = limit_bytes - _size(None, None, [*place_headers, *changes])
    cut_parts = ["value"]
    if len(key or b"") + _size(None, None, row_headers) > remaining // 2:
        row_headers, cut_parts = [], [*cut_parts, "headers"]
    if len(key or b"") > remaining // 2:
        changes += _describe_cut("key", key)
        remaining -= _size(None, None, _describe_cut("key", key))
        key, cut_parts = (key or b"")[: max(0, remaining // 2)], [*cut_parts, "key"]
    changes = [(name, ",".join(cut_parts).encode() if name == HEADER + "cut" else text) for name, text in changes]
    remaining = limit_bytes - _size(key, None, [*row_headers, *place_headers, *changes])
    return key, None if value is None else value[: max(0, remaining)], row_headers, place_headers, changes


def _describe_cut(name: str, content: bytes | None) -> Headers:
    whole = content or b""
    digest = hashlib.sha256(whole).hexdigest().encode()
    return [(f"{HEADER}{name}.bytes", b"%d" % len(whole)), (f"{HEADER}{name}.sha256", digest)]


def _size(key: bytes | None, value: bytes | None, headers: Headers) -> int:
    header_bytes = sum(_HEADER_BYTES + len(name.encode()) + len(text or b"") for name, text in headers)
    return _RECORD_BYTES + len(key or b"") + len(value or b"") + header_bytes
