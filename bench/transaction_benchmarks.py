"""Benchmarks of transactions: small and large ones, reading beside aborted ones, loading a coordinator."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from bench import aborted
from bench.options import Options, progress
from bench.peers import Broker, Peer, create_topics, running
from bench.report import Comparison, Figures, paired
from bench.side_by_side import side_by_side, temporary_directory
from bench.transactions import (
    committed_throughput,
    loaded_s,
    small_figures,
    small_transactions,
    transactional_producer,
    write_ids,
)


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
    return side_by_side("Small transactions", options, measure, goals, partitions=10)


def transactional_throughput(options: Options) -> Comparison:
    """1 KB records with a commit every 100 ms, against the same without transactions."""

    def measure(broker: Broker, topic: str) -> Figures:
        return committed_throughput(broker, topic, options.scaled(500_000))

    return side_by_side(
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
    with (
        temporary_directory() as directory,
        running(ours.broker(directory)) as mine,
        running(theirs.broker(directory)) as other,
    ):
        sides = (side(mine), side(other))
        for item in sides:
            item(-1)
        return paired(comparison, sides, options.repeat, progress)


def load_ids(options: Options) -> Comparison:
    """Time and memory to load 1,000,000 transactional ids after kill -9."""
    count = options.scaled(1_000_000)

    def side(peer: Peer) -> Callable[[int], Figures]:
        def once(_: int) -> Figures:
            with temporary_directory() as directory:
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
