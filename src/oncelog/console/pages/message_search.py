"""Searches through the records of a topic, and the page of a live tail; their events are ``streaming.sources``'s."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from oncelog.admin.transactions.partition_offsets import bounds_of
from oncelog.base.ids import TopicName, TopicPartition
from oncelog.client.blocking.client import Client
from oncelog.console.page import Asked
from oncelog.console.records.decoding import FORMATS, Decoder
from oncelog.console.records.record_query import LONGEST_POSITIONS, NEEDLE_FORMATS
from oncelog.console.records.search import PLACES, Progress, ShownHit, search
from oncelog.console.records.search_rows import progress_of, search_of, shown_hit
from oncelog.console.records.transaction_outcomes import Settled

JSON_SEARCH_MS: Final = 6000
"""A search for JSON ends after this time and says where it goes on."""


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
