"""The benchmarks: each compares two peers on one question and returns its comparison."""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from bench import aborted
from bench.arrow import ARROW_GOALS, measured
from bench.audit import measure as measure_audit
from bench.clients import client_figures
from bench.clusters.lines import CLUSTER_BENCHMARKS
from bench.console import CONSOLE_BENCHMARKS
from bench.everyday import PARTITIONS, cases, everyday_figures
from bench.everyday import goals as everyday_goals
from bench.hanging import FINDING_GOALS, figures, filled, ours_s, theirs_s
from bench.mirrors import mirror, mirror_1000
from bench.old_logs import import_old_logs
from bench.options import Options, progress
from bench.peers import (
    ONCELOG,
    ONCELOG_SYNCED,
    Broker,
    Peer,
    create_topics,
    delete_topics,
    running,
)
from bench.quotas import quotas
from bench.report import Comparison, Figures, narrowed, paired
from bench.sasl_logins import LOGIN_GOALS, Secured, secured_kafka, secured_oncelog
from bench.sasl_logins import figures as login_figures
from bench.spark_load import spark_load
from bench.spark_memory import spark_memory
from bench.spark_sink import OURS as OUR_SINK
from bench.spark_sink import THEIRS as THEIR_SINK
from bench.spark_sink import WARM_UP as SINK_WARM_UP
from bench.spark_sink import sink_goals, sinks, with_two_phase
from bench.spark_source import all_sides, chosen, fill_topic, round_of, said
from bench.spark_source import goals as source_goals
from bench.spark_versions import spark_versions
from bench.start import START_GOALS, bare_figures, serve_figures
from bench.tls import TLS_BENCHMARKS
from bench.transactions import (
    committed_throughput,
    loaded_s,
    small_figures,
    small_transactions,
    transactional_producer,
    write_ids,
)
from bench.workloads import consume, fill, latencies_ms, percentile, produce, touch_all

_SPARK_WARM_UP: Final = 3
"""Rounds until Spark's JVM has compiled what all cases run, which on two cores takes a fifth of a round's time."""
_SHORTEST_SCAN_S: Final = 0.05
"""A difference of two start times that is shorter says only that the scan was faster than can be told."""


@contextlib.contextmanager
def _directory() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="oncelog-bench-") as name:
        yield Path(name)


Measure = Callable[[Broker, str], Figures]


def _side_by_side(
    title: str, options: Options, measure: Measure, goals: Mapping[str, str], partitions: int = 1
) -> Comparison:
    """Both brokers run throughout and are warmed up once; each repetition has a topic of its own."""

    def side(broker: Broker) -> Callable[[int], Figures]:
        def once(number: int) -> Figures:
            (topic,) = create_topics(broker, 1, partitions, f"bench{number}-{time.time_ns()}")
            try:
                return measure(broker, topic)
            finally:
                delete_topics(broker, [topic])

        return once

    with (
        _directory() as directory,
        running(options.ours.broker(directory)) as ours,
        running(options.theirs.broker(directory)) as theirs,
    ):
        sides = (side(ours), side(theirs))
        for each in sides:
            each(-1)
        comparison = Comparison(title, options.ours.name, options.theirs.name, goals)
        return paired(comparison, sides, options.repeat, progress)


def _produce_of(record_bytes: int, count: int, title: str, options: Options) -> Comparison:
    def measure(broker: Broker, topic: str) -> Figures:
        return produce(broker, topic, record_bytes, options.scaled(count)).figures("produce")

    goals = {"produce, records/s": "≥ 1.0 ×", "produce, MB/s": "≥ 1.0 ×", "produce, broker CPU s/GB": "≤ 0.8 ×"}
    return _side_by_side(title, options, measure, goals)


def produce_100(options: Options) -> Comparison:
    """Produce records of 100 B with librdkafka, acks=all, one partition."""
    return _produce_of(100, 3_000_000, "Produce, 100 B", options)


def produce_1000(options: Options) -> Comparison:
    """Produce records of 1 KB with librdkafka, acks=all, one partition."""
    return _produce_of(1000, 500_000, "Produce, 1 KB", options)


def everyday(options: Options) -> Comparison:
    """Twelve partitions written and read, idempotent, acks=all, batches of 64 KiB (--only 100b,none,varied)."""
    chosen_cases = cases(options.only)

    def measure(broker: Broker, topic: str) -> Figures:
        found: Figures = {}
        for case in chosen_cases:
            (own,) = create_topics(broker, 1, PARTITIONS, f"{topic}-{len(found)}")
            count = options.scaled(3_000_000 if case.size_bytes == 100 else 500_000)
            try:
                found |= everyday_figures(broker, own, case, count)
            finally:
                delete_topics(broker, [own])
        return found

    return _side_by_side("Written and read", options, measure, everyday_goals(chosen_cases))


def consume_100(options: Options) -> Comparison:
    """Consume records of 100 B with librdkafka from the page cache."""
    count = options.scaled(2_000_000)

    def measure(broker: Broker, topic: str) -> Figures:
        produce(broker, topic, 100, count)
        return consume(broker, topic, 100, count).figures("consume")

    goals = {"consume, records/s": "≥ 1.0 ×", "consume, MB/s": "≥ 1.0 ×", "consume, broker CPU s/GB": "≤ 1.0 ×"}
    return _side_by_side("Consume, 100 B", options, measure, goals)


def latency(options: Options) -> Comparison:
    """Acknowledgement of single records of 100 B, acks=all."""

    def measure(broker: Broker, topic: str) -> Figures:
        took = latencies_ms(broker, topic, options.scaled(5000))
        return {f"acknowledged p{share:g}, ms": percentile(took, share / 100) for share in (50, 99, 99.9)}

    goals = {"acknowledged p50, ms": "≤ 0.5 ms", "acknowledged p99, ms": "≤ 1.0 ×"}
    return _side_by_side("Acknowledgement of single records", options, measure, goals)


def start(options: Options) -> Comparison:
    """From the start of the process to the first answer; memory when idle, three seconds later."""

    def side(peer: Peer) -> Callable[[int], Figures]:
        def once(_: int) -> Figures:
            with _directory() as directory:
                broker = peer.broker(directory)
                with running(broker):
                    pass  # formats the directory
                with running(broker):
                    time.sleep(3)
                    return {"ready, s": broker.ready_s, "resident when idle, MB": broker.process.resident_bytes() / 1e6}

        return once

    goals = {"ready, s": "≤ 0.5 s", "resident when idle, MB": "≤ 80 MB"}
    comparison = Comparison("Start", options.ours.name, options.theirs.name, goals)
    return paired(comparison, (side(options.ours), side(options.theirs)), options.repeat, progress)


def start_cpython(options: Options) -> Comparison:
    """An empty broker's start beside that of Python itself, in CPU and wall time."""
    serve_figures(0)  # writes the byte code
    comparison = Comparison("Start beside bare CPython", "oncelog serve", "python -c pass", START_GOALS)
    return paired(comparison, (serve_figures, bare_figures), options.repeat, progress)


def sasl_logins(options: Options) -> Comparison:
    """Five thousand wrong logins by SCRAM: a bystander's latency meanwhile, and the broker's memory."""

    def side(secured: Secured) -> Callable[[int], Figures]:
        def once(_: int) -> Figures:
            with _directory() as directory, secured(directory) as (process, plaintext, sasl):
                return login_figures(process, plaintext, sasl)

        return once

    comparison = Comparison("Wrong logins", "oncelog", "Apache Kafka", LOGIN_GOALS)
    return paired(comparison, (side(secured_oncelog), side(secured_kafka)), options.repeat, progress)


def recovery(options: Options) -> Comparison:
    """Ready after kill -9 with one large partition: how fast unflushed segments are checked."""
    count = options.scaled(600_000)

    def side(peer: Peer) -> Callable[[int], Figures]:
        def once(_: int) -> Figures:
            with _directory() as directory:
                broker = peer.broker(directory)
                with running(broker):
                    empty_s = min(_restarted(broker) for _ in range(3))
                    (topic,) = create_topics(broker, 1, 1, "recovered")
                    size_bytes = produce(broker, topic, 1000, count).size_bytes
                    killed_s = _restarted(broker)
            scan_s = max(killed_s - empty_s, _SHORTEST_SCAN_S)
            return {"ready after kill -9, s": killed_s, "recovery scan, MB/s": size_bytes / scan_s / 1e6}

        return once

    comparison = Comparison(
        "Recovery of 600 MB", options.ours.name, options.theirs.name, {"recovery scan, MB/s": "≥ 500 MB/s"}
    )
    return paired(comparison, (side(options.ours), side(options.theirs)), options.repeat, progress)


def partitions(options: Options) -> Comparison:
    """Ready after kill -9 with 10,000 partitions of one record each."""
    topics, each = options.scaled(100), 100

    def side(peer: Peer) -> Callable[[int], Figures]:
        def once(_: int) -> Figures:
            with _directory() as directory:
                broker = peer.broker(directory)
                with running(broker):
                    start_s = time.perf_counter()
                    names = create_topics(broker, topics, each, "many")
                    created_s = time.perf_counter() - start_s
                    touch_all(broker, names, each)
                    return {
                        "10,000 partitions created, s": created_s,
                        "ready after kill -9, s": _restarted(broker),
                        "resident afterwards, MB": broker.process.resident_bytes() / 1e6,
                    }

        return once

    comparison = Comparison(
        "10,000 partitions", options.ours.name, options.theirs.name, {"ready after kill -9, s": "≤ 5 s"}
    )
    return paired(comparison, (side(options.ours), side(options.theirs)), min(options.repeat, 2), progress)


def sync(options: Options) -> Comparison:
    """The cost of waiting for the disk: log.sync.policy=commit against none."""

    def measure(broker: Broker, topic: str) -> Figures:
        figures = produce(broker, topic, 1000, options.scaled(300_000)).figures("produce")
        took = latencies_ms(broker, topic, options.scaled(2000))
        return {**figures, **{f"acknowledged p{share}, ms": percentile(took, share / 100) for share in (50, 99)}}

    both = Options(options.repeat, options.scale, ONCELOG_SYNCED, ONCELOG)
    return _side_by_side("Group-committed fdatasync, 1 KB", both, measure, {"produce, MB/s": "≥ 0.8 ×"})


def transactions(options: Options) -> Comparison:
    """Small transactions: one record of 100 B into one partition, and into each of ten."""

    def measure(broker: Broker, topic: str) -> Figures:
        one = small_transactions(broker, topic, options.scaled(1500), 1)
        ten = small_transactions(broker, topic, options.scaled(500), 10)
        return {**small_figures("one partition", one), **small_figures("ten partitions", ten)}

    goals = {
        "one partition, transactions/s": "≥ 1.5 ×",
        "one partition, p99 ms": "≤ 0.25 ×",
        "ten partitions, transactions/s": "≥ 1.5 ×",
    }
    return _side_by_side("Small transactions", options, measure, goals, partitions=10)


def transactional_throughput(options: Options) -> Comparison:
    """1 KB records with a commit every 100 ms, against the same without transactions."""

    def measure(broker: Broker, topic: str) -> Figures:
        return committed_throughput(broker, topic, options.scaled(500_000))

    return _side_by_side(
        "1 KB, a commit every 100 ms", options, measure, {"transactional of idempotent": "≥ 0.9 on our side"}
    )


def read_committed(options: Options) -> Comparison:
    """read_committed against read_uncommitted, also with 5,000 aborted transactions between."""
    return _isolation("read_committed", options, 500_000, 5000)


def behind_aborted(options: Options) -> Comparison:
    """The same with 100,000 aborted transactions between."""
    return _isolation("read_committed behind 100,000 aborted transactions", options, 1_000_000, 100_000)


def _isolation(title: str, options: Options, records: int, aborted_: int) -> Comparison:
    """Topics are filled once; only reading is repeated."""
    count, between = options.scaled(records), options.scaled(aborted_)
    goals = {
        "committed of uncommitted": "≥ 0.95 on our side",
        "the same with aborted ones between": "≥ 0.95 on our side",
    }
    comparison = Comparison(title, options.ours.name, options.theirs.name, goals)

    def side(broker: Broker) -> Callable[[int], Figures]:
        plain, behind = create_topics(broker, 2, 1, "isolation")
        progress(f"{title}: loading {broker.bootstrap_servers}")
        aborted.load(broker, plain, behind, count, between)
        return lambda _: aborted.figures(broker, plain, behind, count, between)

    ours, theirs = (
        replace(peer, properties={**peer.properties, **aborted.UNVERIFIED}) for peer in (options.ours, options.theirs)
    )
    with _directory() as directory, running(ours.broker(directory)) as mine, running(theirs.broker(directory)) as other:
        sides = (side(mine), side(other))
        for each in sides:
            each(-1)
        return paired(comparison, sides, options.repeat, progress)


def load_ids(options: Options) -> Comparison:
    """Time and memory to load 1,000,000 transactional ids after kill -9."""
    count = options.scaled(1_000_000)

    def side(peer: Peer) -> Callable[[int], Figures]:
        def once(_: int) -> Figures:
            with _directory() as directory:
                broker = peer.broker(directory)
                with running(broker):
                    transactional_producer(broker, "first")  # makes the internal topic
                    empty = broker.process.resident_bytes()
                    broker.kill()
                    write_ids(broker.data_directory, count)
                    broker.start()
                    took = loaded_s(broker, count)
                    more = broker.process.resident_bytes() - empty
                    return {"loaded after start, s": broker.ready_s + took, "more resident, MB": more / 1e6}

        return once

    title = f"{count:,} transactional ids"
    comparison = Comparison(title, options.ours.name, options.theirs.name)
    return paired(comparison, (side(options.ours), side(options.theirs)), min(options.repeat, 2), progress)


def clients(options: Options) -> Comparison:
    """Small transactions by our client and by the other Python clients, against both brokers."""
    count = options.scaled(1000)
    with (
        _directory() as directory,
        running(options.ours.broker(directory)) as ours,
        running(options.theirs.broker(directory)) as theirs,
    ):
        brokers = ((options.ours.name, ours), (options.theirs.name, theirs))
        topics = [create_topics(broker, 1, 1, "clients")[0] for _, broker in brokers]
        comparison = Comparison("Small transactions by client", "oncelog.client", "the other client")
        for number in range(-1, options.repeat):
            progress(f"{comparison.title}: {number + 1} of {options.repeat}")
            mine: dict[str, float] = {}
            other: dict[str, float] = {}
            for (name, broker), topic in zip(brokers, topics, strict=True):
                left, right = client_figures(f"on {name}", broker, topic, count if number >= 0 else 50)
                mine |= left
                other |= right
            if number >= 0:  # the first round warms both brokers up
                comparison.add(mine, other)
    comparison.goals = dict.fromkeys(comparison.pairs[0][0], "> 1.0 ×")
    return comparison


def _restarted(broker: Broker) -> float:
    broker.kill()
    broker.start()
    return broker.ready_s


def find_hanging(options: Options) -> Comparison:
    """oncelog txn find-hanging beside Apache Kafka's tool: 10,000 partitions, 1,000 open transactions."""
    partitions_, open_ = options.scaled(10_000), options.scaled(1000)
    comparison = Comparison(
        f"Finding hanging transactions, {partitions_:,} partitions", "oncelog txn", "kafka-transactions", FINDING_GOALS
    )
    with _directory() as directory, contextlib.ExitStack() as running_:
        brokers = {
            peer.name: running_.enter_context(filled(peer.broker(directory), partitions_, open_))
            for peer in (options.ours, options.theirs)
        }

        def side(measure: Callable[[Broker], tuple[float, float]]) -> Callable[[int], Figures]:
            return lambda _: {
                name: value
                for peer, broker in brokers.items()
                for name, value in figures(measure(broker), peer).items()
            }

        mine = side(lambda broker: ours_s(broker, open_))
        return paired(comparison, (mine, side(theirs_s)), options.repeat, progress)


def arrow(options: Options) -> Comparison:
    """oncelog.read_arrow beside confluent-kafka put into Arrow columns, against both brokers (--only)."""
    comparison = Comparison("Topics to Arrow", "oncelog.read_arrow", "confluent-kafka")
    sizes, codecs = narrowed(options.only, {"100b": 100, "1000b": 1000}, {"none": "none", "lz4": "lz4"})
    cases = [(size, codec) for size in sizes for codec in codecs]
    with (
        _directory() as directory,
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


def spark_sink(options: Options) -> Comparison:
    """Our exactly-once Spark sink beside Spark's own Kafka connector's at-least-once one, to both brokers."""
    peers = (with_two_phase(options.ours), options.theirs)
    goals = sink_goals(tuple(peer.name for peer in peers))
    comparison = Comparison("Spark to topics", "oncelog sink, exactly once", "JVM connector, at least once", goals)
    with _directory() as directory, sinks(peers, directory, options.scale) as both:
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
        _directory() as directory,
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


BENCHMARKS: Final[Mapping[str, Callable[[Options], Comparison]]] = {
    "produce": produce_100,
    "produce-1k": produce_1000,
    "consume": consume_100,
    "everyday": everyday,
    "latency": latency,
    "start": start,
    "start-cpython": start_cpython,
    "recovery": recovery,
    "sasl-logins": sasl_logins,
    "partitions": partitions,
    "sync": sync,
    "transactions": transactions,
    "clients": clients,
    "transactional-throughput": transactional_throughput,
    "read-committed": read_committed,
    "behind-aborted": behind_aborted,
    "load-ids": load_ids,
    "find-hanging": find_hanging,
    "spark-sink": spark_sink,
    "spark-source": spark_source,
    "spark-load": spark_load,
    "spark-memory": spark_memory,
    "spark-versions": spark_versions,
    "arrow": arrow,
    "audit": audit,
    "old-logs": import_old_logs,
    "quotas": quotas,
    "mirror": mirror,
    "mirror-1k": mirror_1000,
    **CONSOLE_BENCHMARKS,
    **TLS_BENCHMARKS,
    **CLUSTER_BENCHMARKS,
}
_SPARK_ALONE: Final = ("spark-load", "spark-memory", "spark-versions")
WITHOUT_KAFKA: Final = frozenset(
    {"start-cpython", "quotas", *_SPARK_ALONE, "old-logs", "cluster-cores", "cluster-sync", *CONSOLE_BENCHMARKS}
)
"""Those that run no Apache Kafka."""
