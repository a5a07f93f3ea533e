"""Searches through the records of a topic, and the page of a live tail; their events are ``stream_sources``'s."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from oncelog.admin.transactions.partition_offsets import Bounds, bounds_of
from oncelog.base.ids import TopicName, TopicPartition
from oncelog.client.blocking.client import EARLIEST, Client
from oncelog.client.errors import ClientError
from oncelog.console.decoding import FORMATS, Decoder, decoded
from oncelog.console.outcomes import Settled
from oncelog.console.page import Asked
from oncelog.console.query import Query
from oncelog.console.record_query import LONGEST_POSITIONS, NEEDLE_FORMATS, needle_of, partitions_of, positions_of
from oncelog.console.search import MOST_HITS, PLACES, Hit, Progress, ShownHit, Wanted, search

JSON_SEARCH_MS: Final = 6000
"""A search for JSON ends after this time and says where it goes on."""
HIT_BYTES: Final = 300
_HEADER_BYTES: Final = 100
_MOST_HEADERS: Final = 10
_KEPT: Final = ("topic", "q", "q_format", "place", "partition", "value_format")


def read_search(client: Client, asked: Asked) -> Mapping[str, Any]:
    """The form and the place of a search; as JSON the search itself, for some seconds."""
    query = asked.query
    shown = {
        "filter": {
            "topic": query.text("topic"),
            "q": query.text("q"),
            "q_format": query.choice("q_format", NEEDLE_FORMATS),
            "place": query.choice("place", PLACES),
            "partition": query.optional_number("partition", 0, 2**31 - 1),
            "from": query.text("from"),
            "positions": query.long("positions", LONGEST_POSITIONS),
            "value_format": query.choice("value_format", FORMATS),
        },
        "places": PLACES,
        "needle_formats": NEEDLE_FORMATS,
        "formats": FORMATS,
    }
    if not asked.as_json:
        return shown
    wanted, positions, bounds = search_of(client, query)
    deadline = client.system.now_ms() + JSON_SEARCH_MS
    hits: dict[tuple[TopicPartition, int], dict[str, Any]] = {}
    decoder, progress = Decoder(asked.decoding), None
    value_format = query.choice("value_format", FORMATS)
    for one in search(
        client,
        wanted,
        positions,
        bounds,
        lambda: client.system.now_ms() >= deadline,
        lambda hit: shown_hit(hit, decoder, value_format),
    ):
        if isinstance(one, Progress):
            progress = one
        elif isinstance(one, Settled):
            hits[one.where, one.offset]["state"] = one.state
        elif isinstance(one, ShownHit):
            hits[one.where, one.offset] = dict(one.row)
    return shown | {"hits": [*hits.values()], "progress": None if progress is None else progress_of(progress, query)}


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
    """A hit as what is shown of it."""
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


def read_tail(client: Client, asked: Asked) -> Mapping[str, Any]:
    """The page of a live tail; as JSON the offsets it would begin at."""
    query = asked.query
    topic = query.needed("topic")
    there = client.topic(topic).partitions
    chosen = [TopicPartition(TopicName(topic), one) for one, found in there.items() if found.leader >= 0]
    bounds, _ = bounds_of(client, chosen)
    return {
        "topic": topic,
        "value_format": query.choice("value_format", FORMATS),
        "formats": FORMATS,
        "ends": {str(one): found.end_offset for one, found in sorted(bounds.items())},
    }
