"""Messages: the records of a partition with their transaction states, and one of them in full."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from oncelog.admin.transactions.partition_offsets import Bounds
from oncelog.base.ids import TopicName, TopicPartition
from oncelog.client.blocking.client import Client
from oncelog.client.machine.requests import offset_query
from oncelog.console.downloads.selection import MOST_BYTES, MOST_RECORDS
from oncelog.console.page import Asked
from oncelog.console.query import BadQuery
from oncelog.console.records.decoding import FORMATS, FULL_BYTES, PREVIEW_BYTES, Decoder, decoded, put_away
from oncelog.console.records.large_json import Spooled
from oncelog.console.records.record_query import milliseconds_in, offset_in
from oncelog.console.records.record_states import StoredRecord, bounds_and_start, read_slice

COUNT: Final = 50
MOST: Final = 500
MOST_HEADERS: Final = 50


def read(client: Client, asked: Asked) -> Mapping[str, Any]:
    """Records from an offset, a time, the first, the end or the last stable offset on; without a topic the form."""
    query = asked.query
    topic = query.text("topic")
    shown: dict[str, Any] = {
        "filter": {
            "topic": topic,
            "partition": query.number("partition", 0, 0, 2**31 - 1),
            "from": query.text("from"),
            "count": query.number("count", COUNT, 1, MOST),
            "key_format": query.choice("key_format", FORMATS),
            "value_format": query.choice("value_format", FORMATS),
        },
        "formats": FORMATS,
        "most_records": MOST_RECORDS,
        "most_bytes": MOST_BYTES,
    }
    if not topic:
        return shown | {"slice": None, "partitions": 0}
    partitions = len(client.topic(topic).partitions)
    where, count = TopicPartition(TopicName(topic), shown["filter"]["partition"]), shown["filter"]["count"]
    bounds, log_start = bounds_and_start(client, where)
    start = start_of(client, query.text("from"), where, bounds, log_start, count)
    key_format, value_format = shown["filter"]["key_format"], shown["filter"]["value_format"]
    decoder = Decoder(asked.decoding)
    found = read_slice(client, where, start, count, lambda one: row_of(topic, one, key_format, value_format, decoder))
    rows = [row | {"state": one.state} for one, row in zip(found.records, found.shown, strict=True)]
    return shown | {
        "partitions": partitions,
        "slice": {
            "records": rows,
            "start": found.start,
            "next_offset": found.next_offset,
            "before": max(found.log_start, found.start - count),
            "log_start": found.log_start,
            "last_stable_offset": found.bounds.last_stable_offset,
            "end_offset": found.bounds.end_offset,
        },
    }


def start_of(client: Client, text: str, where: TopicPartition, bounds: Bounds, log_start: int, count: int) -> int:
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
    found = client.list_offsets({where: offset_query(milliseconds_in("from", text))})[where].offset
    return bounds.end_offset if found < 0 else found


def row_of(
    topic: str, one: StoredRecord, key_format: str, value_format: str, decoder: Decoder, most: int = PREVIEW_BYTES
) -> dict[str, Any]:
    batch = one.batch
    return {
        "offset": one.offset,
        "timestamp_ms": one.timestamp_ms,
        "timestamp_type": "log append time" if one.is_append_time else "create time",
        "state": one.state,
        "note": one.note,
        "key": decoder.key(topic, one.key, one.headers, key_format, most),
        "value": decoder.value(topic, one.value, one.headers, value_format, most),
        "headers": [[name, decoded(value, "auto", most)] for name, value in one.headers[:MOST_HEADERS]],
        "more_headers": max(0, len(one.headers) - MOST_HEADERS),
        "size_bytes": len(one.key or b"") + len(one.value or b""),
        "producer_id": batch.producer_id if batch.has_producer_id else None,
        "producer_epoch": batch.producer_epoch if batch.has_producer_id else None,
        "sequence": one.sequence,
        "batch": {
            "base_offset": batch.base_offset,
            "last_offset": batch.last_offset,
            "records": batch.record_count,
            "size_bytes": batch.size_bytes,
            "compression": batch.codec.name.lower() if batch.attributes & 7 <= 4 else "unknown",
            "leader_epoch": batch.partition_leader_epoch,
        },
    }


def read_one(client: Client, asked: Asked) -> Mapping[str, Any]:
    """One record in full; as JSON with its bytes in base64 too."""
    query = asked.query
    where = TopicPartition(TopicName(query.needed("topic")), query.number("partition", 0, 0, 2**31 - 1))
    offset = query.number("offset", 0)
    formats = query.choice("key_format", FORMATS), query.choice("value_format", FORMATS)
    decoder = Decoder(asked.decoding)

    def show(one: StoredRecord) -> tuple[dict[str, Any], dict[str, Any]]:
        row = row_of(where.topic, one, *formats, decoder, FULL_BYTES)
        row |= {name: put_away(row[name], asked.as_json) for name in ("key", "value")}
        return row, {"key_base64": _base64(one.key), "value_base64": _base64(one.value)} if asked.as_json else {}

    found = read_slice(client, where, offset, 1, show, before=offset + 1)
    if not found.records or found.records[0].offset != offset:
        raise BadQuery(f"{where} has no record at offset {offset}: it was removed, compacted, or is yet to come")
    row, raw = found.shown[0]
    return {
        "topic": where.topic,
        "partition": where.partition,
        "record": row | {"state": found.records[0].state},
        "formats": FORMATS,
        "chosen": formats,
        **raw,
    }


def _base64(data: bytes | None) -> Spooled | None:
    return None if data is None else Spooled(data, is_text=False)
