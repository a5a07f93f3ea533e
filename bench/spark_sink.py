"""Our exactly-once Spark sink beside Spark's own at-least-once one: the same cached rows, Spark, brokers, turn about.

On oncelog ours commits in two phases, on Apache Kafka by its ledger. Both write binary values without keys to topics of
their own; the rows lie in Spark's cache, so that what is measured is the way out. A third sink drops what it gets
(`bench.spark_ceiling`): what Spark makes of that is the most that any Python sink can reach.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from tests.peers.jars import SPARK_CONNECTOR, jars_of

from bench.options import progress
from bench.peers import Broker, Peer, create_topics, delete_topics, running
from bench.spark_ceiling import Ceiling
from bench.spark_processes import PeakMemory, calmest, cpu_seconds, machine_seconds, peak_memory

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameWriter, SparkSession

OURS: Final = "oncelog"
THEIRS: Final = "kafka"
NOTHING: Final = "ceiling"
SINK_GOAL: Final = "≥ 2.0 ×"
ROWS: Final = {100: 1_500_000, 1000: 200_000}
TASKS: Final = 2
WARM_UP: Final = 3
"""Rounds until Spark's JVM has compiled what both sinks run."""
_TWO_PHASE: Final = {"transaction.two.phase.commit.enable": "true"}


def with_two_phase(peer: Peer) -> Peer:
    """The peer with two-phase commit, where it has that."""
    return replace(peer, properties={**peer.properties, **_TWO_PHASE})


class Writing(NamedTuple):
    """The time and the cost of one write."""

    elapsed_s: float
    spark_cpu_s: float
    broker_cpu_s: float
    memory: PeakMemory
    others_cores: float
    """Cores that neither Spark nor the broker used: on a machine that is not left alone no ratio means much."""


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
        """Rows a second and processor time of one sink, for ours beside a sink that drops everything. Rounds with a
        negative ``number`` warm up."""
        results = {}
        measured = calmest if number >= 0 else _once
        for size, (frame, rows) in self._frames.items():
            nothing = measured(partial(self._dropped, frame)) if format_name == OURS else None
            for name, broker in self._brokers.items():
                written = measured(partial(self._written, format_name, broker, frame, f"{size}-{number}"))
                results |= _figures(label(name, size), written, nothing, rows)
        progress(f"  {format_name}: " + ", ".join(f"{key} {value:,.2f}" for key, value in results.items()))
        return results

    def _written(self, format_name: str, broker: Broker, frame: DataFrame, name: str) -> Writing:
        (topic,) = create_topics(broker, 1, 1, f"sink-{format_name}-{name}-{time.time_ns()}")
        writer = frame.write.format(format_name).option("kafka.bootstrap.servers", broker.bootstrap_servers)
        try:
            return self._measured(lambda: _save(writer.option("topic", topic)), broker)
        finally:
            delete_topics(broker, [topic])

    def _dropped(self, frame: DataFrame) -> Writing:
        return self._measured(lambda: _save(frame.write.format(NOTHING)), None)

    def _measured(self, write: Callable[[], None], broker: Broker | None) -> Writing:
        def used() -> tuple[float, float, float]:
            brokers = sum(broker.process.cpu_seconds() for broker in self._brokers.values())
            here = cpu_seconds(os.getpid()) - brokers
            return here, broker.process.cpu_seconds() if broker is not None else 0.0, machine_seconds()

        before, started = used(), time.perf_counter()
        with peak_memory(os.getpid()) as peak:
            write()
            elapsed = time.perf_counter() - started
        here, of_broker, machine = (after - earlier for after, earlier in zip(used(), before, strict=True))
        others = max(0.0, machine - here - of_broker) / (time.perf_counter() - started)
        return Writing(elapsed, here, of_broker, peak, others)


def _once(measure: Callable[[], Writing]) -> Writing:
    return measure()


def _save(writer: DataFrameWriter) -> None:
    writer.mode("append").save()


def _figures(name: str, written: Writing, nothing: Writing | None, rows: int) -> dict[str, float]:
    result = {
        f"{name}, rows/s": rows / written.elapsed_s,
        f"{name}, Spark's CPU µs/row": written.spark_cpu_s / rows * 1e6,
        f"{name}, the broker's CPU µs/row": written.broker_cpu_s / rows * 1e6,
        f"{name}, cores that others used": written.others_cores,
    }
    if nothing is not None:
        result |= {
            f"{name}, peak memory of a worker, MB": written.memory.worker_bytes / 1e6,
            f"{name}, rows/s, ours of dropping them": nothing.elapsed_s / written.elapsed_s,
            f"{name}, Spark's CPU µs/row, dropping them": nothing.spark_cpu_s / rows * 1e6,
        }
    return result


def label(broker: str, size: int) -> str:
    """For a table."""
    return f"to {broker}: {size} B"


def sink_goals(names: tuple[str, ...]) -> dict[str, str]:
    """The goals for each figure."""
    return {f"{label(name, size)}, rows/s": SINK_GOAL for name in names for size in ROWS}


@contextlib.contextmanager
def sinks(peers: tuple[Peer, ...], directory: Path, scale: float) -> Iterator[Sinks]:
    """Spark and the brokers, ready. Raises RuntimeError where Spark's own connector is not to be had."""
    from oncelog.spark.session.local_session import local_session

    missing = SPARK_CONNECTOR.missing()
    if missing:
        raise RuntimeError(missing)
    config = {"spark.jars": ",".join(map(str, jars_of(SPARK_CONNECTOR))), "spark.driver.memory": "3g"}
    with contextlib.ExitStack() as stack:
        brokers = {peer.name: stack.enter_context(running(peer.broker(directory))) for peer in peers}
        spark = stack.enter_context(local_session(master=f"local[{TASKS}]", config=config))
        spark.sparkContext.setLogLevel("ERROR")
        spark.dataSource.register(Ceiling)
        yield Sinks(spark, brokers, scale)
