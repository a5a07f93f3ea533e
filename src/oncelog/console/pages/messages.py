"""Messages: the records of a partition with their transaction states, and one of them in full."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from oncelog.admin.transactions.partition_offsets import Bounds
from oncelog.base.ids import TopicName, TopicPartition
from oncelog.client.blocking.client import Client
from oncelog.console.downloads.selection import MOST_BYTES, MOST_RECORDS
from oncelog.console.page import Asked
from oncelog.console.query import BadQuery
from oncelog.console.records.decoding import FORMATS, FULL_BYTES, PREVIEW_BYTES, Decoder, decoded
from oncelog.console.records.large_json import LargeBytes
from oncelog.console.records.record_query import milliseconds_in, offset_in
from oncelog.console.records.record_states import StoredRecord, bounds_and_start, read_slice
from oncelog.console.records.record_turns import turn

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
    with turn():
        found = read_slice(client, where, start, count)
        rows = [row_of(topic, one, key_format, value_format, decoder) for one in found.records]
        found.records.clear()
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
    found = client.list_offsets({where: milliseconds_in("from", text)})[where].offset
    return bounds.end_offset if found < 0 else found


def row_of(
    topic: str, one: StoredRecord, key_format: str, value_format: str, decoder: Decoder, most: int = PREVIEW_BYTES
) -> dict[str, Any]:
    """A record as pages show it."""
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
    with turn():
        return _one(client, asked, where, offset)


def _one(client: Client, asked: Asked, where: TopicPartition, offset: int) -> Mapping[str, Any]:
    query = asked.query
    found = read_slice(client, where, offset, 1).records
    if not found or found[0].offset != offset:
        raise BadQuery(f"{where} has no record at offset {offset}: it was removed, compacted, or is yet to come")
    formats = query.choice("key_format", FORMATS), query.choice("value_format", FORMATS)
    raw = {}
    if asked.as_json:
        raw = {
            "key_base64": None if (key := found[0].key) is None else LargeBytes(key, is_text=False),
            "value_base64": None if (value := found[0].value) is None else LargeBytes(value, is_text=False),
        }
    return {
        "topic": where.topic,
        "partition": where.partition,
        "record": row_of(where.topic, found[0], *formats, Decoder(asked.decoding), FULL_BYTES),
        "formats": FORMATS,
        "chosen": formats,
        **raw,
    }
