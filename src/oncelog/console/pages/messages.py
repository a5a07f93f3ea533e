"""Messages: the records of a partition with their transaction states, one of them in full, and searches through all."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

from oncelog.admin.transactions.partition_offsets import Bounds
from oncelog.base.ids import TopicName, TopicPartition
from oncelog.client.blocking.client import EARLIEST, LATEST, Client
from oncelog.client.errors import ClientError
from oncelog.console.decoding import FORMATS, FULL_BYTES, PREVIEW_BYTES, decoded
from oncelog.console.page import Asked, Page
from oncelog.console.query import BadQuery, Query
from oncelog.console.record_states import StoredRecord, bounds_and_start, read_slice
from oncelog.console.search import PLACES, Hit, Progress, Wanted, search

COUNT: Final = 50
MOST: Final = 500
MOST_HEADERS: Final = 50
JSON_SEARCH_MS: Final = 6000
"""A search for JSON ends after this time and says where it goes on."""


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
    }
    if not topic:
        return shown | {"slice": None, "partitions": 0}
    partitions = len(client.topic(topic).partitions)
    where, count = TopicPartition(TopicName(topic), shown["filter"]["partition"]), shown["filter"]["count"]
    bounds, log_start = bounds_and_start(client, where)
    found = read_slice(client, where, start_of(client, query.text("from"), where, bounds, log_start, count), count)
    key_format, value_format = shown["filter"]["key_format"], shown["filter"]["value_format"]
    return shown | {
        "partitions": partitions,
        "slice": {
            "records": [row_of(one, key_format, value_format) for one in found.records],
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
    if text.isascii() and text.isdigit() and len(text) < 19:
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise BadQuery(
            f"from={text!r} is no offset, no time (2026-11-22T10:43), and none of first, stable, end"
        ) from None
    moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment
    found = client.list_offsets({where: int(moment.timestamp() * 1000)})[where].offset
    return bounds.end_offset if found < 0 else found


def row_of(one: StoredRecord, key_format: str, value_format: str, most: int = PREVIEW_BYTES) -> dict[str, Any]:
    """A record as pages show it."""
    batch = one.batch
    return {
        "offset": one.offset,
        "timestamp_ms": one.timestamp_ms,
        "timestamp_type": "log append time" if one.is_append_time else "create time",
        "state": one.state,
        "note": one.note,
        "key": decoded(one.key, key_format, most),
        "value": decoded(one.value, value_format, most),
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
    found = read_slice(client, where, offset, 1).records
    if not found or found[0].offset != offset:
        raise BadQuery(f"{where} has no record at offset {offset}: it was removed, compacted, or is yet to come")
    formats = query.choice("key_format", FORMATS), query.choice("value_format", FORMATS)
    raw = {}
    if asked.as_json:
        raw = {
            "key_base64": None if (key := found[0].key) is None else base64.b64encode(key).decode(),
            "value_base64": None if (value := found[0].value) is None else base64.b64encode(value).decode(),
        }
    return {
        "topic": where.topic,
        "partition": where.partition,
        "record": row_of(found[0], *formats, FULL_BYTES),
        "formats": FORMATS,
        "chosen": formats,
        **raw,
    }


def read_search(client: Client, asked: Asked) -> Mapping[str, Any]:
    """The form and the place of a search; as JSON the search itself, for some seconds."""
    query = asked.query
    shown = {
        "filter": {
            "topic": query.text("topic"),
            "q": query.text("q"),
            "place": query.choice("place", PLACES),
            "partition": query.optional_number("partition", 0, 2**31 - 1),
            "from": query.text("from"),
        },
        "places": PLACES,
    }
    if not asked.as_json:
        return shown
    wanted, positions, until = search_of(client, query)
    deadline = client.system.now_ms() + JSON_SEARCH_MS
    hits: list[dict[str, Any]] = []
    progress = None
    for one in search(client, wanted, positions, until, lambda: client.system.now_ms() >= deadline):
        if isinstance(one, Progress):
            progress = one
        else:
            hits.append(hit_of(one))
    return shown | {"hits": hits, "progress": None if progress is None else progress_of(progress)}


def search_of(client: Client, query: Query) -> tuple[Wanted, dict[TopicPartition, int], dict[TopicPartition, int]]:
    """What an address searches for, from where, and up to where: the ends of this moment."""
    needle = query.needed("q").encode()
    topic, partition = query.needed("topic"), query.optional_number("partition", 0, 2**31 - 1)
    there = client.topic(topic).partitions
    if partition is not None and partition not in there:
        raise BadQuery(f"topic {topic!r} has {len(there)} partitions, and no partition {partition}")
    chosen = [TopicPartition(TopicName(topic), one) for one in there if partition in (None, one)]
    if any(there[one.partition].leader < 0 for one in chosen):
        raise ClientError("a partition has no leader: not all of the topic can be read")
    until = {one: found.offset for one, found in client.list_offsets(dict.fromkeys(chosen, LATEST)).items()}
    positions = {one: found.offset for one, found in client.list_offsets(dict.fromkeys(chosen, EARLIEST)).items()}
    start = query.optional_number("from")
    if start is not None and len(chosen) == 1:
        positions = {chosen[0]: max(start, positions[chosen[0]])}
    return Wanted(needle, query.choice("place", PLACES)), positions, until


def hit_of(hit: Hit) -> dict[str, Any]:
    """A hit as pages show it."""
    record = hit.record
    return {
        "topic": hit.where.topic,
        "partition": hit.where.partition,
        "offset": record.offset,
        "timestamp_ms": record.timestamp,
        "is_transactional": hit.is_transactional,
        "key": decoded(record.key, most=300),
        "value": decoded(record.value, most=300),
        "headers": [[name, decoded(value, most=100)] for name, value in record.headers[:10]],
    }


def progress_of(progress: Progress) -> dict[str, Any]:
    """How far a search is, as pages show it."""
    return {
        "done": progress.done,
        "total": progress.total,
        "hits": progress.hits,
        "complete": progress.complete,
        "next": {str(where): offset for where, offset in sorted(progress.positions.items())},
        "unreadable": progress.unreadable,
    }


def read_tail(client: Client, asked: Asked) -> Mapping[str, Any]:
    """The page of a live tail; as JSON the offsets it would begin at."""
    topic = asked.query.needed("topic")
    there = client.topic(topic).partitions
    chosen = [TopicPartition(TopicName(topic), one) for one, found in there.items() if found.leader >= 0]
    ends = client.list_offsets(dict.fromkeys(chosen, LATEST))
    return {"topic": topic, "ends": {str(one): found.offset for one, found in sorted(ends.items())}}


MESSAGES: Final = Page("/messages", "Messages", read)
MESSAGE: Final = Page("/messages/one", "Message", read_one)
SEARCH: Final = Page("/messages/search", "Search", read_search)
TAIL: Final = Page("/messages/tail", "Live tail", read_tail)
