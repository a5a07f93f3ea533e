"""A4 and A5: transactions that were ended by somebody other than their coordinator, by what the audit log says of them.

A marker on the disk is a coordinator's (its log has decided so), or it is in the audit log. What an administrator has
ended was not live: its coordinator did not have it open with that partition.
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
    """A transaction ended on one partition, as the audit log has it; times by the broker's clock."""

    action: str
    partition: TopicPartition
    producer_id: int
    producer_epoch: int
    at_ms: int


class Listing(NamedTuple):
    """A coordinator has a transaction open with a partition on its list, since ``from_ms``."""

    epoch: int
    from_ms: int


Place = tuple[TopicPartition, int]
"""Partition and producer id."""


def ends_of(records: Iterable[AuditRecord]) -> list[End]:
    """Transactions that were ended, by an audit log."""
    found = []
    for record in records:
        if record.action not in _ENDS:
            continue
        transaction = record.transaction
        for entry in _entries(transaction["partitions"]):
            if entry["outcome"] == _WRITTEN:
                partition = TopicPartition(TopicName(str(entry["topic"])), _number(entry["partition"]))
                producer = _number(transaction["producer_id"]), _number(transaction["producer_epoch"])
                found.append(End(record.action, partition, *producer, record.time_ms))
    return found


def _entries(value: object) -> list[Mapping[str, object]]:
    assert isinstance(value, list)
    return value


def _number(value: object) -> int:
    assert isinstance(value, int)
    return value


class Listings:
    """Partitions that coordinators have had on their lists, read from their logs record by record."""

    def __init__(self) -> None:
        self.of: dict[Place, list[Listing]] = {}
        """Listings in order: first those decided, then the one that is open at the end, if one is."""
        self._open: dict[str, dict[Place, Listing]] = {}

    def read(self, transactional_id: str, value: TransactionValue | None) -> None:
        """The next record of an id; None is a tombstone."""
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
    """A finding if the transaction that was ended was on its coordinator's list; ``decided``: how many markers of the
    coordinator are before this one in the partition."""
    if decided < len(listed):
        listing = listed[decided]
        if listing.epoch == end.producer_epoch and listing.from_ms < end.at_ms:
            what = f"{end.action} at {end.at_ms}, listed by its coordinator since {listing.from_ms}"
            yield LIVE_ENDED, f"{end.partition}: producer {end.producer_id}, epoch {end.producer_epoch}: {what}"
