"""A search as addresses ask for it, and its hits and progress as pages show them."""

from __future__ import annotations

from typing import Any, Final

from oncelog.admin.transactions.partition_offsets import Bounds, bounds_of
from oncelog.base.ids import TopicPartition
from oncelog.client.blocking.client import EARLIEST, Client
from oncelog.client.errors import ClientError
from oncelog.console.query import Query
from oncelog.console.records.decoding import Decoder, decoded
from oncelog.console.records.record_query import LONGEST_POSITIONS, needle_of, partitions_of, positions_of
from oncelog.console.records.search import MOST_HITS, Hit, Progress, ShownHit, Wanted

HIT_BYTES: Final = 300
_HEADER_BYTES: Final = 100
_MOST_HEADERS: Final = 10
_KEPT: Final = ("topic", "q", "q_format", "place", "partition", "value_format")


def search_of(client: Client, query: Query) -> tuple[Wanted, dict[TopicPartition, int], dict[TopicPartition, Bounds]]:
    """The search of an address: for what, from where, and up to where, the ends of this moment."""
    wanted, chosen = needle_of(query), partitions_of(client, query)
    there = client.topic(query.text("topic")).partitions
    if any(there[one.partition].leader < 0 for one in chosen):
        raise ClientError("a partition has no leader: not all of the topic can be read")
    bounds, unanswered = bounds_of(client, chosen)
    if unanswered:
        raise ClientError(f"not all of the topic can be read: {unanswered[0]}")
    positions = {one: found.offset for one, found in client.list_offsets(dict.fromkeys(chosen, EARLIEST)).items()}
    start = query.optional_number("from")
    if start is not None and len(chosen) == 1:
        positions = {chosen[0]: max(start, positions[chosen[0]])}
    for one, offset in positions_of(query, chosen).items():
        positions[one] = max(offset, positions[one])
    return wanted, positions, bounds


def hit_of(hit: Hit, decoder: Decoder, value_format: str = "auto") -> dict[str, Any]:
    """A hit as pages show it."""
    topic, partition = hit.where
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
        "headers": [[name, decoded(value, most=_HEADER_BYTES)] for name, value in record.headers[:_MOST_HEADERS]],
    }


def shown_hit(hit: Hit, decoder: Decoder, value_format: str) -> ShownHit:
    return ShownHit(hit.where, hit.record.offset, hit_of(hit, decoder, value_format))


def progress_of(progress: Progress, query: Query) -> dict[str, Any]:
    """How far a search is, as pages show it; ``go_on`` is the address of the rest."""
    rest = ",".join(f"{where.partition}:{offset}" for where, offset in sorted(progress.positions.items()))
    kept = {name: query.text(name) for name in _KEPT if query.text(name)}
    return {
        "done": progress.done,
        "total": progress.total,
        "hits": progress.hits,
        "most_hits": MOST_HITS,
        "complete": progress.complete,
        "next": {str(where): offset for where, offset in sorted(progress.positions.items())},
        "go_on": None if progress.complete or len(rest) > LONGEST_POSITIONS else kept | {"positions": rest},
        "unreadable": progress.unreadable,
    }
