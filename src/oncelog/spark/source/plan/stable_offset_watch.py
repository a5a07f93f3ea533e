"""The transaction that holds a partition's last stable offset, named: it is why a query of committed records sees none.

A query with ``kafka.isolation.level=read_committed`` stops at a partition's last stable offset. While a transaction
hangs that is for ever, and the query looks as if nothing were produced. So the driver watches: if a last stable
offset stands below the log's end for ``heldAfter``, its leader is asked (DescribeProducers, KIP-664) and one line is
logged.

The rule: the watch never fails a query, and sends no request while every last stable offset moves; a line says if the
transaction could not be found out. Each transaction is logged once.
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
MOST_NAMED: Final = 5
"""Partitions named; the others are counted."""


class StableOffsets:
    """Partitions whose last stable offset stands still below the log's end, and since when. Pure."""

    def __init__(self, held_after_ms: int) -> None:
        self._held_after_ms = held_after_ms
        self._since: dict[TopicPartition, tuple[int, int]] = {}

    def stalled(
        self, stable: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int], now_ms: int
    ) -> list[TopicPartition]:
        """Take the offsets as they are now; the partitions that have stood still for long enough."""
        before, self._since = self._since, {}
        for partition, offset in stable.items():
            if offset < ends.get(partition, offset):
                known = before.get(partition)
                self._since[partition] = known if known is not None and known[0] == offset else (offset, now_ms)
        return [one for one, (_, since) in self._since.items() if now_ms - since >= self._held_after_ms]


class StableOffsetWatch:
    """Finds the transactions of offsets that stand still, and keeps a line for each partition until its offset
    moves."""

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
        """A line for each partition that is held. ``now_ms`` is any clock that does not go back."""
        stalled = self._offsets.stalled(stable, ends, now_ms)
        self._lines = {partition: text for partition, text in self._lines.items() if partition in stalled}
        due = self._asked_ms is None or now_ms - self._asked_ms >= _ASK_EVERY_MS
        if stalled and (due or any(one not in self._lines for one in stalled)):
            self._asked_ms = now_ms
            self._find_holders(client, stalled[:MOST_NAMED], stable, ends)
        said = [self._lines[one] for one in stalled if one in self._lines]
        if len(stalled) > len(said):
            said.append(f"{len(stalled) - len(said)} more partitions are held; see `oncelog txn find-hanging`")
        return said

    def _find_holders(
        self,
        client: Client,
        partitions: Iterable[TopicPartition],
        stable: Mapping[TopicPartition, int],
        ends: Mapping[TopicPartition, int],
    ) -> None:
        wanted = list(partitions)
        problem = "its leader names no open transaction"
        holders: dict[TopicPartition, OpenTransaction] = {}
        now = 0
        try:
            found = scan(client, Scope(partitions=tuple(wanted)))
            now = found.now_ms
            for one in found.transactions:
                holders.setdefault(one.where, one)  # sorted by start: the first one holds
            if found.unanswered:
                problem = f"which one is not known: {found.unanswered[0]}"
        except ClientError as error:
            problem = f"which one is not known: {error}"
        for partition in wanted:
            text = describe_held(partition, stable[partition], ends[partition], holders.get(partition), now, problem)
            if partition not in self._lines:
                _LOG.warning("%s", text)
            self._lines[partition] = text


def describe_held(
    partition: TopicPartition, stable: int, end: int, holder: OpenTransaction | None, now_ms: int, problem: str
) -> str:
    """One line about a held partition: by which transaction, since when, how many offsets wait, and the command to go
    on."""
    if holder is None:
        who = f"held by a transaction ({problem})"
    else:
        named = f" {holder.transactional_id!r}" if holder.transactional_id else ""
        producer = holder.producer
        who = f"held by transaction{named} of producer id {producer.producer_id}, epoch {producer.producer_epoch}"
        if holder.age_ms is not None:
            who += f", since {moment_text(now_ms - holder.age_ms)} ({duration_text(holder.age_ms)})"
    return (
        f"{partition} at offset {stable}, {end - stable} offsets below its end: {who}; "
        f"see `oncelog txn explain {option('--topic', partition.topic)} --partition {partition.partition}`"
    )
