"""Each transactional id once, though coordinators move while they are asked for their ids.

A broker answers ListTransactions by the partitions of the transaction log that it hosts, Apache Kafka's too. While one
moves, the old coordinator and the new one may both tell its ids: they are asked one after the other, and the old one
may not have heard of its end. Or neither tells them, where the new one was asked before the move and the old one after.
Rules:

1. An id that several brokers tell counts as it is told by the one that leads its partition of the transaction log, by
   metadata that are read after the answers.
2. Where that is none of them, all stay, and the list says so.
3. A partition whose leader has changed since before the brokers were asked is named: ids may be missing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import Final

from oncelog.admin.transactions.broker_requests import Unanswered
from oncelog.admin.transactions.leadership import Claim, claims_on_coordinators, coordinator_of
from oncelog.base.ids import TRANSACTION_STATE, TopicPartition
from oncelog.client.errors import ClientError
from oncelog.client.programs import Cluster, Program

_SHOWN: Final = 5


@dataclass(frozen=True, slots=True)
class ListedTransaction:
    transactional_id: str
    producer_id: int
    state: str
    coordinator: int


def has_repeated(rows: Iterable[ListedTransaction]) -> bool:
    """True if an id is told more than once. ``rows`` are in the order of ids."""
    return any(row.transactional_id == following.transactional_id for row, following in pairwise(rows))


class ToldOnce:
    """The rules for one list. Made after the metadata of the transaction log were read, before the brokers are asked;
    ``unanswered`` has what may be wrong with the list."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._before = claims_on_coordinators(cluster)
        self._is_settled = False
        self.unanswered: list[Unanswered] = []
        self.dropped: set[tuple[str, int]] = set()
        """Ids, each with a broker that told it and does not coordinate it."""

    def settle(self) -> Program[None]:
        """Look at who leads now: all brokers have answered."""
        if self._is_settled or not self._before:
            return
        self._is_settled = True
        try:
            yield from self._cluster.metadata([TRANSACTION_STATE])
        except ClientError as error:
            self.unanswered.append(Unanswered(None, f"who leads {TRANSACTION_STATE} now", str(error)))
            return
        moved = _moved(self._before, claims_on_coordinators(self._cluster))
        if moved:
            what = f"{TRANSACTION_STATE} partition {_shortened(moved)}"
            reason = "its coordinator changed while brokers were asked, so ids may be missing; ask again"
            self.unanswered.append(Unanswered(None, what, reason))

    def filter(self, rows: Iterable[ListedTransaction]) -> Iterator[ListedTransaction]:
        """The rows without those of brokers that do not coordinate their id. ``rows`` are in the order of ids, and
        ``settle`` was called if some ids are told twice."""
        for transactional_id, group in groupby(rows, key=lambda row: row.transactional_id):
            told = list(group)
            if len(told) > 1:
                told = self._of_coordinator(transactional_id, told)
            yield from told

    def _of_coordinator(self, transactional_id: str, told: list[ListedTransaction]) -> list[ListedTransaction]:
        leader = coordinator_of(self._cluster, transactional_id)
        kept = [row for row in told if row.coordinator == leader]
        if not kept:
            brokers = ", ".join(map(str, sorted(row.coordinator for row in told)))
            reason = f"brokers {brokers} tell it, and none of them leads its partition; ask again"
            self.unanswered.append(Unanswered(None, f"transactional id {transactional_id!r}", reason))
            return told
        self.dropped.update((transactional_id, row.coordinator) for row in told if row.coordinator != leader)
        return kept


def _moved(before: Mapping[TopicPartition, Claim], after: Mapping[TopicPartition, Claim]) -> list[int]:
    return [partition.partition for partition, claim in before.items() if after.get(partition, claim) != claim]


def _shortened(partitions: list[int]) -> str:
    return ", ".join(map(str, partitions[:_SHOWN])) + (", …" if len(partitions) > _SHOWN else "")
