"""Figures about transactions for ``/metrics``; ``docs/metrics.md`` lists the names.

Figures derived from the logs are computed when requested, from partitions with open or undurable transactions: a scrape
of 10,000 idle partitions reads one attribute of each.
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
    """A partition with a transaction that is open, or decided but not durable."""

    partition: TopicPartition
    last_stable_offset_lag: int
    longest_ms: int
    """Age of the oldest open transaction; 0: none is open."""


class CoordinatedTransactions(NamedTuple):
    by_state: dict[str, int]
    timed_out: int
    """Aborts after a time-out, since the start."""
    markers_outstanding: int
    markers_retried: int
    """Outstanding markers that their log refused, waiting to be retried."""


def partitions(node: Node, now_ms: int) -> Iterator[PartitionTransactions]:
    opened = node.logs.transactions.partitions
    for partition, log in node.logs.logs.items():
        producers = log.producers
        if producers.ongoing or producers.unreplicated:
            started = [transaction.started_ms for transaction in opened.get(partition, {}).values()]
            longest_ms = max(1, now_ms - min(started)) if started else 0
            yield PartitionTransactions(partition, _lag(log), longest_ms)


def _lag(log: PartitionLog) -> int:
    return max(0, log.high_watermark - log.last_stable_offset)


def late_after_ms(node: Node) -> int:
    """The age from which a transaction is late, whatever its time-out."""
    return transaction_verdicts.late_after_ms(None, int(node.cluster.config.get("transaction.max.timeout.ms")))


def verdicts(node: Node) -> Counter[str]:
    """Open transactions, one per partition, by verdict; ``young`` without one."""
    return Counter(
        transaction.verdict or REPORTED_YOUNG
        for open_here in node.logs.transactions.partitions.values()
        for transaction in open_here.values()
    )


def coordinated(node: Node) -> CoordinatedTransactions:
    by_state: Counter[str] = Counter()
    timed_out = outstanding = 0
    for shard in node.transactions.shards():
        by_state.update(shard.counts())
        timed_out += shard.timed_out
        outstanding += shard.outstanding_count()
    return CoordinatedTransactions(dict(by_state), timed_out, outstanding, node.transactions.markers.retrying)
