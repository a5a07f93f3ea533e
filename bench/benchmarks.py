"""The benchmarks: each compares two peers on one question and returns its comparison."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping
from typing import Final

from bench.clients import client_figures
from bench.clusters.lines import CLUSTER_BENCHMARKS
from bench.console import CONSOLE_BENCHMARKS
from bench.data_benchmarks import arrow, audit, spark_sink, spark_source
from bench.everyday import PARTITIONS, cases, count_of, everyday_figures
from bench.everyday import goals as everyday_goals
from bench.group_heartbeats import consumer_heartbeats
from bench.hanging import FINDING_GOALS, figures, filled, ours_s, theirs_s
from bench.latency_under_load import RATES, load_figures
from bench.latency_under_load import goals as load_goals
from bench.mirrors import mirror, mirror_1000
from bench.old_logs import import_old_logs
from bench.options import Options, progress
from bench.peers import ONCELOG, ONCELOG_SYNCED, Broker, Peer, create_topics, delete_topics, running
from bench.quotas import quotas
from bench.report import Comparison, Figures, paired
from bench.sasl_logins import LOGIN_GOALS, Secured, secured_kafka, secured_oncelog
from bench.sasl_logins import figures as login_figures
from bench.schemas import schemas
from bench.share_partition import share_partition
from bench.side_by_side import side_by_side, temporary_directory
from bench.spark_load import spark_load
from bench.spark_memory import spark_memory
from bench.spark_versions import spark_versions
from bench.start import START_GOALS, bare_figures, serve_figures
from bench.tls import TLS_BENCHMARKS
from bench.transaction_benchmarks import (
    behind_aborted,
    load_ids,
    read_committed,
    transactional_throughput,
    transactions,
)
from bench.workloads import consume, latencies_ms, percentile, produce, touch_all

_SHORTEST_SCAN_S: Final = 0.05
"""A difference of two start times that is shorter says only that the scan was faster than can be told."""


def _produce_of(record_bytes: int, count: int, title: str, options: Options) -> Comparison:
    def measure(broker: Broker, topic: str) -> Figures:
        return produce(broker, topic, record_bytes, options.scaled(count)).figures("produce")

    goals = {"produce, records/s": "≥ 1.0 ×", "produce, MB/s": "≥ 1.0 ×", "produce, broker CPU s/GB": "≤ 0.8 ×"}
    return side_by_side(title, options, measure, goals)


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
        results: Figures = {}
        for case in chosen_cases:
            (own,) = create_topics(broker, 1, PARTITIONS, f"{topic}-{len(results)}")
            try:
                results |= everyday_figures(broker, own, case, options.scaled(count_of(case)))
            finally:
                delete_topics(broker, [own])
        return results

    return side_by_side("Written and read", options, measure, everyday_goals(chosen_cases))


def consume_100(options: Options) -> Comparison:
    """Consume records of 100 B with librdkafka from the page cache."""
    count = options.scaled(2_000_000)

    def measure(broker: Broker, topic: str) -> Figures:
        produce(broker, topic, 100, count)
        return consume(broker, topic, 100, count).figures("consume")

    goals = {"consume, records/s": "≥ 1.0 ×", "consume, MB/s": "≥ 1.0 ×", "consume, broker CPU s/GB": "≤ 1.0 ×"}
    return side_by_side("Consume, 100 B", options, measure, goals)


def latency(options: Options) -> Comparison:
    """Acknowledgement of single records of 100 B, acks=all."""

    def measure(broker: Broker, topic: str) -> Figures:
        took = latencies_ms(broker, topic, options.scaled(5000))
        return {f"acknowledged p{share:g}, ms": percentile(took, share / 100) for share in (50, 99, 99.9)}

    goals = {"acknowledged p50, ms": "≤ 0.5 ms", "acknowledged p99, ms": "≤ 1.0 ×"}
    return side_by_side("Acknowledgement of single records", options, measure, goals)


def latency_under_load(options: Options) -> Comparison:
    """Acknowledgement of records of 1 KB at 20,000 and 100,000 a second, twelve partitions."""

    def measure(broker: Broker, topic: str) -> Figures:
        return load_figures(broker, topic, RATES, 10 * options.scale)

    return side_by_side("Latency under load", options, measure, load_goals(RATES), PARTITIONS)


def start(options: Options) -> Comparison:
    """From the start of the process to the first answer; memory when idle, three seconds later."""

    def side(peer: Peer) -> Callable[[int], Figures]:
        def once(_: int) -> Figures:
            with temporary_directory() as directory:
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
            with temporary_directory() as directory, secured(directory) as (process, plaintext, sasl):
                return login_figures(process, plaintext, sasl)

        return once

    comparison = Comparison("Wrong logins", "oncelog", "Apache Kafka", LOGIN_GOALS)
    return paired(comparison, (side(secured_oncelog), side(secured_kafka)), options.repeat, progress)


def recovery(options: Options) -> Comparison:
    """Ready after kill -9 with one large partition: how fast unflushed segments are checked."""
    count = options.scaled(600_000)

    def side(peer: Peer) -> Callable[[int], Figures]:
        def once(_: int) -> Figures:
            with temporary_directory() as directory:
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
            with temporary_directory() as directory:
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
    return side_by_side("Group-committed fdatasync, 1 KB", both, measure, {"produce, MB/s": "≥ 0.8 ×"})


def clients(options: Options) -> Comparison:
    """Small transactions by our client and by the other Python clients, against both brokers."""
    count = options.scaled(1000)
    with (
        temporary_directory() as directory,
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
    with temporary_directory() as directory, contextlib.ExitStack() as running_:
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


BENCHMARKS: Final[Mapping[str, Callable[[Options], Comparison]]] = {
    "produce": produce_100,
    "produce-1k": produce_1000,
    "consume": consume_100,
    "everyday": everyday,
    "latency": latency,
    "latency-under-load": latency_under_load,
    "start": start,
    "start-cpython": start_cpython,
    "recovery": recovery,
    "sasl-logins": sasl_logins,
    "consumer-heartbeats": consumer_heartbeats,
    "share-partition": share_partition,
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
    "schemas": schemas,
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
    {
        "schemas",
        "share-partition",
        "start-cpython",
        "quotas",
        *_SPARK_ALONE,
        "old-logs",
        "cluster-cores",
        "cluster-sync",
        *CONSOLE_BENCHMARKS,
    }
)
"""Those that run no Apache Kafka."""
