"""A quarantine topic: bad rows with their bytes, where they were and why, exactly once beside the table's commit.

The rule: the rows and the id of their rename journal (metadata of an offset, committed for a group of the table's own)
are in one transaction. A process that finds the journal again fences the writer before it, reads that metadata with
require_stable, and sends the rows only if it names another journal. So the rows are in the topic once, whenever a
process died.

The topic need not take a row as it was: its time may be out of the topic's bounds, its value too large, its key
missing where the topic is compacted. Such rows are sent in a form that the topic takes. A
record has the row's bytes, and headers that say where the row was and why it is bad. Further headers tell each change:
``oncelog.timestamp`` has the time of the row where the record has another, ``oncelog.key`` is ``null`` where the record
has a key instead of none, and ``oncelog.cut`` names the parts that are cut. With the place in the source's log the
original can be read again as long as that log has it.
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
_USUAL_LIMIT: Final = 4 * MIB
"""Rows are cut to a quarter of this first, a topic's default, if the topic's own limit may not be read."""
_ATTEMPTS: Final = 20
HEADER: Final = "oncelog."
"""Before the names of our headers: ``topic``, ``partition``, ``offset``, ``reason``."""
_RECORD_BYTES: Final = 40
_HEADER_BYTES: Final = 10
_LONGEST_REASON: Final = 200

Headers = list[tuple[str, bytes | None]]


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
                raise QuarantineRejected(
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


@dataclass(frozen=True, slots=True)
class Form:
    """How records are made: of at most ``limit_bytes``; each in a batch of its own; with the time of sending; with a
    key, whatever the row had."""

    limit_bytes: int
    alone: bool = False
    time_of_sending: bool = False
    always_with_key: bool = False


def bad_row_records(rows: pa.RecordBatch, form: Form) -> Iterator[dict[str, Any]]:
    """The arguments of ``send`` for each row."""
    times: Any = rows.column(rows.schema.get_field_index("timestamp")).cast(pa.int64())
    others: Any = rows.drop_columns(["timestamp"])
    for row, micros in zip(others.to_pylist(), times.to_pylist(), strict=True):
        yield _record(row, None if micros is None else micros // 1000, form)


def _record(row: dict[str, Any], row_ms: int | None, form: Form) -> dict[str, Any]:
    own: Headers = [(header["key"], header["value"]) for header in row.get("headers") or ()]
    place: Headers = [(HEADER + name, str(row[name]).encode()) for name in ("topic", "partition", "offset", "reason")]
    told: Headers = []
    key: bytes | None = row["key"]
    time_ms = row_ms
    if form.time_of_sending or time_ms is None or time_ms < -1:
        time_ms = time.time_ns() // 1_000_000
        told.append((HEADER + "timestamp", b"unknown" if row_ms is None else b"%d" % row_ms))
    if key is None and form.always_with_key:
        key = f"{row['topic']}-{row['partition']}-{row['offset']}".encode()
        told.append((HEADER + "key", b"null"))
    value: bytes | None = row["value"]
    if _size(key, value, [*own, *place, *told]) > form.limit_bytes:
        key, value, own, place, told = _cut(key, value, own, place, told, form.limit_bytes)
    return {"value": value, "key": key, "headers": (*own, *place, *told), "timestamp_ms": time_ms}


def _cut(
    key: bytes | None, value: bytes | None, own: Headers, place: Headers, told: Headers, limit_bytes: int
) -> tuple[bytes | None, bytes | None, Headers, Headers, Headers]:
    """Parts of at most ``limit_bytes``: the value is cut first, then headers go, then key and reason are cut."""
    place = [(name, text and text[:_LONGEST_REASON]) for name, text in place]
    told = [*told, (HEADER + "cut", b"value,headers,key")]
    told += _facts("value", value)
    left = limit_bytes - _size(None, None, [*place, *told])
    cut = ["value"]
    if len(key or b"") + _size(None, None, own) > left // 2:
        own, cut = [], [*cut, "headers"]
    if len(key or b"") > left // 2:
        told += _facts("key", key)
        left -= _size(None, None, _facts("key", key))
        key, cut = (key or b"")[: max(0, left // 2)], [*cut, "key"]
    told = [(name, ",".join(cut).encode() if name == HEADER + "cut" else text) for name, text in told]
    left = limit_bytes - _size(key, None, [*own, *place, *told])
    return key, None if value is None else value[: max(0, left)], own, place, told


def _facts(name: str, content: bytes | None) -> Headers:
    """Length and digest of a part that is cut."""
    whole = content or b""
    digest = hashlib.sha256(whole).hexdigest().encode()
    return [(f"{HEADER}{name}.bytes", b"%d" % len(whole)), (f"{HEADER}{name}.sha256", digest)]


def _size(key: bytes | None, value: bytes | None, headers: Headers) -> int:
    """An upper bound of a record's size."""
    inside = sum(_HEADER_BYTES + len(name.encode()) + len(text or b"") for name, text in headers)
    return _RECORD_BYTES + len(key or b"") + len(value or b"") + inside
