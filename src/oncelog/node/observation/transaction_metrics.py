"""Figures about transactions for ``/metrics``; ``docs/metrics.md`` has the names.

Counters are plain integers. What follows from the logs is worked out when somebody asks, from the partitions that have
something open or undecided: a scrape with 10,000 idle partitions looks at one attribute of each.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from oncelog.base import transaction_verdicts
from oncelog.base.ids import TopicPartition
from oncelog.base.transaction_verdicts import REPORTED_YOUNG

if TYPE_CHECKING:
    from oncelog.node.node import Node
    from oncelog.storage.log.partition_log import PartitionLog


class PartitionTransactions(NamedTuple):
    """One partition that has something open, or decided and not durable yet."""

    partition: TopicPartition
    last_stable_offset_lag: int
    longest_ms: int
    """Age of the transaction that has been open longest, 0: none is open."""


class CoordinatedTransactions(NamedTuple):
    """The transactions that this broker coordinates."""

    by_state: dict[str, int]
    timed_out: int
    """Aborts because the time-out had passed, since the start."""
    markers_outstanding: int
    markers_retried: int
    """Outstanding markers that their log refused, and that wait to be tried again."""


def partitions(node: Node, now_ms: int) -> Iterator[PartitionTransactions]:
    """Partitions with a last stable offset that lags or a transaction that is open."""
    opened = node.logs.transactions.partitions
    for partition, log in node.logs.logs.items():
        producers = log.producers
        if producers.ongoing or producers.unreplicated:
            started = [t.started_ms for t in opened.get(partition, {}).values()]
            longest_ms = max(1, now_ms - min(started)) if started else 0
            yield PartitionTransactions(partition, _lag(log), longest_ms)


def _lag(log: PartitionLog) -> int:
    return max(0, log.high_watermark - log.last_stable_offset)


def late_after_ms(node: Node) -> int:
    """The age from which on a transaction is late whatever its time-out."""
    return transaction_verdicts.late_after_ms(None, int(node.cluster.config.get("transaction.max.timeout.ms")))


def verdicts(node: Node) -> Counter[str]:
    """Open transactions (one a partition) by what was found out about them; ``young`` where nothing was yet."""
    return Counter(
        t.verdict or REPORTED_YOUNG
        for open_here in node.logs.transactions.partitions.values()
        for t in open_here.values()
    )


def coordinated(node: Node) -> CoordinatedTransactions:
    """See the class."""
    by_state: Counter[str] = Counter()
    timed_out = outstanding = 0
    for shard in node.transactions.shards():
        by_state.update(shard.counts())
        timed_out += shard.timed_out
        outstanding += shard.outstanding_count()
    return CoordinatedTransactions(dict(by_state), timed_out, outstanding, node.transactions.markers.retrying)
