"""Lists each transactional id once, although coordinators move while they are queried.

A broker, Apache Kafka's too, answers ListTransactions from the transaction log partitions that it hosts. While one
moves, both coordinators may list its ids, since the old one may not know that it was replaced; or neither does, if the
new one was queried before the move and the old one after.
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

_MAX_NAMED: Final = 5


@dataclass(frozen=True, slots=True)
class ListedTransaction:
    transactional_id: str
    producer_id: int
    state: str
    coordinator: int


def has_repeated(rows: Iterable[ListedTransaction]) -> bool:
    """True if an id is listed more than once. ``rows`` are in the order of ids."""
    return any(row.transactional_id == following.transactional_id for row, following in pairwise(rows))


class UniqueIdFilter:
    """Filters one list. Create it after the transaction log's metadata is read, before brokers are queried;
    ``unanswered`` says what may be wrong."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._before = claims_on_coordinators(cluster)
        self._is_settled = False
        self.unanswered: list[Unanswered] = []
        self.dropped: set[tuple[str, int]] = set()
        """Ids, each with a broker that listed it without coordinating it."""

    def settle(self) -> Program[None]:
        """Read the leaders again, once all brokers have answered."""
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
            subject = f"{TRANSACTION_STATE} partition {_shortened(moved)}"
            reason = "its coordinator changed while brokers were asked, so ids may be missing; ask again"
            self.unanswered.append(Unanswered(None, subject, reason))

    def filter(self, rows: Iterable[ListedTransaction]) -> Iterator[ListedTransaction]:
        """The rows without those of brokers that do not coordinate their id. ``rows`` are sorted by id; call ``settle``
        first if some ids are listed twice."""
        for transactional_id, group in groupby(rows, key=lambda row: row.transactional_id):
            listed = list(group)
            if len(listed) > 1:
                listed = self._of_coordinator(transactional_id, listed)
            yield from listed

    def _of_coordinator(self, transactional_id: str, listed: list[ListedTransaction]) -> list[ListedTransaction]:
        # The broker that leads the partition by metadata read after the answers.
        leader = coordinator_of(self._cluster, transactional_id)
        kept = [row for row in listed if row.coordinator == leader]
        # All rows stay, and the list says so.
        if not kept:
            brokers = ", ".join(map(str, sorted(row.coordinator for row in listed)))
            reason = f"brokers {brokers} tell it, and none of them leads its partition; ask again"
            self.unanswered.append(Unanswered(None, f"transactional id {transactional_id!r}", reason))
            return listed
        self.dropped.update((transactional_id, row.coordinator) for row in listed if row.coordinator != leader)
        return kept


def _moved(before: Mapping[TopicPartition, Claim], after: Mapping[TopicPartition, Claim]) -> list[int]:
    return [partition.partition for partition, claim in before.items() if after.get(partition, claim) != claim]


def _shortened(partitions: list[int]) -> str:
    return ", ".join(map(str, partitions[:_MAX_NAMED])) + (", …" if len(partitions) > _MAX_NAMED else "")
