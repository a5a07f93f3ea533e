"""Conversion between a search and its page: the parameters of an address, and rows for hits and progress."""

from __future__ import annotations

from typing import Any, Final

from oncelog.admin.transactions.partition_offsets import Bounds, bounds_of
from oncelog.base.ids import TopicPartition
from oncelog.client.blocking.client import EARLIEST, Client
from oncelog.client.errors import ClientError
from oncelog.console.query import Query
from oncelog.console.records.decoding import Decoder, decoded
from oncelog.console.records.record_query import MAX_POSITIONS_LENGTH, partitions_of, positions_of, target_of
from oncelog.console.records.search import MAX_HITS, Hit, Progress, SearchTarget, ShownHit

HIT_BYTES: Final = 300
_HEADER_BYTES: Final = 100
_MAX_HEADERS: Final = 10
_KEPT: Final = ("topic", "q", "q_format", "place", "partition", "value_format")


def search_of(
    client: Client, query: Query
) -> tuple[SearchTarget, dict[TopicPartition, int], dict[TopicPartition, Bounds]]:
    """The parts of a search, which ends at the current end offsets."""
    target, chosen = target_of(query), partitions_of(client, query)
    infos = client.topic(query.text("topic")).partitions
    if any(infos[partition.partition].leader < 0 for partition in chosen):
        raise ClientError("the topic cannot be read completely: a partition has no leader")
    bounds, unanswered = bounds_of(client, chosen)
    if unanswered:
        raise ClientError(f"the topic cannot be read completely: {unanswered[0]}")
    positions = {
        partition: listed.offset for partition, listed in client.list_offsets(dict.fromkeys(chosen, EARLIEST)).items()
    }
    start = query.optional_number("from")
    if start is not None and len(chosen) == 1:
        positions = {chosen[0]: max(start, positions[chosen[0]])}
    for partition, offset in positions_of(query, chosen).items():
        positions[partition] = max(offset, positions[partition])
    return target, positions, bounds


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
    rest = ",".join(f"{partition.partition}:{offset}" for partition, offset in sorted(progress.positions.items()))
    kept = {name: query.text(name) for name in _KEPT if query.text(name)}
    return {
        "done": progress.done,
        "total": progress.total,
        "hits": progress.hits,
        "most_hits": MAX_HITS,
        "complete": progress.complete,
        "next": {str(partition): offset for partition, offset in sorted(progress.positions.items())},
        "go_on": None if progress.complete or len(rest) > MAX_POSITIONS_LENGTH else kept | {"positions": rest},
        "unreadable": progress.unreadable,
    }
