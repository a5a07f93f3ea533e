"""Parser for the address of a download: topic, partitions, offsets, isolation and search target."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

from oncelog.base.ids import TopicPartition
from oncelog.client.blocking.client import Client
from oncelog.console.downloads import PATH
from oncelog.console.query import Query
from oncelog.console.records.decoding import FORMATS
from oncelog.console.records.record_filter import RecordFilter
from oncelog.console.records.record_query import FILTERS, filter_of, positions_of
from oncelog.console.records.windows import windows_of

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
    "group",
    "zone",
    *FILTERS,
    "key_format",
    "value_format",
)


@dataclass(frozen=True, slots=True)
class Selection:
    """The records of a download: offsets from ``start`` to before ``until``, by partition.

    Below ``stable`` every transaction is decided; with ``committed`` nothing above it is selected. ``record_filter``
    restricts to matching records. ``kept`` holds the parameters that a continuation repeats.
    """

    topic: str
    start: dict[TopicPartition, int]
    stable: dict[TopicPartition, int]
    until: dict[TopicPartition, int]
    committed: bool
    record_filter: RecordFilter
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
    windows = windows_of(client, query)
    windows.require_all()
    windows.narrow_to_state(query.text("state"))
    committed = query.choice("isolation", ISOLATIONS) == COMMITTED_ONLY
    windows.narrow(start=positions_of(query, [*windows.start]), until=windows.stable if committed else {})
    for name in ("key_format", "value_format"):
        query.choice(name, FORMATS)
    return Selection(
        query.text("topic"),
        windows.start,
        windows.stable,
        windows.until,
        committed,
        filter_of(query),
        {name: query.text(name) for name in _KEPT if query.text(name)},
        query.number("records", MAX_RECORDS, 1, MAX_RECORDS),
    )
