"""The benchmarks of clusters, by name: each compares two clusters on one question and returns its comparison."""

from __future__ import annotations

import contextlib
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench.clusters.first_writes import led_by_others_s, write_each
from bench.clusters.pauses import led_by_another_at_s, own_pauses_s, pause_s
from bench.clusters.peers import BROKERS, BenchCluster, running_cluster
from bench.clusters.questions import question_figures
from bench.everyday import PARTITIONS, cases, cluster_goals, count_of, everyday_figures
from bench.latency_under_load import RATES, load_figures
from bench.latency_under_load import goals as load_goals
from bench.options import Options, progress
from bench.peers import ONCELOG, ONCELOG_SYNCED, Peer, create_topics, delete_topics
from bench.report import Comparison, Figures, paired
from bench.workloads import latencies_ms, percentile, produce, steady_load

_SHARES: Final = (50, 99)
_PARTITIONS_A_TOPIC: Final = 100

Measure = Callable[[BenchCluster, str], Figures]


@contextlib.contextmanager
def _directory() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="oncelog-bench-") as name:
        yield Path(name)


def _new_topic(cluster: BenchCluster, prefix: str, partitions: int = 1) -> str:
    (topic,) = create_topics(cluster, 1, partitions, f"{prefix}-{time.time_ns()}", replicas=BROKERS)
    cluster.wait_in_sync(topic)
    return topic


def _side_by_side(
    title: str, options: Options, measure: Measure, goals: dict[str, str], warm_ups: int = 1
) -> Comparison:
    """Both clusters run throughout and are warmed up; each repetition has a topic of its own."""

    def side(cluster: BenchCluster) -> Callable[[int], Figures]:
        def once(_: int) -> Figures:
            topic = _new_topic(cluster, "bench")
            try:
                return measure(cluster, topic)
            finally:
                delete_topics(cluster, [topic])

        return once

    with _both(options) as clusters:
        sides = (side(clusters[0]), side(clusters[1]))
        for item in sides:
            for _ in range(warm_ups):
                item(-1)
        comparison = Comparison(title, options.ours.name, options.theirs.name, goals)
        return paired(comparison, sides, options.repeat, progress)


def _one_after_other(title: str, options: Options, measure: Measure, goals: dict[str, str]) -> Comparison:
    """Each cluster runs alone, so that the other's idle work (garbage collection, compilation, polls) is not in a
    figure of a fraction of a millisecond; otherwise as ``_side_by_side``."""

    def side(peer: Peer) -> list[Figures]:
        with _directory() as directory, running_cluster(peer, directory) as cluster:
            progress(f"{title}: {peer.name}")
            topic = _new_topic(cluster, "bench")
            return [measure(cluster, topic) for _ in range(1 + options.repeat)][1:]

    comparison = Comparison(title, options.ours.name, options.theirs.name, goals)
    for ours, theirs in zip(side(options.ours), side(options.theirs), strict=True):
        comparison.add(ours, theirs)
    return comparison


@contextlib.contextmanager
def _both(options: Options) -> Iterator[tuple[BenchCluster, BenchCluster]]:
    with (
        _directory() as directory,
        running_cluster(options.ours, directory / "ours") as ours,
        running_cluster(options.theirs, directory / "theirs") as theirs,
    ):
        yield ours, theirs


# Throughput and latency


def _produce_of(record_bytes: int, count: int, title: str, least: str, options: Options) -> Comparison:
    def measure(cluster: BenchCluster, topic: str) -> Figures:
        return produce(cluster, topic, record_bytes, options.scaled(count)).cluster_figures("produce")

    goals = {"produce, records/s": least, "produce, CPU s of all brokers a million": "≤ 0.5 ×"}
    return _side_by_side(title, options, measure, goals)


def cluster_produce(options: Options) -> Comparison:
    """Three brokers: produce records of 100 B, acks=all, factor 3, one partition."""
    return _produce_of(100, 2_000_000, "Three brokers: produce, 100 B", "≥ 1.0 ×", options)


def cluster_produce_1k(options: Options) -> Comparison:
    """Three brokers: produce records of 1 KB, acks=all, factor 3, one partition."""
    return _produce_of(1000, 300_000, "Three brokers: produce, 1 KB", "≥ 1.5 ×", options)


def _latency(cluster: BenchCluster, topic: str, count: int) -> Figures:
    cpu_s = cluster.cpu_seconds()
    took = latencies_ms(cluster, topic, count)
    each_ms = (cluster.cpu_seconds() - cpu_s) / count * 1000
    shares = {f"acknowledged p{share}, ms": percentile(took, share / 100) for share in _SHARES}
    return {**shares, "CPU ms of all brokers a record": each_ms}


def cluster_latency(options: Options) -> Comparison:
    """Three brokers: acknowledgement of single records of 100 B, acks=all, factor 3."""
    goals = {"acknowledged p50, ms": "≤ 1.2 ×", "acknowledged p99, ms": "≤ 0.6 ×"}
    count = options.scaled(3000)
    return _side_by_side("Three brokers: single records", options, lambda c, t: _latency(c, t, count), goals)


def cluster_latency_under_load(options: Options) -> Comparison:
    """Three brokers: acknowledgement of records of 1 KB at 20,000 a second, twelve partitions, factor 3."""
    rates = RATES[:1]

    def measure(cluster: BenchCluster, _: str) -> Figures:
        topic = _new_topic(cluster, "load", PARTITIONS)
        try:
            return load_figures(cluster, topic, rates, 10 * options.scale)
        finally:
            delete_topics(cluster, [topic])

    return _side_by_side("Three brokers: latency under load", options, measure, load_goals(rates))


def cluster_questions(options: Options) -> Comparison:
    """Three brokers, each cluster alone: a consumer's questions for committed offsets and ends, factor 3."""
    count = options.scaled(2000)
    goals = dict.fromkeys(("committed offsets p50, ms", "first and last offset p50, ms"), "≤ 1.2 ×")
    return _one_after_other("Three brokers: questions", options, lambda c, t: question_figures(c, t, count), goals)


def cluster_everyday(options: Options) -> Comparison:
    """Three brokers: twelve partitions written and read, factor 3, as `everyday` (--only 100b,none,varied)."""
    chosen_cases = cases(options.only)

    def measure(cluster: BenchCluster, topic: str) -> Figures:
        results: Figures = {}
        for case in chosen_cases:
            own = _new_topic(cluster, topic, PARTITIONS)
            try:
                results |= everyday_figures(cluster, own, case, options.scaled(count_of(case)))
            finally:
                delete_topics(cluster, [own])
        return results

    goals = cluster_goals(chosen_cases)
    return _side_by_side("Three brokers: written and read", options, measure, goals)


def cluster_sync(options: Options) -> Comparison:
    """Three brokers of ours: log.sync.policy=commit against none."""

    def measure(cluster: BenchCluster, topic: str) -> Figures:
        throughput = produce(cluster, topic, 1000, options.scaled(300_000))
        return {**throughput.cluster_figures("produce"), **_latency(cluster, topic, options.scaled(1000))}

    both = Options(options.repeat, options.scale, ONCELOG_SYNCED, ONCELOG)
    goals = {"produce, records/s": "≥ 0.7 ×"}
    return _side_by_side("Three brokers: group-committed fdatasync, 1 KB", both, measure, goals)


# Failover


@dataclass(frozen=True)
class _Deed:
    word: str
    name: str
    goal: str
    do: Callable[[BenchCluster, int], None]
    undo: Callable[[BenchCluster, int], None]


_DEEDS: Final = {
    "kill": _Deed("kill", "kill -9 of the leader, s", "≤ 1 s", BenchCluster.kill, BenchCluster.start),
    "shutdown": _Deed(
        "shutdown", "controlled shutdown of the leader, s", "≤ 0.2 s", BenchCluster.stop, BenchCluster.start
    ),
    "freeze": _Deed("freeze", "frozen leader, s", "≤ 2.5 s", BenchCluster.freeze, BenchCluster.thaw),
    "own": _Deed("own", "frozen leader, our producer's defaults, s", "≤ 2.5 s", BenchCluster.freeze, BenchCluster.thaw),
}
"""Words of ``--only``."""


def cluster_failover(options: Options) -> Comparison:
    """Three brokers: pause of acknowledgements when the leader is killed, stops or freezes (--only kill,…).
    With own, of our own clients with their defaults."""
    unknown = set(options.only) - set(_DEEDS)
    if unknown:
        raise SystemExit(f"bench: --only takes {', '.join(_DEEDS)}, not {', '.join(sorted(unknown))}")
    deeds = [deed for word, deed in _DEEDS.items() if not options.only or word in options.only]

    def side(cluster: BenchCluster) -> Callable[[int], Figures]:
        topic = _new_topic(cluster, "failover")
        return lambda _: {name: took for deed in deeds for name, took in _pauses_of(cluster, topic, deed).items()}

    goals = {deed.name: deed.goal for deed in deeds}
    comparison = Comparison("Three brokers: pauses", options.ours.name, options.theirs.name, goals)
    with _both(options) as (ours, theirs):
        return paired(comparison, (side(ours), side(theirs)), options.repeat, progress)


def _pauses_of(cluster: BenchCluster, topic: str, deed: _Deed) -> Figures:
    """The pause of acknowledgements, and the cluster's share of it: until another broker leads. The cluster is whole
    again afterwards."""
    cluster.wait_in_sync(topic)
    leader, _ = cluster.replicas(topic)
    # In a thread: a controlled shutdown takes a while, and acknowledgements are to be watched meanwhile.
    doing = threading.Thread(target=deed.do, args=(cluster, leader))
    began_s = 0.0

    def begin() -> None:
        nonlocal began_s
        began_s = time.monotonic()
        doing.start()

    with ThreadPoolExecutor(1) as pool:
        led = pool.submit(led_by_another_at_s, cluster, topic, leader)
        read_s = None
        if deed.word == "own":
            took, read_s = own_pauses_s(cluster, topic, begin)
        else:
            took = pause_s(cluster, topic, begin)
        led_s = led.result() - began_s
    doing.join()
    deed.undo(cluster, leader)
    cluster.wait_in_sync(topic)
    of_consumer = {} if read_s is None else {"… of our consumer, s": read_s}
    return {deed.name: took, **of_consumer, f"… until another leads ({deed.word}), s": led_s}


# Catching up


def cluster_catch_up(options: Options) -> Comparison:
    """Three brokers, written to: an emptied and a lagging one catch up with 200 MB (--scale 10: 2 GB)."""
    count = options.scaled(200_000)

    def side(cluster: BenchCluster) -> Callable[[int], Figures]:
        def once(_: int) -> Figures:
            topic = _new_topic(cluster, "behind")
            try:
                leader, _ = cluster.replicas(topic)
                broker_id = next(broker for broker in cluster.brokers if broker != leader)
                cluster.kill(broker_id)
                produce(cluster, topic, 1000, count)
                lagging = _caught_up(cluster, topic, broker_id, count / 1000, "lagging")
                cluster.kill(broker_id)
                cluster.empty(broker_id)
                return {**lagging, **_caught_up(cluster, topic, broker_id, count / 1000, "emptied")}
            finally:
                delete_topics(cluster, [topic])

        return once

    goals = {f"{kind} broker, MB/s from its start on": "≥ 1.0 ×" for kind in ("lagging", "emptied")}
    title = f"Three brokers, written to: catching up {count / 1000:,.0f} MB"
    comparison = Comparison(title, options.ours.name, options.theirs.name, goals)
    with _both(options) as (ours, theirs):
        return paired(comparison, (side(ours), side(theirs)), options.repeat, progress)


def _caught_up(cluster: BenchCluster, topic: str, broker_id: int, size_mb: float, kind: str) -> Figures:
    """Start a broker beside a steady load and wait until it is in sync. The rate counts from the start of its process:
    a broker may copy before it answers clients, so that a rate counted from its first answer flatters it."""
    cpu_s = cluster.cpu_seconds()
    with steady_load(cluster, topic):
        started = time.perf_counter()
        cluster.start(broker_id)
        answered = time.perf_counter()
        cluster.wait_in_sync(topic)
        ended = time.perf_counter()
    return {
        f"{kind} broker, MB/s from its start on": size_mb / (ended - started),
        f"… from its first answer on, {kind}": size_mb / (ended - answered),
        f"{kind} broker, CPU s of all brokers, its start included": cluster.cpu_seconds() - cpu_s,
    }


# Many partitions


def cluster_partitions(options: Options) -> Comparison:
    """Three brokers, 1,000 partitions (--scale 10: 10,000) of factor 3, one is killed: until all are writable."""
    topics = max(1, options.scaled(1000) // _PARTITIONS_A_TOPIC)

    def side(peer: Peer) -> Callable[[int], Figures]:
        def once(_: int) -> Figures:
            with _directory() as directory, running_cluster(peer, directory) as cluster:
                names = create_topics(cluster, topics, _PARTITIONS_A_TOPIC, "many", replicas=BROKERS)
                for name in names:
                    cluster.wait_in_sync(name)
                return _until_writable(cluster, names)

        return once

    goals = {"all writable after kill -9, s": "≤ 2 s, ≤ 1.0 ×"}
    title = f"Three brokers: {topics * _PARTITIONS_A_TOPIC:,} partitions, one broker dies"
    comparison = Comparison(title, options.ours.name, options.theirs.name, goals)
    return paired(comparison, (side(options.ours), side(options.theirs)), options.repeat, progress)


def _until_writable(cluster: BenchCluster, names: list[str]) -> Figures:
    """One record into each partition, three times: the second says what that takes, the third begins with a kill."""
    write_each(cluster, names, _PARTITIONS_A_TOPIC)
    leader, _ = cluster.replicas(names[0])

    def written() -> tuple[float, float]:
        cpu_s, began = cluster.cpu_seconds(), time.perf_counter()
        write_each(cluster, names, _PARTITIONS_A_TOPIC)
        return time.perf_counter() - began, cluster.cpu_seconds() - cpu_s

    before_s, before_cpu_s = written()
    cluster.kill(leader)
    with ThreadPoolExecutor(1) as pool:
        led = pool.submit(led_by_others_s, cluster, names, leader)
        after_s, after_cpu_s = written()
        led_s = led.result()
    return {
        "one record into each before, s": before_s,
        "CPU s of all brokers: one record into each before": before_cpu_s,
        "all led by another after kill -9, s": led_s,
        "all writable after kill -9, s": after_s,
        "CPU s of all brokers: all writable after kill -9": after_cpu_s,
    }


# One broker a core


def cluster_cores(options: Options) -> Comparison:
    """`cluster up` with one broker a core (--brokers here: 2) against one broker: produce, no replicas.

    Both sides are given the same batches, of 1,000 records, one in a request: by ``linger.ms`` alone a batch has what a
    client could make in five milliseconds, which is another number whenever the clients get another share of the cores
    (184 to 1,051 records in four runs), and a broker's processor time goes by requests far more than by records.
    """
    count, cores = options.scaled(2_000_000), 2

    def side(brokers: int) -> Callable[[int], Figures]:
        return lambda _: _over_cores(options.ours, brokers, cores, count)

    both = "records/s by the busiest broker's CPU"
    comparison = Comparison(
        f"{cores} brokers beside one, 100 B", f"{cores} brokers", "one broker", {both: f"≥ {0.85 * cores:.2f} ×"}
    )
    return paired(comparison, (side(cores), side(1)), options.repeat, progress)


_SAME_BATCHES: Final = {"linger.ms": 1000, "batch.num.messages": 1000}


def _over_cores(peer: Peer, brokers: int, partitions: int, count: int) -> Figures:
    """Produce to so many partitions, spread over the brokers; clients share the cores, so CPU time is divided by."""
    with _directory() as directory, running_cluster(peer, directory, brokers) as cluster:
        (topic,) = create_topics(cluster, 1, partitions, "cores", replicas=1)
        cluster.wait_in_sync(topic, 1)
        for partition in range(partitions):
            produce(cluster, topic, 100, count // 10, partition=partition)
        before, began = cluster.cpu_by_broker(), time.perf_counter()
        threads = [
            threading.Thread(
                target=produce,
                args=(cluster, topic, 100, count),
                kwargs={"partition": partition, "settings": _SAME_BATCHES},
            )
            for partition in range(partitions)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        took = time.perf_counter() - began
        after = cluster.cpu_by_broker()
    spent = [after[broker_id] - before[broker_id] for broker_id in after]
    return {
        "records/s by the busiest broker's CPU": partitions * count / max(spent),
        "records/s, clients on the same cores": partitions * count / took,
        "CPU s of all brokers a million": sum(spent) / (partitions * count / 1e6),
    }


CLUSTER_BENCHMARKS: Final = {
    "cluster-produce": cluster_produce,
    "cluster-produce-1k": cluster_produce_1k,
    "cluster-latency": cluster_latency,
    "cluster-latency-under-load": cluster_latency_under_load,
    "cluster-questions": cluster_questions,
    "cluster-everyday": cluster_everyday,
    "cluster-sync": cluster_sync,
    "cluster-failover": cluster_failover,
    "cluster-catch-up": cluster_catch_up,
    "cluster-partitions": cluster_partitions,
    "cluster-cores": cluster_cores,
}
