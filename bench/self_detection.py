"""`python -m bench.self_detection`: what the broker's search for its own hanging transactions costs it.

A node with its files in memory and time moved by hand: 10,000 partitions, on 1,000 of them a transaction that stays
open, so that every one is asked about again and again. The processor time of the search is set against the time that
passed, and for transactions that end at once against the time in which such a node carries them out. What the timing
itself takes is measured and left out. A scrape is timed as well.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

from tests.scenario.node.driver import Driver
from tests.scenario.node.hanging import Producer, made

from oncelog.runtime.metrics.transaction_samples import transaction_metrics

MINUTES = 15
CALIBRATION = 20_000
NEVER = str(2**31 - 1)


class Stopwatch:
    """Adds up the processor time of calls."""

    def __init__(self) -> None:
        self.measured_s = 0.0
        self.calls = 0
        nothing = self.around(lambda: None)
        for _ in range(CALIBRATION):
            nothing()
        self._own_s = self.measured_s / CALIBRATION
        self.begin()

    def begin(self) -> None:
        """Add up anew."""
        self.measured_s, self.calls = 0.0, 0

    @property
    def spent_s(self) -> float:
        """Time of the calls, without that of looking at the clock."""
        return self.measured_s - self.calls * self._own_s

    def around(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """``call``, timed."""

        def timed(*arguments: Any) -> Any:
            begun_s = time.process_time()
            try:
                return call(*arguments)
            finally:
                self.measured_s += time.process_time() - begun_s
                self.calls += 1

        return timed


def watch(driver: Driver) -> Stopwatch:
    """Time everything that the search does in ``driver``'s node."""
    stopwatch = Stopwatch()
    orphans: Any = driver.node.hanging_watch
    orphans._pass = stopwatch.around(orphans._pass)
    orphans.notice = stopwatch.around(orphans.notice)
    return stopwatch


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m bench.self_detection", description=__doc__)
    parser.add_argument("--partitions", type=int, default=10_000)
    parser.add_argument("--open", type=int, default=1_000, help="transactions that stay open (default 1000)")
    parser.add_argument("--short", type=int, default=2_000, help="transactions that end at once (default 2000)")
    args = parser.parse_args()
    # Time-outs fire once in an hour only, so that everything stays open however old.
    driver = made({"transaction.abort.timed.out.transaction.cleanup.interval.ms": NEVER}, partitions=args.partitions)
    print(f"{args.partitions} partitions, {args.open} open transactions")
    stopwatch = watch(driver)
    for number in range(args.open):
        producer = Producer(driver, f"open-{number}")
        producer.add(number % args.partitions)
        producer.write(number % args.partitions)
    stopwatch.begin()
    asked_before = driver.node.hanging_watch.query_count
    driver.advance(MINUTES * 60_000)
    questions = driver.node.hanging_watch.query_count - asked_before
    print(
        f"self-detection: {stopwatch.spent_s:.3f} s of processor time in {MINUTES} min, {questions} questions: "
        f"{stopwatch.spent_s / MINUTES / 60:.4%} of a core"
    )

    begun_s = time.process_time()
    samples = sum(len(metric.samples) for metric in transaction_metrics(driver.node, driver.now_ms))
    print(f"a scrape of the metrics of transactions: {(time.process_time() - begun_s) * 1e3:.1f} ms, {samples} samples")
    short_ones(args.short)


def short_ones(count: int) -> None:
    """Transactions that end at once, one after the other."""
    driver = made()
    stopwatch = watch(driver)
    producer = Producer(driver, "short")
    stopwatch.begin()
    begun_s = time.process_time()
    for _ in range(count):
        producer.add(0)
        producer.write(0)
        producer.end()
        driver.advance(10)
    whole_s = time.process_time() - begun_s
    print(
        f"{count} transactions that end at once: {stopwatch.spent_s / count * 1e6:.1f} us each of "
        f"{whole_s / count * 1e6:.0f} us: {stopwatch.spent_s / whole_s:.2%}"
    )


if __name__ == "__main__":
    main()
