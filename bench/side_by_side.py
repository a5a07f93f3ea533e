"""Two brokers that run side by side and take the same measure in turn."""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from bench.options import Options, progress
from bench.peers import Broker, create_topics, delete_topics, running
from bench.report import Comparison, Figures, paired


@contextlib.contextmanager
def temporary_directory() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="oncelog-bench-") as name:
        yield Path(name)


Measure = Callable[[Broker, str], Figures]


def side_by_side(
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
        temporary_directory() as directory,
        running(options.ours.broker(directory)) as ours,
        running(options.theirs.broker(directory)) as theirs,
    ):
        sides = (side(ours), side(theirs))
        for item in sides:
            item(-1)
        comparison = Comparison(title, options.ours.name, options.theirs.name, goals)
        return paired(comparison, sides, options.repeat, progress)
