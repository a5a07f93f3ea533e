"""The rows that the audit's steps hand on, as named tuples with the Arrow schemas beside them.

The rule: a row is flat, and a named tuple and a schema have the same fields in the same order (``batches_of`` and
``rows_of`` turn one into the other). Offsets are inclusive; times in milliseconds; −1 means none.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import IntEnum
from functools import partial
from itertools import islice
from typing import Any, Final, NamedTuple

import pyarrow as pa

NONE: Final = -1
ROWS_PER_BATCH: Final = 16_384


class Rank(IntEnum):
    """Kinds of facts, in the order in which facts at one offset come."""

    DECISION = 0
    SNAPSHOT = 1
    INDEX_ENTRY = 2
    DATA = 3
    COMMIT = 4
    MARKER = 5
    ABORTED_DATA = 6
    COMMITTED_OFFSET = 7


class Outcome(IntEnum):
    """The end of a transaction on a partition."""

    OPEN = -1
    ABORTED = 0
    COMMITTED = 1
    UNKNOWN = 2
    """The marker is damaged, or has been emptied by compaction."""


class Fact(NamedTuple):
    """A statement of a file about a producer on a partition. The fields that count depend on ``rank``.

    DATA: a run of consecutive batches of one epoch whose sequences follow each other. MARKER: ``outcome`` and
    ``coordinator_epoch``. COMMIT: an offset committed in a transaction; ``name`` is the group, ``place`` and ``value``
    partition and offset. SNAPSHOT: the producer as of ``offset``; ``value`` is where its open transaction begins,
    ``last_offset`` and ``last_sequence`` its last batch's. INDEX_ENTRY: an aborted transaction, ``value`` its first
    offset, ``offset`` its marker's, ``last_offset`` the last stable offset. DECISION: what the coordinator has decided
    about this partition: ``outcome``, ``name`` the transactional id, ``value`` the client's transaction version,
    ``last_offset`` the place in the coordinator's log and ``batches`` the partition of it; ``transactional`` says that
    the coordinator has gone on since, at ``first_timestamp``. ABORTED_DATA and COMMITTED_OFFSET are for ``commits``:
    the data of an aborted transaction, and what a group has committed (``value``, ``name``) in which place of
    ``__consumer_offsets`` (``place`` a partition's number, ``last_offset``), ``offset`` −1 so that it comes first.
    """

    topic: str
    partition: int
    replica: int
    producer_id: int
    offset: int
    rank: int
    last_offset: int = NONE
    epoch: int = NONE
    first_sequence: int = NONE
    last_sequence: int = NONE
    batches: int = 0
    records: int = 0
    size_bytes: int = 0
    transactional: bool = False
    outcome: int = Outcome.OPEN
    coordinator_epoch: int = NONE
    first_timestamp: int = NONE
    last_timestamp: int = NONE
    value: int = NONE
    name: str = ""
    place: str = ""


FACT_ORDER: Final = ("topic", "partition", "replica", "producer_id", "offset", "rank", "last_offset")
FACT_GROUP: Final = FACT_ORDER[:4]


class SegmentStat(NamedTuple):
    """Totals of one segment file, as it was read."""

    topic: str
    partition: int
    replica: int
    base_offset: int
    path: str
    size_bytes: int
    batches: int
    records: int
    first_offset: int
    next_offset: int
    """After the last sound batch; the base offset when there is none."""
    max_timestamp: int
    broker_timestamp: int
    """The latest time a broker wrote itself: of a marker, in an internal topic, or as log append time."""
    modified_ms: int
    """Time of the file's last change."""
    first_timestamp: int
    has_holes: bool
    """Compaction was here: records or batches are missing inside it."""
    dense_since: int
    """Time from which on nothing is missing in it; −1: nothing ever was."""
    damaged_from: int
    """The offset from which on something is missing or unreadable, −1: nothing."""
    damaged_to: int
    """The offset where the log goes on after all damage."""
    has_transaction_index: bool
    read_seconds: float


class CoordinatorState(NamedTuple):
    """The last record about a transactional id with this producer id in one segment of ``__transaction_state``."""

    producer_id: int
    transactional_id: str
    epoch: int
    status: int
    partitions: str
    """``topic-partition``, separated by spaces."""
    timeout_ms: int
    updated: int
    started: int
    version: int
    log_partition: int
    log_offset: int

    def as_part(self) -> Part:
        """The state as a part, so that it is sorted before the transactions of its producer."""
        return Part(
            self.producer_id, NONE, "", self.log_partition, self.log_offset, self.epoch, self.status, self.timeout_ms,
            self.version, NONE, NONE, NONE, NONE, NONE, self.started, self.updated, NONE, self.partitions,
            self.transactional_id, NONE,
        )  # fmt: skip

    @classmethod
    def of_part(cls, part: Part) -> CoordinatorState:
        """The state that :meth:`as_part` has turned into a part."""
        return cls(
            part.producer_id, part.transactional_id, part.last_offset, part.batches, part.fate, part.records,
            part.written, part.started, part.size_bytes, part.partition, part.first_offset,
        )  # fmt: skip


class Part(NamedTuple):
    """One transaction on one partition."""

    producer_id: int
    epoch: int
    """Epoch of its data."""
    topic: str
    partition: int
    first_offset: int
    last_offset: int
    """Last offset of its data."""
    batches: int
    records: int
    size_bytes: int
    marker_offset: int
    marker_epoch: int
    outcome: int
    decided: int
    """The outcome by the coordinator's log; OPEN when that does not say."""
    coordinator_epoch: int
    started: int
    written: int
    """Time of the last record."""
    ended: int
    fate: str
    """``committed``, ``aborted``, ``open``, ``ending``, ``hanging``, ``unknown``."""
    transactional_id: str
    after_marker: int
    """Offset of the producer's marker before it, when that has the same epoch."""


PART_ORDER: Final = ("producer_id", "epoch", "topic", "partition", "first_offset")
PART_GROUP: Final = PART_ORDER[:1]


class Finding(NamedTuple):
    """Something that cannot be right. ``offset`` is in the log of ``topic``-``partition``."""

    kind: str
    topic: str = ""
    partition: int = NONE
    offset: int = NONE
    last_offset: int = NONE
    transactional_id: str = ""
    producer_id: int = NONE
    epoch: int = NONE
    time: int = NONE
    path: str = ""
    text: str = ""


KINDS: Final = {
    "torn": "a transaction ended differently on different partitions, or not at all on some",
    "hanging": "an open transaction that nobody will end",
    "late-write": "a producer wrote with an epoch that had been replaced, or into an ended transaction",
    "stray-marker": "a marker that no coordinator's record accounts for",
    "duplicate": "sequence numbers that had been written before",
    "gap": "sequence numbers or offsets are missing",
    "aborted-offsets": "a group's offsets count records that were aborted",
    "offsets-beyond-log": "a group's offset is after the end of the log",
    "crc": "a batch does not have the checksum it says",
    "garbage": "bytes that are no record batch",
    "tail": "the last segment ends in something other than a whole batch",
    "batch": "a batch whose header contradicts itself or its place",
    "offset-index": "an entry of an offset index that misleads",
    "time-index": "an entry of a time index that misleads",
    "transaction-index": "an aborted transaction is missing from its index, or an entry is wrong",
    "producer-snapshot": "a producer snapshot that disagrees with the log",
    "unreadable": "a file or an internal record that cannot be read",
}
"""Kinds of findings, the gravest first."""

_ARROW: Final = {"str": pa.string(), "int": pa.int64(), "bool": pa.bool_(), "float": pa.float64()}


def schema_of(row_type: type[Any]) -> pa.Schema:
    """Arrow schema of a row type."""
    return pa.schema([pa.field(name, _ARROW[hint.__forward_arg__]) for name, hint in row_type.__annotations__.items()])


def batches_of(rows: Iterable[Any], row_type: type[Any]) -> Iterator[pa.RecordBatch]:
    """Rows → record batches, bounded in size; none for no rows."""
    schema = schema_of(row_type)
    stream = iter(rows)
    while piece := list(islice(stream, ROWS_PER_BATCH)):
        columns = zip(*piece, strict=True)
        arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def rows_of(batches: Iterable[pa.RecordBatch], row_type: type[Any]) -> Iterator[Any]:
    """Record batches → rows."""
    make = partial(tuple.__new__, row_type)  # a named tuple without the detour over its constructor
    for batch in batches:
        yield from map(make, zip(*(column.to_pylist() for column in batch.columns), strict=True))
