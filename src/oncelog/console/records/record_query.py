"""Parts of an address that choose records: partitions, positions, times, and bytes to look for. Raises BadQuery."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

from oncelog.base.ids import TopicName, TopicPartition
from oncelog.client.blocking.client import Client
from oncelog.console.query import BadQuery, Query
from oncelog.console.records.search import PLACES, Wanted

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
NEEDLE_FORMATS: Final = ("text", "hex")
LONGEST_POSITIONS: Final = 60_000


def partitions_of(client: Client, query: Query) -> list[TopicPartition]:
    """The partition of an address, or all of its topic. Raises UnknownTopic."""
    topic, partition = query.needed("topic"), query.optional_number("partition", 0, 2**31 - 1)
    there = client.topic(topic).partitions
    if partition is not None and partition not in there:
        raise BadQuery(f"topic {topic!r} has {len(there)} partitions, and no partition {partition}")
    return [TopicPartition(TopicName(topic), one) for one in sorted(there) if partition in (None, one)]


def positions_of(query: Query, chosen: list[TopicPartition]) -> dict[TopicPartition, int]:
    """The positions from which something that was ended goes on: ``positions=0:17,1:4``; partitions that are not chosen
    are left out."""
    text = query.long("positions", LONGEST_POSITIONS)
    try:
        pairs = {int(index): int(offset) for index, offset in (part.split(":") for part in text.split(",") if part)}
    except ValueError:
        raise BadQuery("positions is not PARTITION:OFFSET,…") from None
    return {one: pairs[one.partition] for one in chosen if pairs.get(one.partition, -1) >= 0}


def offset_in(text: str) -> int | None:
    """The offset that a text is, None for what is no number."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else None


def milliseconds_in(name: str, text: str) -> int:
    """The time that a text is, in UTC where it names no zone."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise BadQuery(
            f"{name}={text!r} is no offset, no time (2026-11-22T10:43), and none of first, stable, end"
        ) from None
    moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment
    return (moment - _EPOCH) // timedelta(milliseconds=1)


def needle_of(query: Query) -> Wanted:
    """The bytes looked for, and where."""
    text, place = query.needed("q"), query.choice("place", PLACES)
    if query.choice("q_format", NEEDLE_FORMATS) == "text":
        return Wanted(text.encode(errors="surrogateescape"), place)
    try:
        needle = bytes.fromhex(text)
    except ValueError:
        needle = b""
    if not needle:
        raise BadQuery(f"q={text!r} is not hexadecimal digits, two for each byte")
    return Wanted(needle, place)
