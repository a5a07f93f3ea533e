"""Streaming queries from one topic to another, to be killed and started again, and what is in the end in the topic."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from oncelog.admin.topics import NewTopic, create_topic
from oncelog.base.ids import TopicName, TopicPartition
from oncelog.client.blocking import Client, FetchSettings, read_fetched
from oncelog.records.builder import build_batch
from oncelog.records.record import Record
from oncelog.spark.session import versions
from tests.waiting import HANG_S

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

TWO_PHASE = {"transaction.two.phase.commit.enable": "true"}
PATIENT = {f"kafka.{name}": str(HANG_S * 1000) for name in ("bootstrap.timeout.ms", "default.api.timeout.ms")}
"""For a broker that is killed and started again: a task that begins meanwhile would give up after two seconds, in which
a busy machine starts none."""


def make_input(bootstrap_servers: str, topic: str, rows: int, partitions: int = 2) -> list[bytes]:
    """A topic with numbered values; the values."""
    with Client(bootstrap_servers) as client:
        create_topic(client, NewTopic(topic, partitions, configs={"retention.ms": "-1"}))
    return sorted(add_input(bootstrap_servers, topic, rows, 0))


def add_input(bootstrap_servers: str, topic: str, rows: int, first: int) -> list[bytes]:
    """More rows of a topic, numbered from ``first`` on; their values."""
    with Client(bootstrap_servers) as client:
        partitions = len(client.topic(topic).partitions)
        values = [b"row %d" % number for number in range(first, first + rows)]
        for partition in range(partitions):
            records = [Record(-1, 1_700_000_000_000, None, value) for value in values[partition::partitions]]
            client.produce(TopicPartition(TopicName(topic), partition), build_batch(records))
    return values


def committed_values(bootstrap_servers: str, topic: str) -> list[bytes]:
    """The values that a read_committed consumer gets, up to the high watermark; fails if a transaction is left open."""
    with Client(bootstrap_servers) as client:
        partitions = [TopicPartition(TopicName(topic), number) for number in client.topic(topic).partitions]
        for attempt in range(20):  # EndTxn is answered before the markers are written
            ends = client.list_offsets(dict.fromkeys(partitions, -1))
            stable = client.list_offsets(dict.fromkeys(partitions, -1), read_committed=True)
            held = {p: one.offset for p, one in stable.items() if one.offset != ends[p].offset}
            if not held:
                break
            client.pause(attempt)
        assert not held, "a transaction was left open"
        fetched = client.fetch(
            dict.fromkeys(partitions, 0),
            until={partition: one.offset for partition, one in ends.items()},
            settings=FetchSettings(read_committed=True, max_wait_ms=20),
        )
        return sorted(bytes(r.value or b"") for item in fetched for r in read_fetched(item, read_committed=True))


class Copy:
    """One query; every start goes on from its checkpoint."""

    def __init__(self, spark: SparkSession, bootstrap_servers: str, source: str, sink: str, directory: Path) -> None:
        self.spark, self.bootstrap_servers = spark, bootstrap_servers
        self.source, self.sink = source, sink
        self.checkpoint = directory / "checkpoint"
        self.points = directory / "points"
        self.points.mkdir(parents=True, exist_ok=True)
        self.options: dict[str, str] = {}
        self.rows_per_epoch = 40
        self.trigger: dict[str, Any] = {"availableNow": True}
        self.has_moved = False
        """True if the last run had a batch with offsets in it."""
        self.failures: list[str] = []
        """Of runs that ``run_to_the_end`` has followed by another."""

    def order(self, *names: str, what: str = "") -> None:
        """Processes that reach these points die, one each, or what ``points`` says."""
        for name in names:
            (self.points / name).write_text(what)

    @property
    def ordered(self) -> list[str]:
        """Points that nobody has reached yet."""
        return sorted(path.name for path in self.points.iterdir() if not path.suffix and not path.name.startswith("."))

    def was_held(self, name: str) -> bool:
        """True if a process has waited at a fault point."""
        return (self.points / f".{name}.held").exists()

    def start(self) -> StreamingQuery:
        """Start it; it ends by itself when all that is there was copied, before Spark 4.2 after one batch."""
        rows = (
            self.spark.readStream.format("oncelog")
            .option("kafka.bootstrap.servers", self.bootstrap_servers)
            .options(**PATIENT)
            .option("subscribe", self.source)
            .option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", self.rows_per_epoch)
            .option("limitFirstBatch", "true")
            .load()
        )
        return (
            rows.select("value")
            .writeStream.format("oncelog")
            .option("kafka.bootstrap.servers", self.bootstrap_servers)
            .options(**PATIENT)
            .option("topic", self.sink)
            .option("checkpointLocation", str(self.checkpoint))
            .option("oncelog.testing.points", str(self.points))
            .options(**self.options)
            .trigger(**self.trigger)
            .start()
        )

    def run(self) -> str | None:
        """Start it, until it ends; what it failed with."""
        return self.end(self.start())

    def end(self, query: StreamingQuery) -> str | None:
        """Wait until a run ends; what it failed with."""
        try:
            query.awaitTermination()
        except Exception as error:  # noqa: BLE001 - whatever a killed process is reported as
            return str(error)
        sources = [source for progress in query.recentProgress for source in progress["sources"]]
        self.has_moved = any(source["startOffset"] != source["endOffset"] for source in sources)
        return None

    @property
    def is_at_the_end(self) -> bool:
        """True if the last run left nothing that was there; before Spark 4.2 only one without offsets tells."""
        return versions.has_admission_control() or not self.has_moved

    def run_to_the_end(self, lives: int = 20) -> None:
        """Again and again until nothing fails and nothing is left."""
        for _ in range(lives):
            failure = self.run()
            if failure is not None:
                self.failures.append(failure)
            elif self.is_at_the_end:
                return
        raise AssertionError(f"not at the end after {lives} lives, with the failures {self.failures}")
