"""Mirrors that copy other clusters into this one: positions, and how far they were behind when they last wrote."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from oncelog.client.blocking.client import Client
from oncelog.console.page import Asked
from oncelog.console.rendering import one_page
from oncelog.mirror.overview import mirrored_partitions


def read(client: Client, asked: Asked) -> Mapping[str, Any]:
    """Mirrored partitions, of all sources or of one; refused ones first, then the furthest behind."""
    source = asked.query.text("source")
    found = mirrored_partitions(client)
    rows = [one for one in found if source in ("", one.source)]
    rows.sort(key=lambda row: (row.refused is None, -(row.lag or 0), row.source, row.topic, row.partition))
    sources = {
        name: {
            "partitions": sum(one.source == name for one in found),
            "lag": sum(one.lag or 0 for one in found if one.source == name),
            "records": sum(one.records for one in found if one.source == name),
            "last_ms": max((one.at_ms or 0 for one in found if one.source == name), default=0) or None,
        }
        for name in sorted({one.source for one in found})
    }
    return {
        "sources": sources,
        "mirrored": one_page(rows, asked.query.number("page", 1, 1)),
        "filter": {"source": source},
    }


"""Not live: each look reads the positions topics from their beginning."""
