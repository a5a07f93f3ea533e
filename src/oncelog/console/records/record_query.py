"""Parsers for the parameters that select records: partitions, positions, times and filters. Raise BadQuery."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from typing import Final

from oncelog.base.ids import TopicName, TopicPartition
from oncelog.client.blocking.client import Client
from oncelog.console.query import BadQuery, Query
from oncelog.console.records.moments import EXAMPLES, LEAST_EPOCH_MS, milliseconds_of, zone_of
from oncelog.console.records.record_filter import (
    CONTAINS,
    DIFFERS,
    EQUALS,
    PLACES,
    Comparison,
    Condition,
    FieldIs,
    HeaderIs,
    RecordFilter,
    TextIn,
    path_of,
)
from oncelog.console.records.record_states import ABORTED, COMMITTED, ENDED, MARKER, OPEN, PLAIN, UNDECIDED, UNREADABLE

NEEDLE_FORMATS: Final = ("text", "hex")
MAX_POSITIONS_LENGTH: Final = 60_000
STATES: Final = {
    "all": frozenset[str](),
    "committed only": frozenset({PLAIN, COMMITTED, UNREADABLE}),
    ABORTED: frozenset({ABORTED, ENDED, UNDECIDED}),
    OPEN: frozenset({OPEN, UNDECIDED}),
    "no markers": frozenset({PLAIN, COMMITTED, ABORTED, OPEN, ENDED, UNDECIDED, UNREADABLE}),
    MARKER: frozenset({MARKER}),
}
"""Choices of ``state``. Records whose outcome is unknown are shown where they may belong, with the state they have."""
COMMITTED_ONLY: Final = "committed only"
FILTERS: Final = ("q", "q_format", "place", "key", "value", "header", "field", "state", "case")
"""The parameters of a filter."""
_OPERATOR: Final = re.compile(f"({DIFFERS}|{EQUALS}|{CONTAINS})")


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


def positions_text(positions: Mapping[TopicPartition, int]) -> str | None:
    """Positions as ``positions_of`` reads them; None if they are too long for an address."""
    text = ",".join(f"{partition.partition}:{offset}" for partition, offset in sorted(positions.items()))
    return text if len(text) <= MAX_POSITIONS_LENGTH else None


def offset_in(text: str) -> int | None:
    # 18 digits always fit into 64 bits.
    is_number = text.isascii() and text.isdigit() and len(text) < 19
    return int(text) if is_number and int(text) < LEAST_EPOCH_MS else None


def milliseconds_in(name: str, text: str, zone: str = "") -> int:
    """The time in a text, in the zone of this name unless the text has one, in UTC without either."""
    milliseconds = milliseconds_of(text, int(time.time() * 1000), zone_of(zone))
    if milliseconds is None:
        raise BadQuery(f"{name}={text!r} is not an offset, a time ({EXAMPLES}), or one of first, stable, end")
    return milliseconds


def filter_of(query: Query) -> RecordFilter:
    """The filter of an address: the parameters of ``FILTERS``."""
    ignores_case = not query.flag("case")
    conditions: list[Condition] = []
    if text := query.text("q"):
        place = query.choice("place", PLACES)
        is_hex = query.choice("q_format", NEEDLE_FORMATS) == "hex"
        conditions.append(TextIn(_bytes_in(text, is_hex), place, ignores_case and not is_hex))
    parts = ((part, query.text(part)) for part in ("key", "value"))
    conditions += (TextIn(_bytes_in(text, False), part, ignores_case) for part, text in parts if text)
    if text := query.text("header").strip():
        name, comparison = _compared(text, ignores_case)
        conditions.append(HeaderIs(name, comparison, ignores_case))
    if text := query.text("field").strip():
        name, comparison = _compared(text, ignores_case)
        path = path_of(name)
        if not path:
            raise BadQuery(
                f"field={text!r} must be a path in a JSON value and a value: $.a.b=value, a.b~part, a.b!=value"
            )
        conditions.append(FieldIs(path, comparison))
    return RecordFilter(tuple(conditions), STATES[query.choice("state", (*STATES,))])


def _compared(text: str, ignores_case: bool) -> tuple[str, Comparison | None]:
    """A name, and the comparison after it: ``name``, ``name=value``, ``name!=value`` or ``name~part``."""
    name, operator, value = (*_OPERATOR.split(text, 1), "", "")[:3]
    return name.strip(), Comparison(operator, value.strip(), ignores_case) if operator else None


def _bytes_in(text: str, is_hex: bool) -> bytes:
    if not is_hex:
        return text.encode(errors="surrogateescape")
    try:
        needle = bytes.fromhex(text)
    except ValueError:
        needle = b""
    if not needle:
        raise BadQuery(f"q={text!r} must be hexadecimal digits, two per byte")
    return needle
