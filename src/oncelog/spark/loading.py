"""Topics → a table directory, exactly once.

A load asks where each topic's log ends now, plans from the table's own files what is missing (``load_plan``), and
reads it in steps: one Spark job per step through the batch source, a task per range, written by Spark's Parquet
writer into a hidden staging directory; then the driver checks each file's footer and publishes it by one rename, which
commits its rows and its offsets together (``table``, ADR 0001). Killed anywhere, the next run finds the table at a
whole number of files and goes on from their names. The batch source, not the stream: the table is the checkpoint.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

from oncelog.base.ids import TopicPartition, uuid_text
from oncelog.client.blocking import Client
from oncelog.spark.errors import OptionError
from oncelog.spark.load_plan import (
    DEFAULT_ROWS_PER_STEP,
    PartitionPlan,
    PartitionState,
    Piece,
    plan_partition,
    steps_of,
)
from oncelog.spark.offsets import Planner, open_client
from oncelog.spark.options import SourceOptions, parse_options
from oncelog.spark.parquet import check_staged, merge_kept, write_empty
from oncelog.spark.table import RowsFile, Table, TableError, topic_label

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class LoadRequest:
    """What to load. ``options`` are the source's own (``kafka.*`` among them)."""

    topics: tuple[str, ...]
    to: Path
    options: Mapping[str, str]
    from_ms: int | None = None
    rows_per_step: int = DEFAULT_ROWS_PER_STEP


@dataclass(frozen=True, slots=True)
class Event:
    """Progress: ``planned``, then for each step ``written``, for each file ``published``; ``rows`` are so far."""

    kind: Literal["planned", "writing", "written", "publishing", "published", "committed"]
    step: int
    offsets_done: int
    offsets_total: int
    rows: int


@dataclass(slots=True)
class PartitionReport:
    """What a load did with one partition: new offsets ``start`` to ``end`` (exclusive), and files replaced."""

    topic: str
    partition: int
    start: int
    end: int
    rows: int = 0
    replaced_files: int = 0


@dataclass(slots=True)
class LoadReport:
    """What a load did. ``rows`` counts rows read, those of replaced files included."""

    directory: str
    rows: int = 0
    steps: int = 0
    files: int = 0
    seconds: float = 0.0
    partitions: list[PartitionReport] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


class Source(Protocol):
    """The log as a load sees it."""

    def states(self, table: Table) -> list[PartitionState]:
        """All partitions, as they are now."""

    def topic_ids(self) -> dict[str, str]:
        """Each topic's id, "" where the cluster has none."""


class Writer(Protocol):
    """Whoever writes the rows of ranges into files: Spark."""

    parallelism: int

    def write(self, pieces: Sequence[Piece], directory: Path) -> dict[int, Path]:
        """Write each piece's rows into one new file in ``directory``; index of the piece → file, empty ones absent."""


def load(
    topics: str | Sequence[str],
    bootstrap_servers: str,
    to: str | Path,
    *,
    spark: SparkSession | None = None,
    from_ms: int | None = None,
    rows_per_step: int = DEFAULT_ROWS_PER_STEP,
    options: Mapping[str, str] | None = None,
    on_event: Callable[[Event], None] = lambda event: None,
) -> LoadReport:
    """Load everything new of ``topics`` into the Parquet table at ``to``, each record exactly once.

    ``from_ms``: load rows from that time (milliseconds since the epoch) on anew, in place of those already there.
    ``options``: the source's, e.g. ``{"includeHeaders": "true", "failOnDataLoss": "false"}``; aborted transactions are
    left out unless ``kafka.isolation.level`` says otherwise. Without ``spark`` a local session is started and stopped.
    Raises SparkSourceError (DataLoss, OptionError, TableError) and ClientError, each one line.
    """
    names = (topics,) if isinstance(topics, str) else tuple(dict.fromkeys(topics))
    if not names:
        raise OptionError("no topic to load")
    given = {
        "kafka.isolation.level": "read_committed",
        **(options or {}),
        "kafka.bootstrap.servers": bootstrap_servers,
        "subscribe": ",".join(names),
    }
    request = LoadRequest(names, Path(to), given, from_ms, rows_per_step)
    parsed = parse_options(given)
    source = ClusterSource(parsed, request)
    source.topic_ids()  # a wrong address or topic fails before a directory is made
    with Table.open(request.to) as table, ExitStack() as stack:

        def start_writer() -> Writer:
            from oncelog.spark.session import local_session
            from oncelog.spark.spark_writer import SparkWriter

            log = request.to / "_oncelog" / "spark.log"
            return SparkWriter(spark or stack.enter_context(local_session(log=log)), request.options)

        return run_load(table, source, start_writer, request, parsed, on_event)


def run_load(
    table: Table,
    source: Source,
    start_writer: Callable[[], Writer],
    request: LoadRequest,
    options: SourceOptions,
    on_event: Callable[[Event], None],
) -> LoadReport:
    """The load itself, whoever provides the log and writes the files; ``start_writer`` is called if there is work."""
    started = time.monotonic()
    _check_same_table(table, source.topic_ids(), options)
    states = source.states(table)
    plans = [plan_partition(state, fail_on_data_loss=options.fail_on_data_loss) for state in states]
    run = _Run(table, options, on_event, sum(plan.size for plan in plans), _reports(states, plans))
    run.tell("planned")
    if any(plan.replaced or plan.filled or plan.appended for plan in plans):
        writer = start_writer()
        for pieces in steps_of(plans, request.rows_per_step, writer.parallelism):
            run.carry_out(pieces, writer)
    if states and not table.files():
        run.publish_empty(RowsFile.of(states[0].partition, states[0].earliest, states[0].earliest))
    run.report.seconds = round(time.monotonic() - started, 3)
    return run.report


def _reports(states: Sequence[PartitionState], plans: Sequence[PartitionPlan]) -> LoadReport:
    report = LoadReport("")
    for state, plan in zip(states, plans, strict=True):
        start = plan.appended[0].start if plan.appended else (state.position or state.earliest)
        end = plan.appended[-1].end if plan.appended else start
        report.partitions.append(
            PartitionReport(*state.partition, start, end, replaced_files=len(plan.replaced)),
        )
    return report


class _Run:
    """One load under way: what is done so far."""

    def __init__(
        self,
        table: Table,
        options: SourceOptions,
        on_event: Callable[[Event], None],
        offsets_total: int,
        report: LoadReport,
    ) -> None:
        self._table, self._options, self._on_event = table, options, on_event
        self._offsets_done, self._offsets_total = 0, offsets_total
        self.report = report
        report.directory = str(table.path)
        self._by_partition = {(one.topic, one.partition): one for one in report.partitions}

    def tell(self, kind: Literal["planned", "writing", "written", "publishing", "published", "committed"]) -> None:
        """Report progress; what is told is what has happened, or is about to."""
        self._on_event(Event(kind, self.report.steps, self._offsets_done, self._offsets_total, self.report.rows))

    def carry_out(self, pieces: Sequence[Piece], writer: Writer) -> None:
        """One step: write all pieces, check them all, then publish them one by one in their order."""
        directory = self._table.staging(self.report.steps)
        self.tell("writing")
        files = writer.write(pieces, directory)
        self.tell("written")
        rows = [self._prepare(piece, index, files, directory) for index, piece in enumerate(pieces)]
        for index, piece in enumerate(pieces):
            self.tell("publishing")
            self._table.publish(files[index], piece.file)
            self.report.files += 1
            self.report.rows += rows[index]
            self._by_partition[piece.wanted.topic, piece.wanted.partition].rows += rows[index]
            self._offsets_done += piece.wanted.size
            self.tell("published")
        self.report.steps += 1
        self.tell("committed")

    def publish_empty(self, file: RowsFile) -> None:
        """So that a table of topics without records can be read: no rows, but columns."""
        directory = self._table.staging(self.report.steps)
        directory.mkdir()
        write_empty(directory / "empty.parquet", include_headers=self._options.include_headers)
        self._table.publish(directory / "empty.parquet", file)
        self.report.files += 1

    def _prepare(self, piece: Piece, index: int, files: dict[int, Path], directory: Path) -> int:
        """Let ``files[index]`` be what is to be published for the piece; the number of rows read for it."""
        if index not in files:
            files[index] = directory / f"empty-{index}.parquet"
            write_empty(files[index], include_headers=self._options.include_headers)
        facts = check_staged(files[index], piece)
        if piece.keeps_rows:
            merged = directory / f"merged-{index}.parquet"
            merge_kept(self._table.path_of(piece.file), files[index], piece.wanted.start, merged)
            files[index] = merged
        return facts.rows


def _check_same_table(table: Table, topic_ids: Mapping[str, str], options: SourceOptions) -> None:
    """Refuse to continue a table with other columns, or with a topic that was deleted and created again."""
    described = table.describe()
    settings = {"includeHeaders": options.include_headers, "read_committed": options.read_committed}
    for name, value in settings.items():
        if described.get(name, value) != value:
            raise TableError(f"the table at {table.path} was loaded with {name} {described[name]}; it has to stay so")
    known: dict[str, str] = described.get("topics", {})
    for topic, topic_id in topic_ids.items():
        if known.get(topic, topic_id) != topic_id:
            raise TableError(
                f"topic {topic!r} was deleted and created anew since it was loaded into {table.path}: "
                "its offsets began again. Load it into another directory."
            )
    merged = {**known, **topic_ids}
    if merged != known:
        table.describe_as({**settings, "topics": merged})


class ClusterSource:
    """The log as the cluster has it."""

    def __init__(self, options: SourceOptions, request: LoadRequest) -> None:
        self._options, self._request = options, request

    def topic_ids(self) -> dict[str, str]:
        """Ids as Apache Kafka prints them."""
        with open_client(self._options) as client:
            infos = [client.topic(topic) for topic in self._request.topics]
        return {info.name: uuid_text(info.topic_id) if any(info.topic_id) else "" for info in infos}

    def states(self, table: Table) -> list[PartitionState]:
        """Every partition's files, log start and end, and offset at the time asked for."""
        with open_client(self._options) as client:
            planner = Planner(client, self._options)
            partitions = planner.partitions()
            earliest, latest = planner.earliest(partitions), planner.latest(partitions)
            since = self._offsets_at(client, partitions, latest)
        files = table.files()
        return [
            PartitionState(
                one, files.get((topic_label(one.topic), one.partition), []), earliest[one], latest[one], since.get(one)
            )
            for one in partitions
        ]

    def _offsets_at(
        self, client: Client, partitions: list[TopicPartition], latest: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        if self._request.from_ms is None:
            return {}
        listed = client.list_offsets(
            dict.fromkeys(partitions, self._request.from_ms), read_committed=self._options.read_committed
        )
        return {one: listed[one].offset if listed[one].offset >= 0 else latest[one] for one in partitions}


def ranges_option(pieces: Sequence[Piece]) -> str:
    """The source's ``ranges`` option for some pieces, in their order."""
    return json.dumps([[one.wanted.topic, one.wanted.partition, one.wanted.start, one.wanted.end] for one in pieces])
