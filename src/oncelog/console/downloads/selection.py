"""Parser for the address of a download: topic, partitions, offsets, isolation and search target."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

from oncelog.admin.transactions.partition_offsets import bounds_of
from oncelog.base.ids import TopicPartition
from oncelog.client.blocking.client import EARLIEST, Client
from oncelog.client.errors import ClientError
from oncelog.client.machine.requests import offset_query
from oncelog.console.downloads import PATH
from oncelog.console.query import BadQuery, Query
from oncelog.console.records.decoding import FORMATS
from oncelog.console.records.record_query import milliseconds_in, offset_in, partitions_of, positions_of, target_of
from oncelog.console.records.search import SearchTarget

JSON_LINES: Final = "jsonl"
PARQUET: Final = "parquet"
FILE_FORMATS: Final = (JSON_LINES, PARQUET)
COMMITTED_ONLY: Final = "committed"
EVERYTHING: Final = "all"
ISOLATIONS: Final = (COMMITTED_ONLY, EVERYTHING)
MAX_RECORDS: Final = 1_000_000
MAX_BYTES: Final = 256 * 1024 * 1024  # Keys, values and headers of one download.
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
    """The records of a download: offsets from ``start`` to before ``until``, by partition.

    Below ``stable`` every transaction is decided; with ``committed`` nothing above it is selected. ``target`` restricts
    to matching records. ``kept`` holds the parameters that a continuation repeats.
    """

    topic: str
    start: dict[TopicPartition, int]
    stable: dict[TopicPartition, int]
    until: dict[TopicPartition, int]
    committed: bool
    target: SearchTarget | None
    kept: dict[str, str]
    most_records: int = MAX_RECORDS
    most_bytes: int = MAX_BYTES
    path: str = field(default=PATH, kw_only=True)
    """The address of downloads from this cluster."""

    @property
    def offsets(self) -> int:
        """The number of selected offsets; each is a record, a marker or unused."""
        return sum(max(0, until - self.start[partition]) for partition, until in self.until.items())

    def file_name(self, file_format: str) -> str:
        """A file name without characters that are special to a shell or browser."""
        safe = re.sub(r"[^A-Za-z0-9._-]", "_", self.topic)[:200]
        partitions = [*self.start]
        suffix = f"-{partitions[0].partition}-from-{self.start[partitions[0]]}" if len(partitions) == 1 else ""
        return f"{safe}{suffix}.{file_format}"


def selection_of(client: Client, query: Query) -> Selection:
    """Parse an address: ``topic``, ``partition`` (default: all), ``from`` and ``to`` as offsets, times, ``first``,
    ``stable`` or ``end``, ``positions`` of a download that was cut, ``isolation``, and ``q`` as in a search. Raises
    BadQuery and ClientError."""
    topic, chosen = query.needed("topic"), partitions_of(client, query)
    bounds, unanswered = bounds_of(client, chosen)
    if unanswered or len(bounds) < len(chosen):
        raise ClientError(
            f"the topic cannot be read completely: {unanswered[0] if unanswered else 'a partition has no leader'}"
        )
    firsts = {
        partition: offset.offset for partition, offset in client.list_offsets(dict.fromkeys(chosen, EARLIEST)).items()
    }
    stable = {partition: offset.last_stable_offset for partition, offset in bounds.items()}
    ends = {partition: offset.end_offset for partition, offset in bounds.items()}
    committed = query.choice("isolation", ISOLATIONS) == COMMITTED_ONLY
    most = stable if committed else ends
    named = {"first": firsts, "stable": stable, "end": ends}
    start = _places(client, query.text("from").strip() or "first", "from", chosen, named)
    start |= positions_of(query, chosen)
    until = _places(client, query.text("to").strip() or "end", "to", chosen, named)
    for name in ("key_format", "value_format"):
        query.choice(name, FORMATS)
    target = target_of(query) if query.text("q") else None
    return Selection(
        topic,
        {partition: max(firsts[partition], min(start[partition], most[partition])) for partition in chosen},
        stable,
        {partition: max(firsts[partition], min(until[partition], most[partition])) for partition in chosen},
        committed,
        target,
        {name: query.text(name) for name in _KEPT if query.text(name)},
        query.number("records", MAX_RECORDS, 1, MAX_RECORDS),
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
            raise BadQuery(f"{name}={text}: an offset applies to one partition; add partition=, or use a time")
        return dict.fromkeys(chosen, offset)
    offsets = client.list_offsets(dict.fromkeys(chosen, offset_query(milliseconds_in(name, text))))
    return {
        partition: named["end"][partition] if offsets[partition].offset < 0 else offsets[partition].offset
        for partition in chosen
    }
