"""Benchmarks of what reads and writes data in bulk: Arrow, Spark, and the audit of segments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from bench.arrow import ARROW_GOALS, measured
from bench.audit import measure as measure_audit
from bench.options import Options, progress
from bench.peers import Broker, delete_topics, running
from bench.report import Comparison, Figures, narrowed, paired
from bench.side_by_side import temporary_directory
from bench.spark_sink import OURS as OUR_SINK
from bench.spark_sink import THEIRS as THEIR_SINK
from bench.spark_sink import WARM_UP as SINK_WARM_UP
from bench.spark_sink import sink_goals, sinks, with_two_phase
from bench.spark_source import all_sides, chosen, fill_topic, round_of, said
from bench.spark_source import goals as source_goals
from bench.workloads import fill


def arrow(options: Options) -> Comparison:
    """oncelog.read_arrow beside confluent-kafka put into Arrow columns, against both brokers (--only)."""
    comparison = Comparison("Topics to Arrow", "oncelog.read_arrow", "confluent-kafka")
    sizes, codecs = narrowed(options.only, {"100b": 100, "1000b": 1000}, {"none": "none", "lz4": "lz4"})
    cases = [(size, codec) for size in sizes for codec in codecs]
    with (
        temporary_directory() as directory,
        running(options.ours.broker(directory)) as ours,
        running(options.theirs.broker(directory)) as theirs,
    ):
        filled_: list[tuple[Broker, str, int, str]] = []
        for peer, broker in ((options.ours, ours), (options.theirs, theirs)):
            for size, codec in cases:
                count = options.scaled(3_000_000 if size == 100 else 600_000) // 1000 * 1000
                topic = f"arrow-{size}-{codec}"
                fill(broker, topic, size, count, partitions=1, codec=codec)
                filled_.append((broker, topic, count, f"{peer.name}: {size} B, {codec}"))

        def side(client: str) -> Callable[[int], Figures]:
            return lambda _: {
                name: value
                for broker, topic, count, label in filled_
                for name, value in measured(client, broker, topic, count, label).items()
            }

        comparison.goals = {
            f"{label}, {what}": goal for _, _, _, label in filled_ for what, goal in ARROW_GOALS.items()
        }
        return paired(comparison, (side("oncelog"), side("confluent-kafka")), options.repeat, progress)


_SPARK_WARM_UP: Final = 3
"""Rounds until Spark's JVM has compiled what all cases run, which on two cores takes a fifth of a round's time."""


def spark_sink(options: Options) -> Comparison:
    """Our exactly-once Spark sink beside Spark's own Kafka connector's at-least-once one, to both brokers."""
    peers = (with_two_phase(options.ours), options.theirs)
    goals = sink_goals(tuple(peer.name for peer in peers))
    comparison = Comparison("Spark to topics", "oncelog sink, exactly once", "JVM connector, at least once", goals)
    with temporary_directory() as directory, sinks(peers, directory, options.scale) as both:
        for number in range(-SINK_WARM_UP, 0):
            for name in (OUR_SINK, THEIR_SINK):
                both.figures(name, number)
        sides = (lambda number: both.figures(OUR_SINK, number), lambda number: both.figures(THEIR_SINK, number))
        return paired(comparison, sides, options.repeat, progress)


def spark_source(options: Options) -> Comparison:
    """The Spark source beside Spark's own Kafka connector, to noop and to Parquet, on one broker (--theirs, --only)."""
    cases, sinks = chosen(options.only)
    comparison = Comparison(
        f"Spark reads {options.theirs.name}", "oncelog", "the JVM connector", source_goals(cases, sinks)
    )
    with (
        temporary_directory() as directory,
        running(options.theirs.broker(directory)) as broker,
        all_sides(options.spark_settings) as sides,
    ):
        rounds: list[tuple[dict[str, float], dict[str, float]]] = [({}, {}) for _ in range(options.repeat)]
        for case in cases:
            topic = fill_topic(broker, case, options.scale)
            warm_up = _SPARK_WARM_UP if case is cases[0] else 1
            for number in range(-warm_up, options.repeat):  # the first rounds warm up compilers and caches
                progress(f"{comparison.title}: {case.label}: {max(0, number + 1)} of {options.repeat}")
                mine, other = round_of(sides, broker, case, sinks, topic, directory)
                progress(said(mine, other))
                if number >= 0:
                    rounds[number][0].update(mine)
                    rounds[number][1].update(other)
            delete_topics(broker, [topic[0]])
    for mine, other in rounds:
        comparison.add(mine, other)
    return comparison


def audit(options: Options) -> Comparison:
    """`oncelog audit` reading segments: MB/s a core, beside a naive reader."""
    return measure_audit(options.repeat, options.scale, progress)
