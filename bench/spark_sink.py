"""Our exactly-once Spark sink beside Spark's own at-least-once one: the same cached rows, Spark, brokers, turn about.

On oncelog ours commits in two phases, on Apache Kafka by its ledger. Both write binary values without keys to topics of
their own; the rows lie in Spark's cache, so that what is measured is the way out.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.peers.jars import SPARK_CONNECTOR, jars_of

from bench.peers import Broker, Peer, create_topics, delete_topics, running

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

OURS: Final = "oncelog"
THEIRS: Final = "kafka"
SINK_GOAL: Final = "≥ 1.5 ×"
ROWS: Final = {100: 1_500_000, 1000: 200_000}
TASKS: Final = 2
_TWO_PHASE: Final = {"transaction.two.phase.commit.enable": "true"}


def with_two_phase(peer: Peer) -> Peer:
    """The peer with two-phase commit, where it has that."""
    return replace(peer, properties={**peer.properties, **_TWO_PHASE})


class Sinks:
    """Cached rows of each size, and brokers to write them to."""

    def __init__(self, spark: SparkSession, brokers: Mapping[str, Broker], scale: float) -> None:
        self._brokers = brokers
        self._frames: dict[int, tuple[DataFrame, int]] = {}
        for size, rows in ROWS.items():
            count = max(1000, int(rows * scale))
            text = f"rpad(cast(id as string), {size}, 'some text that is not all the same ')"
            frame = spark.range(0, count, 1, TASKS).selectExpr(f"cast({text} as binary) as value").cache()
            self._frames[size] = (frame, frame.count())

    def figures(self, format_name: str, number: int) -> dict[str, float]:
        """Rows a second of one sink."""
        found = {}
        for name, broker in self._brokers.items():
            for size, (frame, rows) in self._frames.items():
                (topic,) = create_topics(broker, 1, 1, f"sink-{format_name}-{size}-{number}-{time.time_ns()}")
                writer = frame.write.format(format_name).option("kafka.bootstrap.servers", broker.bootstrap_servers)
                started = time.perf_counter()
                writer.option("topic", topic).mode("append").save()
                found[f"{label(name, size)}, rows/s"] = rows / (time.perf_counter() - started)
                delete_topics(broker, [topic])
        return found


def label(broker: str, size: int) -> str:
    """For a table."""
    return f"to {broker}: {size} B"


def sink_goals(names: tuple[str, ...]) -> dict[str, str]:
    """The goals for each figure."""
    return {f"{label(name, size)}, rows/s": SINK_GOAL for name in names for size in ROWS}


@contextlib.contextmanager
def sinks(peers: tuple[Peer, ...], directory: Path, scale: float) -> Iterator[Sinks]:
    """Spark and the brokers, ready. Raises RuntimeError where Spark's own connector is not to be had."""
    from oncelog.spark.local_session import local_session

    missing = SPARK_CONNECTOR.missing()
    if missing:
        raise RuntimeError(missing)
    config = {"spark.jars": ",".join(map(str, jars_of(SPARK_CONNECTOR))), "spark.driver.memory": "3g"}
    with contextlib.ExitStack() as stack:
        brokers = {peer.name: stack.enter_context(running(peer.broker(directory))) for peer in peers}
        spark = stack.enter_context(local_session(master=f"local[{TASKS}]", config=config))
        spark.sparkContext.setLogLevel("ERROR")
        yield Sinks(spark, brokers, scale)
