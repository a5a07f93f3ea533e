"""Conversion between a search and its page: the parameters of an address, and rows for hits and progress."""

from __future__ import annotations

from typing import Any, Final

from oncelog.admin.transactions.partition_offsets import Bounds
from oncelog.base.ids import TopicPartition
from oncelog.client.blocking.client import Client
from oncelog.console.query import BadQuery, Query
from oncelog.console.records.decoding import Decoder, decoded
from oncelog.console.records.record_filter import RecordFilter
from oncelog.console.records.record_query import FILTERS, filter_of, positions_of, positions_text
from oncelog.console.records.search import MAX_HITS, Hit, Progress, ShownHit
from oncelog.console.records.windows import windows_of

HIT_BYTES: Final = 300
_HEADER_BYTES: Final = 100
_MAX_HEADERS: Final = 10
_KEPT: Final = ("topic", "partition", "from", "to", "group", "zone", *FILTERS, "key_format", "value_format")


def search_of(
    client: Client, query: Query
) -> tuple[RecordFilter, dict[TopicPartition, int], dict[TopicPartition, Bounds]]:
    """The parts of a search, which ends at the current end offsets or at ``to``."""
    record_filter = filter_of(query)
    if not record_filter:
        raise BadQuery("a search needs something to look for: q=…, key=…, value=…, header=…, field=… or state=…")
    windows = windows_of(client, query)
    windows.require_all()
    windows.narrow_to_state(query.text("state"))
    windows.narrow(start=positions_of(query, [*windows.start]))
    bounds = {
        partition: Bounds(min(windows.stable[partition], until), until) for partition, until in windows.until.items()
    }
    return record_filter, windows.start, bounds


def hit_of(hit: Hit, decoder: Decoder, value_format: str = "auto") -> dict[str, Any]:
    topic, partition = hit.partition
    record = hit.record
    return {
        "topic": topic,
        "partition": partition,
        "offset": record.offset,
        "timestamp_ms": record.timestamp_ms,
        "state": record.state,
        "note": record.note,
        "key": decoder.key(topic, record.key, record.headers, "auto", HIT_BYTES),
        "value": decoder.value(topic, record.value, record.headers, value_format, HIT_BYTES),
        "headers": [[name, decoded(value, most=_HEADER_BYTES)] for name, value in record.headers[:_MAX_HEADERS]],
    }


def shown_hit(hit: Hit, decoder: Decoder, value_format: str) -> ShownHit:
    return ShownHit(hit.partition, hit.record.offset, hit_of(hit, decoder, value_format))


def progress_of(progress: Progress, query: Query) -> dict[str, Any]:
    """The progress of a search as pages show it; ``go_on`` holds the parameters that continue it."""
    rest = positions_text(progress.positions)
    kept = {name: query.text(name) for name in _KEPT if query.text(name)}
    return {
        "done": progress.done,
        "total": progress.total,
        "hits": progress.hits,
        "most_hits": MAX_HITS,
        "complete": progress.complete,
        "next": {str(partition): offset for partition, offset in sorted(progress.positions.items())},
        "go_on": None if progress.complete or rest is None else kept | {"positions": rest},
        "unreadable": progress.unreadable,
    }
