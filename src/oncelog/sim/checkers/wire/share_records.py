"""The records of a share partition as they show on the wire: deliveries, locks, and acknowledgements."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final, NamedTuple

from oncelog.base.errors import ErrorCode
from oncelog.sim.checkers.wire.share_sessions import ShareKey

ACCEPT: Final = 1
RELEASE: Final = 2
REJECT: Final = 3
RENEW: Final = 4
# Answers to acknowledgements that have changed nothing.
_REFUSED: Final = frozenset(
    {
        ErrorCode.INVALID_RECORD_STATE,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.INVALID_SHARE_SESSION_EPOCH,
        ErrorCode.SHARE_SESSION_NOT_FOUND,
        ErrorCode.UNKNOWN_TOPIC_ID,
    }
)


class Delivery(NamedTuple):
    """``requested`` and ``sent`` are indexes of the wire; the records were acquired in between."""

    member: str
    delivery_count: int
    broker_id: int
    # The broker keeps the share partition in memory throughout a tenure.
    tenure: int
    requested: int
    sent: int
    # Fetches of the share partition before that were never answered.
    lost: int


class Settled(NamedTuple):
    """An acknowledgement that was carried out; ``answered`` is the index of the wire."""

    kind: int
    member: str
    delivery_count: int
    broker_id: int
    answered: int


@dataclass(slots=True)
class RecordSeen:
    last: Delivery | None = None
    by_member: dict[str, Delivery] = field(default_factory=dict)
    max_count: int = 0
    # Fetches without an answer when ``max_count`` was seen.
    lost: int = 0
    settled: Settled | None = None
    released: Settled | None = None
    # Requests to settle it, whatever the answer, and their members.
    attempts: int = 0
    settlers: set[str] = field(default_factory=set)
    # A settling acknowledgement may have been carried out, or not.
    is_open: bool = False
    is_rejected: bool = False
    """True if a rejection was, or may have been, carried out."""


@dataclass(slots=True)
class ShareLog:
    """A share partition. ``broker_id``: the broker of the last request."""

    broker_id: int = 0
    tenure: int = 0
    records: dict[int, RecordSeen] = field(default_factory=dict)
    # Records whose lock may still run, with the time until which it runs at least.
    held: dict[int, int] = field(default_factory=dict)
    # Indexes of the wire when fetches got lost, which will never be answered; and those that are not answered yet.
    lost_at: list[int] = field(default_factory=list)
    waiting: int = 0
    # Broker → index of its first request since it may have begun to lead.
    begun_at: dict[int, int] = field(default_factory=dict)

    @property
    def lost(self) -> int:
        return len(self.lost_at)

    def lost_since(self, index: int) -> int:
        return len(self.lost_at) - bisect_left(self.lost_at, index)

    def record(self, offset: int) -> RecordSeen:
        record = self.records.get(offset)
        if record is None:
            record = self.records[offset] = RecordSeen()
        return record

    def requested(self, broker_id: int, index: int) -> None:
        if self.broker_id != broker_id:
            self.broker_id = broker_id
            self.end_tenure()
        self.begun_at.setdefault(broker_id, index)

    def end_tenure(self) -> None:
        self.tenure += 1
        self.held.clear()

    def end_locks(self, member: str) -> None:
        for offset in [offset for offset in self.held if self.holder(offset) == member]:
            del self.held[offset]

    def holder(self, offset: int) -> str | None:
        last = self.records[offset].last
        return None if last is None else last.member

    def knows(self, broker_id: int, settled: Settled) -> bool:
        """True if the broker knows of a settled record. A former leader that has not heard of the next one does not."""
        return broker_id == settled.broker_id or self.begun_at.get(broker_id, 0) > settled.answered


class AnswerKind(Enum):
    DONE = "done"
    REFUSED = "refused"
    UNKNOWN = "unknown"


def answer_kind(code: int) -> AnswerKind:
    if code == ErrorCode.NONE:
        return AnswerKind.DONE
    return AnswerKind.REFUSED if code in _REFUSED else AnswerKind.UNKNOWN


def acknowledged_in(request: Any) -> Iterator[tuple[ShareKey, list[tuple[int, int]]]]:
    """The acknowledged offsets of a request by share partition, each with its type."""
    for topic in request.topics:
        for partition in topic.partitions:
            offsets = [pair for batch in partition.acknowledgement_batches for pair in _offsets_in(batch)]
            if offsets:
                yield ShareKey(request.group_id, topic.topic_id, partition.partition_index), offsets


def _offsets_in(batch: Any) -> Iterator[tuple[int, int]]:
    types = batch.acknowledge_types
    for index, offset in enumerate(range(batch.first_offset, batch.last_offset + 1)):
        yield offset, types[0] if len(types) == 1 else types[index]
