"""Steps that read topics: batches, their bounds in offsets and times, values, limits, all that is available now."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tests.spark.conftest import TIME, Topic
from tests.spark.documented_loop import run_documented_loop
from tests.spark.sink.queries import add_input, make_input
from tests.spark.versions.acceptance.snippets import run, snippet
from tests.spark.versions.acceptance.user import User, cut, once
from tests.spark.versions.restarts import kill_group

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming import StreamingQuery

SCHEMA: Final = {
    "key": "binary",
    "value": "binary",
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "timestamp": "timestamp",
    "timestampType": "int",
}
_PUSHDOWN: Final = "spark.sql.python.filterPushdown.enabled"
_CLUSTER: Final = "localhost:9092"


def values_of(frame: DataFrame) -> list[bytes]:
    """The values of a frame, sorted."""
    return sorted(bytes(row.value) for row in frame.select("value").collect())


def batch(user: User) -> None:
    """README's example: columns, every offset once, values."""
    import oncelog.spark

    topic = user.topic("batch", 60)
    changes = {_CLUSTER: user.bootstrap_servers, '"flights"': f'"{topic.name}"'}
    frame = run(snippet("README.md", "df = spark.read", changes), spark=user.spark)["df"]
    assert {entry.name: entry.dataType.simpleString() for entry in frame.schema} == SCHEMA
    rows = frame.collect()
    once([(row.partition, row.offset) for row in rows], [(p, o) for p in (0, 1) for o in range(30)], "offsets")
    once([bytes(row.value) for row in rows], topic.values(), "values")
    assert {row.topic for row in rows} == {topic.name}
    oncelog.spark.register(user.spark)  # where it is found by itself, that is no error
    assert topic.read(user.spark).count() == 60


def bounds(user: User) -> None:
    """Offsets and times to begin and end at; headers, more tasks, filters that are pushed down."""
    topic = user.topic("bounds", 0)
    topic.produce(40, headers=(("h", b"1"),))

    def numbers(**options: object) -> list[int]:
        return sorted(int(value[1:]) for value in values_of(topic.read(user.spark, **options)))

    name = topic.name
    ranges = {
        "startingOffsets": json.dumps({name: {"0": 5, "1": -2}}),
        "endingOffsets": json.dumps({name: {"0": 7, "1": -1}}),
    }
    assert numbers(**ranges) == sorted([10, 12, *range(1, 40, 2)])
    assert numbers(startingTimestamp=TIME + 30_000) == list(range(30, 40))
    by_time = json.dumps({name: {"0": TIME + 38_000, "1": TIME + 35_000}})
    assert numbers(startingOffsetsByTimestamp=by_time) == [35, 37, 38, 39]
    assert numbers(endingTimestamp=TIME + 4_000) == [0, 1, 2, 3]
    late = {"startingTimestamp": TIME + 10**9, "startingOffsetsByTimestampStrategy": "latest"}
    assert numbers(**late) == []
    assert numbers(minPartitions=6) == list(range(40))
    with_headers = topic.read(user.spark, includeHeaders="true").select("headers").first()
    assert with_headers is not None
    assert [(header.key, bytes(header.value)) for header in with_headers.headers] == [("h", b"1")]
    user.spark.conf.set(_PUSHDOWN, "true") if user.version >= (4, 1) else None
    assert topic.read(user.spark, pushdown="true").where("partition = 1 AND offset >= 15").count() == 5
    user.spark.conf.unset(_PUSHDOWN) if user.version >= (4, 1) else None


def values(user: User) -> None:
    """JSON, decoded as the documentation shows it, and strings."""
    topic = user.topic("values")
    expected = [b'{"flight": "LH%d", "dep_delay": %d}' % (number, number) for number in range(5)]
    produce(topic, [*expected, b"no JSON"])
    names = {"df": topic.read(user.spark), "avro_schema": ""}
    code = snippet("docs/spark-source.md", 'decode_values(df, "json"', {})
    rows = run(code[: code.index("orders =")], **names)["flights"].select("value.*").collect()
    result = [(row.flight, row.dep_delay) for row in rows]
    assert sorted(result, key=str) == sorted([*((f"LH{n}", n) for n in range(5)), (None, None)], key=str)
    text = topic.read(user.spark, **{"value.format": "utf8"}).select("value").collect()
    once([row.value for row in text], [item.decode() for item in [*expected, b"no JSON"]], "strings")


def produce(topic: Topic, values: list[bytes]) -> None:
    """Values of one's own, at the end of the first partition."""
    from oncelog.client.blocking import Client
    from oncelog.records.builder import build_batch
    from oncelog.records.record import Record

    with Client(topic.bootstrap_servers) as client:
        client.produce(topic.partition(0), build_batch([Record(-1, TIME, None, value) for value in values]))


class Table:
    """A stream of a topic into Parquet by Spark's own sink."""

    def __init__(self, user: User, topic: Topic, place: Path) -> None:
        self._user, self._topic, self._place = user, topic, place

    def writer(self, **options: object) -> Any:
        """The query, not started."""
        given = {**self._user.options, "subscribe": self._topic.name, "startingOffsets": "earliest", **options}
        frame = self._user.spark.readStream.format("oncelog").options(**given).load()
        into = frame.writeStream.format("parquet").option("path", str(self._place / "table"))
        return into.option("checkpointLocation", str(self._place / "checkpoint"))

    def run(self, **options: object) -> list[int]:
        """Run until everything available now is there; how many offsets each batch took."""
        query: StreamingQuery = self.writer(**options).trigger(availableNow=True).start()
        query.awaitTermination()
        return cut(query)

    def values(self) -> list[bytes]:
        """The values in the table, sorted."""
        return values_of(self._user.spark.read.parquet(str(self._place / "table")))


def limits(user: User) -> None:
    """``maxOffsetsPerTrigger`` of a query that goes on; before Spark 4.2 the first batch has it if it is told to."""
    for name, options in (("limits", {}), ("limits-first", {"limitFirstBatch": "true"})):
        topic, place = user.topic(name, 25, partitions=1), user.place(name)
        table = Table(user, topic, place)
        query = table.writer(maxOffsetsPerTrigger=10, **options).trigger(processingTime="0 seconds").start()
        query.processAllAvailable()
        topic.produce(25)
        query.processAllAvailable()
        taken = cut(query)
        query.stop()
        first = [25] if user.version < (4, 2) and not options else [10, 10, 5]
        assert taken == [*first, 10, 10, 5], f"batches of {taken} offsets with {options}"
        once(table.values(), topic.values(), "values")


def available_now(user: User) -> None:
    """Everything up to the end, in limited batches from Spark 4.2 on; then what is new; and by the documented loop."""
    topic, place = user.topic("now", 25, partitions=1), user.place("now")
    table = Table(user, topic, place)
    taken = table.run(maxOffsetsPerTrigger=10)
    assert taken == ([25] if user.version < (4, 2) else [10, 10, 5]), f"batches of {taken} offsets"
    topic.produce(15)
    assert sum(table.run(maxOffsetsPerTrigger=10)) == 15
    assert table.run(maxOffsetsPerTrigger=10) == []
    topic.produce(35)
    run_documented_loop(table.writer(maxOffsetsPerTrigger=10, limitFirstBatch="true"))
    once(table.values(), topic.values(), "values")


def available_now_killed(user: User) -> None:
    """Everything up to the end although the driver is killed when a batch is planned, and when it is written."""
    from tests.spark.versions.acceptance.killed import Life

    name, place = "now-killed", user.place("now-killed")
    rows = make_input(user.bootstrap_servers, name, 60)
    life = Life(user, name, place)
    for until in ("offsets", "commits"):
        with life.process() as process:
            try:
                life.wait(process, until)
            finally:
                kill_group(process)
        rows += add_input(user.bootstrap_servers, name, 40, len(rows))
    life.finish()
    once(values_of(user.spark.read.parquet(str(place / "table"))), rows, "values")
