"""The page of mirrors that copy other clusters into this one: their positions, and their lag at their last write."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from oncelog.client.blocking.client import Client
from oncelog.console.page import PageRequest
from oncelog.console.rendering import one_page
from oncelog.mirror.overview import mirrored_partitions


def read(client: Client, page_request: PageRequest) -> Mapping[str, Any]:
    """Mirrored partitions, of one source or all: rejected ones first, then the furthest behind."""
    source = page_request.query.text("source")
    # Every request reads the positions topics from their beginning, so this page is not live.
    all_mirrored = mirrored_partitions(client)
    rows = [mirrored for mirrored in all_mirrored if source in ("", mirrored.source)]
    rows.sort(key=lambda row: (row.refused is None, -(row.lag or 0), row.source, row.topic, row.partition))
    sources = {
        name: {
            "partitions": sum(mirrored.source == name for mirrored in all_mirrored),
            "lag": sum(mirrored.lag or 0 for mirrored in all_mirrored if mirrored.source == name),
            "records": sum(mirrored.records for mirrored in all_mirrored if mirrored.source == name),
            "last_ms": max((mirrored.at_ms or 0 for mirrored in all_mirrored if mirrored.source == name), default=0)
            or None,
        }
        for name in sorted({mirrored.source for mirrored in all_mirrored})
    }
    return {
        "sources": sources,
        "mirrored": one_page(rows, page_request.query.number("page", 1, 1)),
        "filter": {"source": source},
    }
