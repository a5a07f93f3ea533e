"""Share partitions for tests, with short words for what is done to them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import MemberId, Offset
from oncelog.core.share.model import (
    Acknowledgement,
    AcknowledgeType,
    RecordState,
    Refusal,
    ShareSettings,
    ShareState,
    StateBatch,
    WriteOutcome,
)
from oncelog.core.share.partition import SharePartition
from oncelog.core.share.transitions import StateWrite
from tests.conformance.share.log import LogBatch

GAP, ACCEPT, RELEASE, REJECT, RENEW = AcknowledgeType
AVAILABLE, ACQUIRED, ACKNOWLEDGED, ARCHIVING, ARCHIVED = RecordState
ALICE, BOB = MemberId("alice"), MemberId("bob")
LOCK_MS = 30_000


class Tried:
    """A share partition, and the calls of its node."""

    def __init__(self, *batches: tuple[int, int, RecordState, int], start: int = 0, **settings: Any) -> None:
        state = ShareState(3, Offset(start), -1, [StateBatch(*batch) for batch in batches])
        self.partition = SharePartition(state, ShareSettings(**settings))
        self.now_ms = 0

    def acquire(
        self,
        *batches: tuple[int, int] | LogBatch,
        member: MemberId = ALICE,
        at: int | None = None,
        most: int = 500,
        size: int = 500,
        limited: bool = False,
        aborted: Sequence[tuple[int, int]] = (),
    ) -> list[tuple[int, int, int]]:
        headers = [batch if isinstance(batch, LogBatch) else LogBatch(*batch, -1, "plain") for batch in batches]
        acquired = self.partition.acquire(
            member,
            headers,  # type: ignore[arg-type]
            aborted,
            fetch_offset=self.partition.next_fetch_offset() if at is None else Offset(at),
            record_limit=limited,
            batch_size=size,
            max_records=most,
            now_ms=self.now_ms,
        )
        self.partition.check()
        return [tuple(batch) for batch in acquired]

    def acknowledge(self, *acknowledgements: tuple[Any, ...], member: MemberId = ALICE) -> StateWrite | Refusal | None:
        """Each acknowledgement is a first and a last offset, and one type or one for each offset."""
        outcome = self.partition.acknowledge(
            member,
            [Acknowledgement(Offset(first), Offset(last), types) for first, last, *types in acknowledgements],
            self.now_ms,
        )
        self.partition.check()
        return outcome

    def acknowledged(self, *acknowledgements: tuple[Any, ...], member: MemberId = ALICE) -> WriteOutcome:
        """Acknowledge durably."""
        return self.written(self.acknowledge(*acknowledgements, member=member))

    def written(self, write: object, error: ErrorCode = ErrorCode.NONE) -> WriteOutcome:
        assert isinstance(write, StateWrite), write
        outcome = self.partition.written(write, error)
        self.partition.check()
        return outcome

    def sleep(self, duration_ms: int) -> StateWrite | None:
        self.now_ms += duration_ms
        write = self.partition.expire(self.now_ms)
        self.partition.check()
        return write

    @property
    def records(self) -> list[tuple[int, int, RecordState, int]]:
        """The window: ranges of offsets with state and delivery count."""
        return [row[:4] for row in self.partition.in_flight()]

    @property
    def span(self) -> tuple[int, int]:
        return self.partition.start_offset, self.partition.end_offset

    @property
    def next_offset(self) -> int:
        return self.partition.next_fetch_offset()


def batches_of(write: object) -> list[tuple[int, int, int, int]]:
    assert isinstance(write, StateWrite), write
    return [tuple(batch) for batch in write.state.batches]


def message_of(outcome: object) -> str:
    assert isinstance(outcome, Refusal), outcome
    return outcome.message
