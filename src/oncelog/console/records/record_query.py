"""Parsers for the parameters that select records: partitions, positions, times and a search target. Raise BadQuery."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

from oncelog.base.ids import TopicName, TopicPartition
from oncelog.client.blocking.client import Client
from oncelog.console.query import BadQuery, Query
from oncelog.console.records.search import PLACES, SearchTarget

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
NEEDLE_FORMATS: Final = ("text", "hex")
MAX_POSITIONS_LENGTH: Final = 60_000


def partitions_of(client: Client, query: Query) -> list[TopicPartition]:
    """The partition of an address, or all partitions of its topic. Raises UnknownTopic."""
    topic, partition = query.needed("topic"), query.optional_number("partition", 0, 2**31 - 1)
    partitions = client.topic(topic).partitions
    if partition is not None and partition not in partitions:
        raise BadQuery(f"topic {topic!r} has {len(partitions)} partitions; partition {partition} does not exist")
    return [TopicPartition(TopicName(topic), index) for index in sorted(partitions) if partition in (None, index)]


def positions_of(query: Query, chosen: list[TopicPartition]) -> dict[TopicPartition, int]:
    """The positions at which an interrupted read continues (``positions=0:17,1:4``), of the chosen partitions."""
    text = query.long("positions", MAX_POSITIONS_LENGTH)
    try:
        pairs = {int(index): int(offset) for index, offset in (part.split(":") for part in text.split(",") if part)}
    except ValueError:
        raise BadQuery("positions must be PARTITION:OFFSET,…") from None
    return {partition: pairs[partition.partition] for partition in chosen if pairs.get(partition.partition, -1) >= 0}


def offset_in(text: str) -> int | None:
    # 18 digits always fit into 64 bits.
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else None


def milliseconds_in(name: str, text: str) -> int:
    """The time in a text, in UTC unless it names a zone."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise BadQuery(
            f"{name}={text!r} is not an offset, a time (2026-11-22T10:43), or one of first, stable, end"
        ) from None
    moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment
    return (moment - _EPOCH) // timedelta(milliseconds=1)


def target_of(query: Query) -> SearchTarget:
    text, place = query.needed("q"), query.choice("place", PLACES)
    if query.choice("q_format", NEEDLE_FORMATS) == "text":
        return SearchTarget(text.encode(errors="surrogateescape"), place)
    try:
        needle = bytes.fromhex(text)
    except ValueError:
        needle = b""
    if not needle:
        raise BadQuery(f"q={text!r} must be hexadecimal digits, two per byte")
    return SearchTarget(needle, place)
