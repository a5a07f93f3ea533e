"""The settings of a benchmark that the command line may change."""

from __future__ import annotations

import sys
from dataclasses import dataclass

from bench.peers import KAFKA, ONCELOG, Peer


@dataclass(frozen=True)
class Options:
    """Settings of one run."""

    repeat: int = 5
    scale: float = 1.0
    ours: Peer = ONCELOG
    theirs: Peer = KAFKA
    only: tuple[str, ...] = ()
    """Words that narrow a benchmark of many cases."""
    spark_settings: tuple[str, ...] = ()
    """KEY=VALUE of Spark's, for both sides of spark-source."""

    def scaled(self, count: int) -> int:
        """A count of records or partitions, at the scale asked for."""
        return max(10, int(count * self.scale))


def progress(line: str) -> None:
    """Say how far a benchmark has come."""
    print(line, file=sys.stderr, flush=True)
