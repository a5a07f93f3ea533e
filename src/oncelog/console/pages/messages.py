"""Message pages: the records of a partition with their transaction states, and one record in full."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from oncelog.admin.transactions.partition_offsets import Bounds
from oncelog.base.ids import TopicName, TopicPartition
from oncelog.client.blocking.client import Client
from oncelog.client.machine.requests import offset_query
from oncelog.console.downloads.selection import MAX_BYTES, MAX_RECORDS
from oncelog.console.page import PageRequest
from oncelog.console.query import BadQuery
from oncelog.console.records.decoding import FORMATS, FULL_BYTES, PREVIEW_BYTES, Decoder, decoded, offload_text
from oncelog.console.records.large_json import StoredString
from oncelog.console.records.record_query import milliseconds_in, offset_in
from oncelog.console.records.record_states import StoredRecord, bounds_and_start, read_slice

COUNT: Final = 50
MAX_COUNT: Final = 500
MAX_HEADERS: Final = 50


def read(client: Client, page_request: PageRequest) -> Mapping[str, Any]:
    """Records from an offset, a time, the start, the end or the last stable offset; without a topic, the form."""
    query = page_request.query
    topic = query.text("topic")
    shown: dict[str, Any] = {
        "filter": {
            "topic": topic,
            "partition": query.number("partition", 0, 0, 2**31 - 1),
            "from": query.text("from"),
            "count": query.number("count", COUNT, 1, MAX_COUNT),
            "key_format": query.choice("key_format", FORMATS),
            "value_format": query.choice("value_format", FORMATS),
        },
        "formats": FORMATS,
        "most_records": MAX_RECORDS,
        "most_bytes": MAX_BYTES,
    }
    if not topic:
        return shown | {"slice": None, "partitions": 0}
    partitions = len(client.topic(topic).partitions)
    partition, count = TopicPartition(TopicName(topic), shown["filter"]["partition"]), shown["filter"]["count"]
    bounds, log_start = bounds_and_start(client, partition)
    start = start_of(client, query.text("from"), partition, bounds, log_start, count)
    key_format, value_format = shown["filter"]["key_format"], shown["filter"]["value_format"]
    decoder = Decoder(page_request.decoding)
    slice_ = read_slice(
        client, partition, start, count, lambda record: row_of(topic, record, key_format, value_format, decoder)
    )
    rows = [row | {"state": record.state} for record, row in zip(slice_.records, slice_.shown, strict=True)]
    return shown | {
        "partitions": partitions,
        "slice": {
            "records": rows,
            "start": slice_.start,
            "next_offset": slice_.next_offset,
            "before": max(slice_.log_start, slice_.start - count),
            "log_start": slice_.log_start,
            "last_stable_offset": slice_.bounds.last_stable_offset,
            "end_offset": slice_.bounds.end_offset,
        },
    }


def start_of(client: Client, text: str, partition: TopicPartition, bounds: Bounds, log_start: int, count: int) -> int:
    """The offset that ``from`` means: a number, ``first``, ``stable``, ``end`` (the last records), or a time in UTC."""
    text = text.strip()
    if text in ("", "end"):
        return bounds.end_offset - count
    if text == "first":
        return log_start
    if text == "stable":
        return bounds.last_stable_offset
    if (offset := offset_in(text)) is not None:
        return offset
    offset_at_time = client.list_offsets({partition: offset_query(milliseconds_in("from", text))})[partition].offset
    return bounds.end_offset if offset_at_time < 0 else offset_at_time


def row_of(
    topic: str, record: StoredRecord, key_format: str, value_format: str, decoder: Decoder, most: int = PREVIEW_BYTES
) -> dict[str, Any]:
    batch = record.batch
    return {
        "offset": record.offset,
        "timestamp_ms": record.timestamp_ms,
        "timestamp_type": "log append time" if record.is_append_time else "create time",
        "state": record.state,
        "note": record.note,
        "key": decoder.key(topic, record.key, record.headers, key_format, most),
        "value": decoder.value(topic, record.value, record.headers, value_format, most),
        "headers": [[name, decoded(value, "auto", most)] for name, value in record.headers[:MAX_HEADERS]],
        "more_headers": max(0, len(record.headers) - MAX_HEADERS),
        "size_bytes": len(record.key or b"") + len(record.value or b""),
        "producer_id": batch.producer_id if batch.has_producer_id else None,
        "producer_epoch": batch.producer_epoch if batch.has_producer_id else None,
        "sequence": record.sequence,
        "batch": {
            "base_offset": batch.base_offset,
            "last_offset": batch.last_offset,
            "records": batch.record_count,
            "size_bytes": batch.size_bytes,
            "compression": batch.codec.name.lower() if batch.attributes & 7 <= 4 else "unknown",
            "leader_epoch": batch.partition_leader_epoch,
        },
    }


def read_one(client: Client, page_request: PageRequest) -> Mapping[str, Any]:
    """One record in full; in JSON, its bytes in base64 as well."""
    query = page_request.query
    partition = TopicPartition(TopicName(query.needed("topic")), query.number("partition", 0, 0, 2**31 - 1))
    offset = query.number("offset", 0)
    formats = query.choice("key_format", FORMATS), query.choice("value_format", FORMATS)
    decoder = Decoder(page_request.decoding)

    def show(record: StoredRecord) -> tuple[dict[str, Any], dict[str, Any]]:
        row = row_of(partition.topic, record, *formats, decoder, FULL_BYTES)
        row |= {name: offload_text(row[name], page_request.as_json) for name in ("key", "value")}
        return row, {
            "key_base64": _base64(record.key),
            "value_base64": _base64(record.value),
        } if page_request.as_json else {}

    slice_ = read_slice(client, partition, offset, 1, show, before=offset + 1)
    if not slice_.records or slice_.records[0].offset != offset:
        raise BadQuery(
            f"{partition} has no record at offset {offset}: it was deleted or compacted, or is not written yet"
        )
    row, raw = slice_.shown[0]
    return {
        "topic": partition.topic,
        "partition": partition.partition,
        "record": row | {"state": slice_.records[0].state},
        "formats": FORMATS,
        "chosen": formats,
        **raw,
    }


def _base64(data: bytes | None) -> StoredString | None:
    return None if data is None else StoredString(data, is_text=False)
