"""Pages of a search through a topic's records and of a live tail; ``streaming.sources`` sends their events."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from oncelog.admin.transactions.partition_offsets import bounds_of
from oncelog.base.ids import TopicPartition
from oncelog.client.blocking.client import Client
from oncelog.console.page import PageRequest
from oncelog.console.pages.messages import FILTER_CHOICES, SELECTED, filter_fields
from oncelog.console.records.decoding import FORMATS, Decoder
from oncelog.console.records.record_query import MAX_POSITIONS_LENGTH, filter_of, partitions_of
from oncelog.console.records.search import Progress, ShownHit, search
from oncelog.console.records.search_rows import progress_of, search_of, shown_hit
from oncelog.console.records.transaction_outcomes import Settled

JSON_SEARCH_MS: Final = 6000  # A search for JSON stops after this time and returns where it continues.


def read_search(client: Client, page_request: PageRequest) -> Mapping[str, Any]:
    """The form of a search; as JSON the search itself, for a few seconds."""
    query = page_request.query
    shown = {
        "filter": filter_fields(query) | {"positions": query.long("positions", MAX_POSITIONS_LENGTH)},
        "choices": FILTER_CHOICES,
        "can_begin": bool(query.text("topic") and filter_of(query)),
        "kept": {name: text for name in SELECTED if (text := query.text(name))},
    }
    if not page_request.as_json:
        return shown
    record_filter, positions, bounds = search_of(client, query)
    deadline = client.system.now_ms() + JSON_SEARCH_MS
    hits: dict[tuple[TopicPartition, int], dict[str, Any]] = {}
    decoder, progress = Decoder(page_request.decoding, registry=page_request.registry), None
    value_format = query.choice("value_format", FORMATS)
    for event in search(
        client,
        record_filter,
        positions,
        bounds,
        lambda: client.system.now_ms() >= deadline,
        lambda hit: shown_hit(hit, decoder, value_format),
    ):
        if isinstance(event, Progress):
            progress = event
        elif isinstance(event, Settled):
            hits[event.partition, event.offset]["state"] = event.state
            if not record_filter.allows(event.state):
                del hits[event.partition, event.offset]
        elif isinstance(event, ShownHit):
            hits[event.partition, event.offset] = dict(event.row)
    return shown | {"hits": [*hits.values()], "progress": None if progress is None else progress_of(progress, query)}


def read_tail(client: Client, page_request: PageRequest) -> Mapping[str, Any]:
    """The page of a live tail; as JSON the offsets at which it would start."""
    query = page_request.query
    chosen = partitions_of(client, query)
    infos = client.topic(query.needed("topic")).partitions
    bounds, _ = bounds_of(client, [partition for partition in chosen if infos[partition.partition].leader >= 0])
    filter_of(query)
    return {
        "filter": filter_fields(query),
        "choices": FILTER_CHOICES,
        "kept": {name: text for name in SELECTED if (text := query.text(name))},
        "ends": {str(partition): bound.end_offset for partition, bound in sorted(bounds.items())},
    }
