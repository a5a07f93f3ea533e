"""Pages of a search through a topic's records and of a live tail; ``streaming.sources`` sends their events."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from oncelog.admin.transactions.partition_offsets import bounds_of
from oncelog.base.ids import TopicName, TopicPartition
from oncelog.client.blocking.client import Client
from oncelog.console.page import PageRequest
from oncelog.console.records.decoding import FORMATS, Decoder
from oncelog.console.records.record_query import MAX_POSITIONS_LENGTH, NEEDLE_FORMATS
from oncelog.console.records.search import PLACES, Progress, ShownHit, search
from oncelog.console.records.search_rows import progress_of, search_of, shown_hit
from oncelog.console.records.transaction_outcomes import Settled

JSON_SEARCH_MS: Final = 6000  # A search for JSON stops after this time and returns where it continues.


def read_search(client: Client, page_request: PageRequest) -> Mapping[str, Any]:
    """The form of a search; as JSON the search itself, for a few seconds."""
    query = page_request.query
    shown = {
        "filter": {
            "topic": query.text("topic"),
            "q": query.text("q"),
            "q_format": query.choice("q_format", NEEDLE_FORMATS),
            "place": query.choice("place", PLACES),
            "partition": query.optional_number("partition", 0, 2**31 - 1),
            "from": query.text("from"),
            "positions": query.long("positions", MAX_POSITIONS_LENGTH),
            "value_format": query.choice("value_format", FORMATS),
        },
        "places": PLACES,
        "needle_formats": NEEDLE_FORMATS,
        "formats": FORMATS,
    }
    if not page_request.as_json:
        return shown
    target, positions, bounds = search_of(client, query)
    deadline = client.system.now_ms() + JSON_SEARCH_MS
    hits: dict[tuple[TopicPartition, int], dict[str, Any]] = {}
    decoder, progress = Decoder(page_request.decoding), None
    value_format = query.choice("value_format", FORMATS)
    for event in search(
        client,
        target,
        positions,
        bounds,
        lambda: client.system.now_ms() >= deadline,
        lambda hit: shown_hit(hit, decoder, value_format),
    ):
        if isinstance(event, Progress):
            progress = event
        elif isinstance(event, Settled):
            hits[event.partition, event.offset]["state"] = event.state
        elif isinstance(event, ShownHit):
            hits[event.partition, event.offset] = dict(event.row)
    return shown | {"hits": [*hits.values()], "progress": None if progress is None else progress_of(progress, query)}


def read_tail(client: Client, page_request: PageRequest) -> Mapping[str, Any]:
    """The page of a live tail; as JSON the offsets at which it would start."""
    query = page_request.query
    topic = query.needed("topic")
    infos = client.topic(topic).partitions
    chosen = [TopicPartition(TopicName(topic), index) for index, info in infos.items() if info.leader >= 0]
    bounds, _ = bounds_of(client, chosen)
    return {
        "topic": topic,
        "value_format": query.choice("value_format", FORMATS),
        "formats": FORMATS,
        "ends": {str(partition): bound.end_offset for partition, bound in sorted(bounds.items())},
    }
