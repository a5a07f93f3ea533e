"""Names the transaction that holds a partition's last stable offset, so that a read-committed query stops there.

If a last stable offset stays below the log's end for ``heldAfter``, the driver asks the partition's leader
(DescribeProducers, KIP-664) and logs one line per transaction. The watch never fails a query, and sends no request
while every last stable offset advances. If it cannot identify the transaction, the line says so.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Final

from oncelog.admin.transactions.cluster_scan import OpenTransaction, Scope, scan
from oncelog.admin.transactions.durations import duration_text, moment_text
from oncelog.base.ids import TopicPartition
from oncelog.base.notation.shell_words import option
from oncelog.base.units import SECOND_MS
from oncelog.client.blocking import Client
from oncelog.client.errors import ClientError

_LOG: Final = logging.getLogger("oncelog.spark")
_ASK_EVERY_MS: Final = 10 * SECOND_MS
# Partitions that are named; more are only counted.
MAX_NAMED: Final = 5


class StableOffsets:
    """Tracks which last stable offsets stay below the log's end, and since when."""

    def __init__(self, held_after_ms: int) -> None:
        self._held_after_ms = held_after_ms
        self._since: dict[TopicPartition, tuple[int, int]] = {}

    def stalled(
        self, stable: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int], now_ms: int
    ) -> list[TopicPartition]:
        """Record the current offsets. Returns the partitions that have not advanced for long enough."""
        before, self._since = self._since, {}
        for partition, offset in stable.items():
            if offset < ends.get(partition, offset):
                previous = before.get(partition)
                self._since[partition] = (
                    previous if previous is not None and previous[0] == offset else (offset, now_ms)
                )
        return [partition for partition, (_, since) in self._since.items() if now_ms - since >= self._held_after_ms]


class StableOffsetWatch:
    """Keeps a line per held partition until its offset advances."""

    def __init__(self, held_after_ms: int) -> None:
        self._offsets = StableOffsets(held_after_ms)
        self._lines: dict[TopicPartition, str] = {}
        self._asked_ms: int | None = None

    def observe(
        self,
        client: Client,
        stable: Mapping[TopicPartition, int],
        ends: Mapping[TopicPartition, int],
        now_ms: int,
    ) -> list[str]:
        """One line for each held partition. ``now_ms`` is any monotonic clock."""
        stalled = self._offsets.stalled(stable, ends, now_ms)
        self._lines = {partition: text for partition, text in self._lines.items() if partition in stalled}
        # A held partition is not asked about more often than this, since the answer rarely changes.
        due = self._asked_ms is None or now_ms - self._asked_ms >= _ASK_EVERY_MS
        if stalled and (due or any(partition not in self._lines for partition in stalled)):
            self._asked_ms = now_ms
            self._find_holders(client, stalled[:MAX_NAMED], stable, ends)
        lines = [self._lines[partition] for partition in stalled if partition in self._lines]
        if len(stalled) > len(lines):
            lines.append(f"{len(stalled) - len(lines)} more partitions are held; see `oncelog txn find-hanging`")
        return lines

    def _find_holders(
        self,
        client: Client,
        partitions: Iterable[TopicPartition],
        stable: Mapping[TopicPartition, int],
        ends: Mapping[TopicPartition, int],
    ) -> None:
        pending = list(partitions)
        problem = "its leader names no open transaction"
        holders: dict[TopicPartition, OpenTransaction] = {}
        now = 0
        try:
            result = scan(client, Scope(partitions=tuple(pending)))
            now = result.now_ms
            for transaction in result.transactions:
                holders.setdefault(
                    transaction.topic_partition, transaction
                )  # sorted by start: the first one holds the offset
            if result.unanswered:
                problem = f"cannot identify it: {result.unanswered[0]}"
        except ClientError as error:
            problem = f"cannot identify it: {error}"
        for partition in pending:
            text = describe_held(partition, stable[partition], ends[partition], holders.get(partition), now, problem)
            if partition not in self._lines:
                _LOG.warning("%s", text)
            self._lines[partition] = text


def describe_held(
    partition: TopicPartition, stable: int, end: int, holder: OpenTransaction | None, now_ms: int, problem: str
) -> str:
    """One line about a held partition: the transaction, since when, the offsets held, and the command to run next."""
    if holder is None:
        holder_text = f"held by a transaction ({problem})"
    else:
        name = f" {holder.transactional_id!r}" if holder.transactional_id else ""
        producer = holder.producer
        holder_text = (
            f"held by transaction{name} of producer id {producer.producer_id}, epoch {producer.producer_epoch}"
        )
        if holder.age_ms is not None:
            holder_text += f", since {moment_text(now_ms - holder.age_ms)} ({duration_text(holder.age_ms)})"
    return (
        f"{partition} at offset {stable}, {end - stable} offsets below its end: {holder_text}; "
        f"see `oncelog txn explain {option('--topic', partition.topic)} --partition {partition.partition}`"
    )
