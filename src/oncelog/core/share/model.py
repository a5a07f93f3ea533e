"""Values of a share partition: states of records, settings, and what passes between it and its node (KIP-932)."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Final, NamedTuple

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import MemberId, Offset
from oncelog.records.internal.share_state_records import StateBatch as StateBatch

NO_MEMBER: Final = MemberId("")
"""Holder of records without a holder."""
NO_START_OFFSET: Final = Offset(-1)
"""Start offset of a state that was never written: the group's ``share.auto.offset.reset`` chooses."""


class RecordState(IntEnum):
    """The delivery state of a record, with the numbers of the persisted state."""

    AVAILABLE = 0
    ACQUIRED = 1
    ACKNOWLEDGED = 2
    ARCHIVING = 3
    """The record's dead letter is being written (KIP-1191); afterwards it is archived."""
    ARCHIVED = 4

    @property
    def is_terminal(self) -> bool:
        """True if the record is never delivered again."""
        return self in TERMINAL


TERMINAL: Final = (RecordState.ACKNOWLEDGED, RecordState.ARCHIVED)


class AcknowledgeType(IntEnum):
    """The types of ShareFetch and ShareAcknowledge."""

    GAP = 0
    """No record at the offset: compaction removed it, or it is a control record."""
    ACCEPT = 1
    RELEASE = 2
    REJECT = 3
    RENEW = 4
    """A new lock replaces the present one (KIP-1222)."""


class DeadLetterCause(IntEnum):
    REJECTED = 0
    TOO_MANY_DELIVERIES = 1


class ShareSettings(NamedTuple):
    """Settings of a group, read at each call: they may change at any time."""

    lock_duration_ms: int = 30_000
    """``share.record.lock.duration.ms``."""
    max_deliveries: int = 5
    """``share.delivery.count.limit``."""
    max_in_flight: int = 2000
    """``share.partition.max.record.locks``."""
    may_renew: bool = True
    """``share.renew.acknowledge.enable``."""
    has_dead_letters: bool = False
    """True if ``errors.deadletterqueue.topic.name`` is set and the cluster's ``share.version`` allows it."""


class ShareState(NamedTuple):
    """State as the share coordinator keeps it; in a write, ``batches`` are those that changed."""

    state_epoch: int
    start_offset: Offset
    delivery_complete_count: int
    """Records at or after the start offset that are in a terminal state; −1 if unknown."""
    batches: Sequence[StateBatch]


class AcquiredBatch(NamedTuple):
    """Records that a member has acquired; both offsets are inclusive."""

    first_offset: Offset
    last_offset: Offset
    delivery_count: int

    @property
    def record_count(self) -> int:
        return self.last_offset - self.first_offset + 1


class Acknowledgement(NamedTuple):
    """``types`` has one entry for all records of the range, or one for each offset."""

    first_offset: Offset
    last_offset: Offset
    types: Sequence[int]


class DeadLetters(NamedTuple):
    """Records to copy to the dead letter topic, before :meth:`SharePartition.archived`."""

    first_offset: Offset
    last_offset: Offset
    delivery_count: int
    cause: DeadLetterCause


class InFlightRecords(NamedTuple):
    """A range of records in one state, as a tool shows it."""

    first_offset: Offset
    last_offset: Offset
    delivery_state: RecordState
    delivery_count: int
    member_id: MemberId
    """The holder, or empty."""
    locked_since_ms: int | None
    locked_until_ms: int | None


class Refusal(NamedTuple):
    """An acknowledgement that changes nothing."""

    error_code: ErrorCode
    message: str


class WriteOutcome(NamedTuple):
    """Consequences of the end of a write."""

    wakes: bool
    """True if waiting fetches should look again: records became available or the window moved."""
    dead_letters: Sequence[DeadLetters] = ()
    """To be copied now; each is then reported by :meth:`SharePartition.archived`."""
