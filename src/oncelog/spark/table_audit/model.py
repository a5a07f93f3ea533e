"""The history of a table as the audit sees it, and its findings. Offsets are inclusive, times in milliseconds."""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, Protocol

from oncelog.base.ids import TopicPartition
from oncelog.spark.table.directory import TableError
from oncelog.spark.targets.table_target import Spans

KINDS: Final = {
    "aborted-rows": "rows whose records belong to aborted transactions",
    "unknown-rows": "rows at offsets where the topic has no record, or that are beyond its end",
    "duplicate-rows": "offsets that more than one row has",
    "registered-twice": "a file that the current snapshot lists twice: its rows are read twice",
    "open-rows": "rows whose records belong to transactions that are still open",
    "missing-rows": "committed records within the table's offsets that no row has",
    "control-topic": "the sink's control topic does not fit the table's offsets: files are lost, or will be skipped",
    "outside-commit": "a file with offsets that its commit does not record",
    "overlap": "files of different commits that cover the same offsets of a partition",
    "went-back": "a commit records an earlier offset than the one before it",
    "gap": "offsets between two commits that neither records",
    "commit-twice": "a batch or a sink's commit that two commits of the table carry",
    "stale-commit": "a sink's commit added files although its control offsets did not move",
    "registered-again": "a file that two snapshots of one line added",
    "valid-through-back": "a sink's commit promises completeness up to an earlier time than the one before it",
}
"""Kinds of findings with their meanings, worst first."""
ORDER: Final = {kind: index for index, kind in enumerate(KINDS)}
_INTEGERS: Final = frozenset({"int", "long", "integer", "short", "byte"})
_DAMAGE: Final = (ValueError, TypeError, KeyError, AttributeError, ArithmeticError, struct.error)


@contextlib.contextmanager
def naming_damage(place: str) -> Iterator[None]:
    # Metadata may hold anything. An error that comes of it becomes a TableError that names the place.
    try:
        yield
    except _DAMAGE as error:
        text = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise TableError(f"{place} cannot be read: {type(error).__name__}: {text}") from error


class FileRange(NamedTuple):
    """The offsets of a file whose rows are of one partition, by its column statistics."""

    partition: TopicPartition
    first: int
    last: int


class FileEntry(NamedTuple):
    path: str
    commit: int
    """The position of the commit that added it in ``History.commits``; −1 if that has expired."""
    rows: int
    range: FileRange | None


class Place(NamedTuple):
    """The columns that hold a row's topic, partition and offset; dots lead into structs."""

    topic: str
    partition: str
    offset: str


PLACES: Final = (
    Place("topic", "partition", "offset"),
    Place("_kafka_metadata.topic", "_kafka_metadata.partition", "_kafka_metadata.offset"),
    Place("_kafka_metadata_topic", "_kafka_metadata_partition", "_kafka_metadata_offset"),
)
"""The columns of oncelog and Spark's Kafka source, and those of KafkaMetadataTransform of Kafka Connect's sink."""


def is_place(topic: object, partition: object, offset: object) -> bool:
    # Types as Iceberg or Delta name them.
    return str(topic) == "string" and str(partition) in _INTEGERS and str(offset) in _INTEGERS


def no_place(table: str, columns: Place, names: Sequence[str]) -> str:
    return (
        f"{table} has no columns {', '.join(columns)} of types string, integer and integer: it has {', '.join(names)}"
    )


@dataclass(frozen=True, slots=True)
class Commit:
    name: str
    """A snapshot's id, or a version."""
    parent: str | None
    time_ms: int
    operation: str
    appends: bool
    """True if it only adds rows: no compaction, deletion or replacement."""
    adds_files: bool
    recorded: Callable[[], Spans] | None = None
    """Parses ``spans``; kept unparsed, as a table may have thousands of commits of hundreds of partitions."""
    has_all_partitions: bool = True
    """True if ``spans`` has partitions that the commit did not move, too."""
    control: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    """Next offsets of a control topic's partitions, by ``TOPIC.GROUP``, where Kafka Connect's sink wrote it."""
    connect: Mapping[str, str] = field(default_factory=dict)
    """Other entries of the sink: ``commit-id``, ``task-id``, ``valid-through-ts``."""
    applications: Mapping[str, int] = field(default_factory=dict)
    """Spark's batches by query (Delta: by application id of any ``txn`` action but oncelog's)."""

    @property
    def spans(self) -> Spans | None:
        """The offsets of partitions after the commit, where oncelog wrote it."""
        return None if self.recorded is None else self.recorded()

    @property
    def writer(self) -> str:
        if self.recorded is not None:
            return "oncelog"
        if self.control or self.connect:
            return "Kafka Connect"
        return "an application" if self.applications else "unknown"


class History(Protocol):
    """A table's commits and files. Files are streamed: their number may be large."""

    @property
    def name(self) -> str:
        """The address, for messages."""

    @property
    def place(self) -> Place | None:
        """None if no columns hold offsets."""

    @property
    def commits(self) -> Sequence[Commit]:
        """All commits that the table still has, oldest first."""

    @property
    def caveats(self) -> list[str]:
        """Parts that could not be judged."""

    def lines(self) -> list[list[int]]:
        """For each branch the positions of its commits, oldest first."""

    def added(self, commit: int) -> Iterator[FileEntry]:
        """The data files that a commit added. Raises TableError."""

    def live(self) -> Iterator[FileEntry]:
        """The data files of the current state; one that is listed twice comes twice. Raises TableError."""

    def read(self) -> Iterator[tuple[str, Iterator[Any]]]:
        """Every live file's path with the Arrow batches of its rows, columns as in ``place``. Raises TableError."""

    def read_file(self, path: str) -> Iterator[Any]:
        """The batches of one live file. Raises TableError."""


@dataclass(frozen=True, slots=True)
class Finding:
    kind: str
    text: str
    commit: str | None = None
    time_ms: int | None = None
    topic: str | None = None
    partition: int | None = None
    first_offset: int | None = None
    last_offset: int | None = None
    rows: int | None = None
    files: tuple[str, ...] = ()


@dataclass(slots=True)
class Findings:
    """Findings with numbers by kind; of each kind only the first are kept."""

    most: int = 1000
    kept: list[Finding] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)

    def add(self, finding: Finding) -> None:
        count = self.counts.get(finding.kind, 0)
        self.counts[finding.kind] = count + 1
        if count < self.most:
            self.kept.append(finding)

    def worst_first(self) -> list[Finding]:
        return sorted(self.kept, key=lambda finding: (ORDER[finding.kind], -(finding.rows or 0)))
