"""The records that the address of a download selects."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from oncelog.admin.transactions.partition_offsets import bounds_of
from oncelog.base.ids import TopicPartition
from oncelog.client.blocking.client import EARLIEST, Client
from oncelog.client.errors import ClientError
from oncelog.client.machine.requests import offset_query
from oncelog.console.query import BadQuery, Query
from oncelog.console.records.decoding import FORMATS
from oncelog.console.records.record_query import milliseconds_in, needle_of, offset_in, partitions_of, positions_of
from oncelog.console.records.search import Wanted

JSON_LINES: Final = "jsonl"
PARQUET: Final = "parquet"
FILE_FORMATS: Final = (JSON_LINES, PARQUET)
COMMITTED_ONLY: Final = "committed"
EVERYTHING: Final = "all"
ISOLATIONS: Final = (COMMITTED_ONLY, EVERYTHING)
MOST_RECORDS: Final = 1_000_000
MOST_BYTES: Final = 256 * 1024 * 1024
"""The bytes of keys, values and headers in one download, at the most."""
_KEPT: Final = (
    "topic",
    "partition",
    "records",
    "to",
    "isolation",
    "as",
    "q",
    "q_format",
    "place",
    "key_format",
    "value_format",
)


@dataclass(frozen=True, slots=True)
class Selection:
    """Offsets from ``start`` to before ``until``, by partition. Below ``stable`` every transaction is decided; with
    ``committed`` nothing else is selected. ``wanted``: only records that have it. ``kept``: the parameters of the
    address that stay when it goes on elsewhere."""

    topic: str
    start: dict[TopicPartition, int]
    stable: dict[TopicPartition, int]
    until: dict[TopicPartition, int]
    committed: bool
    wanted: Wanted | None
    kept: dict[str, str]
    most_records: int = MOST_RECORDS
    most_bytes: int = MOST_BYTES

    @property
    def offsets(self) -> int:
        """Offsets from the starts to the ends; each is a record, a marker or nothing."""
        return sum(max(0, until - self.start[where]) for where, until in self.until.items())

    def file_name(self, file_format: str) -> str:
        """A name without anything that means something to a shell or a browser."""
        safe = re.sub(r"[^A-Za-z0-9._-]", "_", self.topic)[:200]
        partitions = [*self.start]
        one = f"-{partitions[0].partition}-from-{self.start[partitions[0]]}" if len(partitions) == 1 else ""
        return f"{safe}{one}.{file_format}"


def selection_of(client: Client, query: Query) -> Selection:
    """The selection of an address: ``topic``, ``partition`` (all without it), ``from`` and ``to`` as offsets, times,
    ``first``, ``stable`` or ``end``, ``positions`` of a download that was cut, ``isolation``, and ``q`` as in a search.
    Raises BadQuery and ClientError."""
    topic, chosen = query.needed("topic"), partitions_of(client, query)
    bounds, unanswered = bounds_of(client, chosen)
    if unanswered or len(bounds) < len(chosen):
        raise ClientError(f"not all of it can be read: {unanswered[0] if unanswered else 'a partition has no leader'}")
    firsts = {one: found.offset for one, found in client.list_offsets(dict.fromkeys(chosen, EARLIEST)).items()}
    stable = {one: found.last_stable_offset for one, found in bounds.items()}
    ends = {one: found.end_offset for one, found in bounds.items()}
    committed = query.choice("isolation", ISOLATIONS) == COMMITTED_ONLY
    most = stable if committed else ends
    named = {"first": firsts, "stable": stable, "end": ends}
    start = _places(client, query.text("from").strip() or "first", "from", chosen, named)
    start |= positions_of(query, chosen)
    until = _places(client, query.text("to").strip() or "end", "to", chosen, named)
    for name in ("key_format", "value_format"):
        query.choice(name, FORMATS)
    wanted = needle_of(query) if query.text("q") else None
    return Selection(
        topic,
        {one: max(firsts[one], min(start[one], most[one])) for one in chosen},
        stable,
        {one: max(firsts[one], min(until[one], most[one])) for one in chosen},
        committed,
        wanted,
        {name: query.text(name) for name in _KEPT if query.text(name)},
        query.number("records", MOST_RECORDS, 1, MOST_RECORDS),
    )


def _places(
    client: Client,
    text: str,
    name: str,
    chosen: list[TopicPartition],
    named: dict[str, dict[TopicPartition, int]],
) -> dict[TopicPartition, int]:
    if text in named:
        return dict(named[text])
    if (offset := offset_in(text)) is not None:
        if len(chosen) > 1:
            raise BadQuery(f"{name}={text}: an offset is of one partition; name it, or give a time")
        return dict.fromkeys(chosen, offset)
    found = client.list_offsets(dict.fromkeys(chosen, offset_query(milliseconds_in(name, text))))
    return {one: named["end"][one] if found[one].offset < 0 else found[one].offset for one in chosen}
