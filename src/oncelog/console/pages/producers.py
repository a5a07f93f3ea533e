"""The page of producers known to partition leaders: id, epoch, last sequence, and open transaction."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from oncelog.admin.transactions.cluster_scan import Scope, partitions_of
from oncelog.admin.transactions.producers import describe_producers
from oncelog.base.ids import TopicName, TopicPartition
from oncelog.client.blocking.client import Client
from oncelog.console.page import PageRequest
from oncelog.console.rendering import one_page


def read(client: Client, page_request: PageRequest) -> Mapping[str, Any]:
    """Producers of all partitions, of a topic or of one partition; the last writer first."""
    query = page_request.query
    topic, partition = query.text("topic"), query.optional_number("partition", 0, 2**31 - 1)
    producer_id = query.optional_number("producer_id")
    if topic and partition is not None:
        scope = Scope(partitions=(TopicPartition(TopicName(topic), partition),))
    else:
        scope = Scope((topic,) if topic else ())
    producers = describe_producers(client, partitions_of(client, scope), open_only=query.flag("open"))
    rows = [row for row in producers.rows if producer_id in (None, row.producer_id)]
    rows.sort(key=lambda row: -row.last_timestamp_ms)
    return {
        "producers": one_page(rows, query.number("page", 1, 1)),
        "partitions": producers.partitions,
        "filter": {
            "topic": topic,
            "partition": partition,
            "producer_id": producer_id,
            "open": "1" if query.flag("open") else "",
        },
        "unanswered": list(map(str, producers.unanswered)),
    }
