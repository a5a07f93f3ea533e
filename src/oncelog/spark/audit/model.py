"""The rows that audit steps exchange, as named tuples with matching Arrow schemas.

A row is flat. A named tuple and its schema have the same fields in the same order; ``batches_of`` and ``rows_of``
convert between them. Offsets are inclusive, times are in milliseconds, −1 means none.
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
    """The kind of a fact; facts at one offset are sorted by it."""

    DECISION = 0
    SNAPSHOT = 1
    INDEX_ENTRY = 2
    DATA = 3
    COMMIT = 4
    MARKER = 5
    ABORTED_DATA = 6
    COMMITTED_OFFSET = 7


class TransactionOutcome(IntEnum):
    OPEN = -1
    ABORTED = 0
    COMMITTED = 1
    # The marker is damaged, or compaction emptied it.
    UNKNOWN = 2


class Fact(NamedTuple):
    """A statement of a file about a producer on a partition. ``rank`` decides which fields have a meaning.

    DATA: a run of batches of one epoch with consecutive sequences. MARKER: ``outcome``, ``coordinator_epoch``. COMMIT:
    an offset committed in a transaction: ``name`` (group), ``place`` (partition), ``value`` (offset). SNAPSHOT: the
    producer as of ``offset``: ``value`` (first offset of its open transaction), ``last_offset`` and ``last_sequence``
    (of its last batch). INDEX_ENTRY: an aborted transaction: ``value`` (first offset), ``offset`` (marker),
    ``last_offset`` (last stable offset). DECISION: the coordinator's for this partition: ``outcome``, ``name``
    (transactional id), ``value`` (the client's transaction version), ``last_offset`` and ``batches`` (offset and
    partition in ``__transaction_state``); ``transactional`` is set if the coordinator has moved on since, at
    ``first_timestamp``. ABORTED_DATA and COMMITTED_OFFSET are for ``committed_offsets``: an aborted transaction's data;
    a group's offset (``name``, ``value``) and its place in ``__consumer_offsets`` (``place``, ``last_offset``), with
    ``offset`` −1 to sort first.
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
    outcome: int = TransactionOutcome.OPEN
    coordinator_epoch: int = NONE
    first_timestamp: int = NONE
    last_timestamp: int = NONE
    value: int = NONE
    name: str = ""
    place: str = ""


FACT_ORDER: Final = ("topic", "partition", "replica", "producer_id", "offset", "rank", "last_offset")
FACT_GROUP: Final = FACT_ORDER[:4]


class SegmentStat(NamedTuple):
    topic: str
    partition: int
    replica: int
    base_offset: int
    path: str
    size_bytes: int
    batches: int
    records: int
    first_offset: int
    # The offset after the last sound batch, or the base offset if the segment has none.
    next_offset: int
    max_timestamp: int
    # The latest time set by a broker: in a marker, in an internal topic, or as log append time.
    broker_timestamp: int
    modified_ms: int
    first_timestamp: int
    # True if compaction removed records or batches.
    has_holes: bool
    # Time since which nothing is missing; −1: nothing was ever missing.
    dense_since: int
    # The first missing or unreadable offset; −1: none.
    damaged_from: int
    # The offset at which the log continues after all damage.
    damaged_to: int
    has_transaction_index: bool
    read_seconds: float


class CoordinatorState(NamedTuple):
    """The last record of a transactional id and producer id in one segment of ``__transaction_state``."""

    producer_id: int
    transactional_id: str
    epoch: int
    status: int
    # ``topic-partition``, separated by spaces.
    partitions: str
    timeout_ms: int
    updated: int
    started: int
    version: int
    log_partition: int
    log_offset: int

    def as_part(self) -> Part:
        """The state as a part, which sorts before the transactions of its producer."""
        return Part(
            self.producer_id, NONE, "", self.log_partition, self.log_offset, self.epoch, self.status, self.timeout_ms,
            self.version, NONE, NONE, NONE, NONE, NONE, self.started, self.updated, NONE, self.partitions,
            self.transactional_id, NONE,
        )  # fmt: skip

    @classmethod
    def from_part(cls, part: Part) -> CoordinatorState:
        """Reverse :meth:`as_part`."""
        """The state that :meth:`as_part` has turned into a part."""
        return cls(
            part.producer_id, part.transactional_id, part.last_offset, part.batches, part.fate, part.records,
            part.written, part.started, part.size_bytes, part.partition, part.first_offset,
        )  # fmt: skip


class Part(NamedTuple):
    """One transaction on one partition."""

    producer_id: int
    # Epoch of the data; the marker may have the next one.
    epoch: int
    topic: str
    partition: int
    first_offset: int
    # Last offset of the data.
    last_offset: int
    batches: int
    records: int
    size_bytes: int
    marker_offset: int
    marker_epoch: int
    outcome: int
    # The outcome in the coordinator's log; OPEN if that has none.
    decided: int
    coordinator_epoch: int
    started: int
    # Time of the last record.
    written: int
    ended: int
    # ``committed``, ``aborted``, ``open``, ``ending``, ``hanging``, ``unknown``.
    fate: str
    transactional_id: str
    # Offset of the producer's previous marker, if it has the same epoch.
    after_marker: int


PART_ORDER: Final = ("producer_id", "epoch", "topic", "partition", "first_offset")
PART_GROUP: Final = PART_ORDER[:1]


class Finding(NamedTuple):
    """An inconsistency. ``offset`` is in the log of ``topic``-``partition``."""

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


# Kinds of findings, the gravest first.
KINDS: Final = {
    "torn": "a transaction ended differently on different partitions, or not at all on some",
    "lost-marker": "a transaction without its marker, which an unclean election has lost",
    "hanging": "an open transaction that no coordinator will end",
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
# Kinds of notes: nothing is wrong in the logs.
NOTES: Final = {
    "timed-out": "transactions of an id that its coordinator aborted at their time-out, three or more",
    "unused-ids": "transactional ids that are not used again",
}

_ARROW: Final = {"str": pa.string(), "int": pa.int64(), "bool": pa.bool_(), "float": pa.float64()}


def schema_of(row_type: type[Any]) -> pa.Schema:
    return pa.schema([pa.field(name, _ARROW[hint.__forward_arg__]) for name, hint in row_type.__annotations__.items()])


def batches_of(rows: Iterable[Any], row_type: type[Any]) -> Iterator[pa.RecordBatch]:
    """Convert rows to record batches of at most ROWS_PER_BATCH; yields nothing for no rows."""
    schema = schema_of(row_type)
    stream = iter(rows)
    while piece := list(islice(stream, ROWS_PER_BATCH)):
        columns = zip(*piece, strict=True)
        arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def rows_of(batches: Iterable[pa.RecordBatch], row_type: type[Any]) -> Iterator[Any]:
    make = partial(tuple.__new__, row_type)  # avoids the cost of the named tuple's constructor
    for batch in batches:
        yield from map(make, zip(*(column.to_pylist() for column in batch.columns), strict=True))
