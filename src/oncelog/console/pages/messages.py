"""Message pages: the records of a topic with their transaction states, and one record in full."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from oncelog.base.ids import TopicName, TopicPartition
from oncelog.client.blocking.client import Client
from oncelog.console.downloads.selection import COMMITTED_ONLY as COMMITTED_DOWNLOAD
from oncelog.console.downloads.selection import EVERYTHING, MAX_BYTES, MAX_RECORDS
from oncelog.console.page import PageRequest
from oncelog.console.query import BadQuery, Query
from oncelog.console.records.decoding import FORMATS, FULL_BYTES, PREVIEW_BYTES, Decoder, decoded, offload_text
from oncelog.console.records.large_json import StoredString
from oncelog.console.records.merged_records import (
    READ_BYTES,
    TIME_MS,
    ListedRecord,
    MergedRecords,
    Show,
    merged_records,
)
from oncelog.console.records.record_filter import PLACES, RecordFilter
from oncelog.console.records.record_query import (
    COMMITTED_ONLY,
    FILTERS,
    NEEDLE_FORMATS,
    STATES,
    filter_of,
    offset_in,
    positions_of,
    positions_text,
)
from oncelog.console.records.record_states import MARKER, PLAIN, StoredRecord
from oncelog.console.records.windows import END, FIRST, STABLE, Windows, windows_of

COUNT: Final = 50
MAX_COUNT: Final = 500
MAX_HEADERS: Final = 50
NEWEST: Final = "newest"
OLDEST: Final = "oldest"
FILTER_CHOICES: Final = {
    "places": PLACES,
    "needle_formats": NEEDLE_FORMATS,
    "states": (*STATES,),
    "formats": FORMATS,
}
SELECTED: Final = ("topic", "partition", "from", "to", "group", "zone", *FILTERS, "key_format", "value_format", "count")


def read(client: Client, page_request: PageRequest) -> Mapping[str, Any]:
    """Records of all partitions or one, the newest first unless the address says where to begin; without a topic, the
    form."""
    query = page_request.query
    if query.text("from").strip() == END:
        query = Query(query.values | {"from": ""})  # The last records are those that come first.
    selected = filter_fields(query)
    shown: dict[str, Any] = {
        "filter": selected | {"order": query.choice("order", ("", NEWEST, OLDEST))},
        "choices": FILTER_CHOICES,
        "most_records": MAX_RECORDS,
        "most_bytes": MAX_BYTES,
    }
    if not selected["topic"]:
        return shown | {"slice": None, "partitions": 0}
    windows, record_filter = windows_of(client, query), filter_of(query)
    is_newest = is_newest_first(query)
    windows.narrow_to_state(query.text("state"))
    whole = replace(windows, start=dict(windows.start), until=dict(windows.until))
    windows.narrow(**{"until" if is_newest else "start": positions_of(query, [*windows.start])})
    decoder = Decoder(page_request.decoding, registry=page_request.registry)

    def show(partition: TopicPartition, record: StoredRecord) -> dict[str, Any]:
        return row_of(partition, record, selected["key_format"], selected["value_format"], decoder)

    merged = merged_records(client, windows, record_filter, selected["count"], show, newest=is_newest)
    partitions = len(client.topic(selected["topic"]).partitions)
    is_single = partitions == 1 or selected["partition"] is not None
    slice_ = _slice(merged, windows, whole, is_newest, is_single)
    return shown | {
        "partitions": partitions,
        "slice": slice_,
        "has": _columns(slice_["records"], is_single),
        "limits": {"read_bytes": READ_BYTES, "time_ms": TIME_MS},
        "is_filtered": bool(record_filter),
        "understood": windows.understood,
        "unanswered": windows.silent,
        "links": _links(query, merged, windows, whole, is_newest),
    }


def filter_fields(query: Query) -> dict[str, Any]:
    """The parameters that select records, as the forms of the list, the search and the tail have them."""
    query.choice("place", PLACES)
    query.choice("q_format", NEEDLE_FORMATS)
    query.choice("state", (*STATES,))
    texts = {name: query.text(name) for name in ("topic", "from", "to", "group", "zone", *FILTERS)}
    return texts | {
        "partition": query.optional_number("partition", 0, 2**31 - 1),
        "count": query.number("count", COUNT, 1, MAX_COUNT),
        "key_format": query.choice("key_format", FORMATS),
        "value_format": query.choice("value_format", FORMATS),
    }


def is_newest_first(query: Query) -> bool:
    """Unless ``order`` says it: from a place in the log on, or from a group's offsets, the oldest come first."""
    order, start = query.choice("order", ("", NEWEST, OLDEST)), query.text("from").strip()
    if order:
        return order == NEWEST
    return not (query.text("group") or (start and not _is_time(start)))


def _slice(merged: MergedRecords, windows: Windows, whole: Windows, is_newest: bool, is_single: bool) -> dict[str, Any]:
    rows = [
        listed.shown | {"partition": listed.partition.partition, "state": listed.record.state}
        for listed in merged.records
    ]
    numbers: dict[str, Any] = dict.fromkeys(("start", "next_offset", "log_start", "last_stable_offset", "end_offset"))
    if is_single and windows.start:
        (partition,) = windows.start
        low, high = merged.remaining[partition]
        numbers = {
            "start": high if is_newest else windows.start[partition],
            "next_offset": windows.until[partition] if is_newest else low,
            "log_start": windows.log_start[partition],
            "last_stable_offset": windows.stable[partition],
            "end_offset": windows.ends[partition],
        }
    return {
        "records": rows,
        "order": NEWEST if is_newest else OLDEST,
        "is_cut": merged.is_cut,
        "offsets": sum(whole.until[partition] - start for partition, start in whole.start.items()),
        "offsets_left": merged.offsets_left,
        "held": sum(bound.held for bound in windows.bounds.values()),
        **numbers,
    }


def _columns(rows: list[dict[str, Any]], is_single: bool) -> dict[str, bool]:
    """The columns that are not empty. Producers matter in transactions; an open record names others' too."""
    return {
        "partition": not is_single,
        "state": any(row["state"] != PLAIN or row["note"] for row in rows),
        "key": any(row["key"].text is not None and row["state"] != MARKER for row in rows),
        "header": any(row["headers"] for row in rows),
        "producer": any(row["producer_id"] is not None and row["state"] != PLAIN for row in rows),
    }


def _links(query: Query, merged: MergedRecords, windows: Windows, whole: Windows, is_newest: bool) -> dict[str, Any]:
    """Parameters of the pages beside this one, None where there is nothing; and of the same selection elsewhere."""
    kept = {name: text for name in SELECTED if (text := query.text(name))}
    before, lowest = kept, whole.start
    if not is_newest and (query.text("group") or not _is_time(query.text("from"))):
        # The records before a place are no part of what begins there.
        before, lowest = {name: text for name, text in kept.items() if name not in ("from", "group")}, whole.log_start
    remaining = {at: until if is_newest else start for at, (start, until) in merged.remaining.items()}
    edge = windows.until if is_newest else windows.start
    older, newer = (remaining, edge) if is_newest else (edge, remaining)
    return {
        "kept": kept,
        "older": _page(before, NEWEST, older) if any(at > lowest[place] for place, at in older.items()) else None,
        "newer": _page(kept, OLDEST, newer) if any(at < whole.until[place] for place, at in newer.items()) else None,
        "isolation": COMMITTED_DOWNLOAD if query.text("state") == COMMITTED_ONLY else EVERYTHING,
    }


def _is_time(text: str) -> bool:
    return text.strip() not in ("", FIRST, STABLE) and offset_in(text.strip()) is None


def _page(kept: Mapping[str, str], order: str, positions: dict[TopicPartition, int]) -> dict[str, str] | None:
    text = positions_text(positions)
    return None if text is None else {**kept, "order": order, "positions": text}


def row_of(
    at: TopicPartition,
    record: StoredRecord,
    key_format: str,
    value_format: str,
    decoder: Decoder,
    most: int = PREVIEW_BYTES,
) -> dict[str, Any]:
    batch = record.batch
    return {
        "offset": record.offset,
        "timestamp_ms": record.timestamp_ms,
        "timestamp_type": "log append time" if record.is_append_time else "create time",
        "state": record.state,
        "note": record.note,
        "key": decoder.key(at.topic, record.key, record.headers, key_format, most),
        "value": decoder.value(at.topic, record.value, record.headers, value_format, most),
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
    formats = query.choice("key_format", FORMATS), query.choice("value_format", FORMATS)
    decoder = Decoder(page_request.decoding, registry=page_request.registry)

    def show(at: TopicPartition, record: StoredRecord) -> tuple[dict[str, Any], dict[str, Any]]:
        row = row_of(at, record, *formats, decoder, FULL_BYTES)
        row |= {name: offload_text(row[name], page_request.as_json) for name in ("key", "value")}
        return row, {
            "key_base64": _base64(record.key),
            "value_base64": _base64(record.value),
        } if page_request.as_json else {}

    partition = TopicPartition(TopicName(query.needed("topic")), query.number("partition", 0, 0, 2**31 - 1))
    listed = one_record(client, partition, query.number("offset", 0), show)
    row, raw = listed.shown
    return {
        "topic": partition.topic,
        "partition": partition.partition,
        "record": row | {"state": listed.record.state},
        "formats": FORMATS,
        "chosen": formats,
        **raw,
    }


def one_record(client: Client, partition: TopicPartition, offset: int, show: Show) -> ListedRecord:
    """The record at an offset. Raises BadQuery without one, and ClientError."""
    windows = windows_of(client, Query({"topic": partition.topic, "partition": str(partition.partition)}))
    windows.require_all()
    windows.narrow(start={partition: offset}, until={partition: offset + 1})
    listed = merged_records(client, windows, RecordFilter(), 1, show, newest=False).records
    if not listed or listed[0].record.offset != offset:
        raise BadQuery(
            f"{partition} has no record at offset {offset}: it was deleted or compacted, or is not written yet"
        )
    return listed[0]


def _base64(data: bytes | None) -> StoredString | None:
    return None if data is None else StoredString(data, is_text=False)
