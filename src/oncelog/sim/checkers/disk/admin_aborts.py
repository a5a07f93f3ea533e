"""A4 and A5: transactions ended by an administrator or an automatic action, according to the audit log.

Each marker is a decision of its coordinator's log, or in the audit log. No administrator has ended a live transaction,
which its coordinator had open with that partition.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from oncelog.base.ids import TopicName, TopicPartition
from oncelog.handlers.broker.audit import AuditRecord
from oncelog.records.internal.transaction_records import TransactionValue
from oncelog.sim.checkers.disk.logs import Finding

UNAUDITED: Final = "A4 marker without an audit record"
LIVE_ENDED: Final = "A5 live transaction ended by an administrator"
ORPHAN_ABORT: Final = "orphan-abort"
_ENDS: Final = frozenset({"abort-hanging", "write-markers", ORPHAN_ABORT})
_ONGOING: Final = 1
_PREPARED: Final = (2, 3)
_WRITTEN: Final = "NONE"


class End(NamedTuple):
    """A transaction ended on one partition, from the audit log. Times are by the broker's clock."""

    action: str
    partition: TopicPartition
    producer_id: int
    producer_epoch: int
    at_ms: int


class Listing(NamedTuple):
    """A coordinator's entry of a partition in an open transaction, since ``from_ms``."""

    epoch: int
    from_ms: int


# Partition and producer id.
Place = tuple[TopicPartition, int]


def ends_of(records: Iterable[AuditRecord]) -> list[End]:
    ends = []
    for record in records:
        if record.action not in _ENDS:
            continue
        transaction = record.transaction
        for entry in _entries(transaction["partitions"]):
            if entry["outcome"] == _WRITTEN:
                partition = TopicPartition(TopicName(str(entry["topic"])), _number(entry["partition"]))
                producer = _number(transaction["producer_id"]), _number(transaction["producer_epoch"])
                ends.append(End(record.action, partition, *producer, record.time_ms))
    return ends


def _entries(value: object) -> list[Mapping[str, object]]:
    assert isinstance(value, list)
    return value


def _number(value: object) -> int:
    assert isinstance(value, int)
    return value


class Listings:
    """Partitions that coordinators had in open transactions, from their logs record by record."""

    def __init__(self) -> None:
        # Listings in order: the decided ones, then the one still open at the end.
        self.of: dict[Place, list[Listing]] = {}
        self._open: dict[str, dict[Place, Listing]] = {}

    def read(self, transactional_id: str, value: TransactionValue | None) -> None:
        """Apply the next record of an id; None is a tombstone."""
        opened = self._open.setdefault(transactional_id, {})
        if value is None or value.status not in (_ONGOING, *_PREPARED):
            opened.clear()
            return
        for topic, partitions in value.partitions or ():
            for index in partitions:
                place = TopicPartition(TopicName(topic), index), value.producer_id
                listing = opened.setdefault(place, Listing(value.producer_epoch, value.last_update_timestamp))
                if value.status in _PREPARED:
                    self.of.setdefault(place, []).append(listing)
        if value.status in _PREPARED:
            opened.clear()

    def end(self) -> None:
        for opened in self._open.values():
            for place, listing in opened.items():
                self.of.setdefault(place, []).append(listing)


def live_ended(end: End, listed: list[Listing], decided: int) -> Iterator[Finding]:
    # `decided` counts the coordinator's markers before this one in the partition: it indexes the listing of this one.
    if decided < len(listed):
        listing = listed[decided]
        if listing.epoch == end.producer_epoch and listing.from_ms < end.at_ms:
            detail = f"{end.action} at {end.at_ms}, listed by its coordinator since {listing.from_ms}"
            yield LIVE_ENDED, f"{end.partition}: producer {end.producer_id}, epoch {end.producer_epoch}: {detail}"
