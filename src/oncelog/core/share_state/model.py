"""Requests to share coordinators and their replies (KIP-932)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import GroupId, LeaderEpoch, Offset, TopicId, uuid_bytes, uuid_text
from oncelog.records.internal.share_state_records import NO_COUNT, SnapshotValue, StateBatch

_LARGEST_INT32: Final = 2**31 - 1


class ShareKey(NamedTuple):
    """A partition of a topic as one group sees it: a share partition."""

    group_id: GroupId
    topic_id: TopicId
    partition: int

    @property
    def coordinator_key(self) -> str:
        """The name whose hash chooses the partition of ``__share_group_state``."""
        return f"{self.group_id}:{uuid_text(self.topic_id)}:{self.partition}"


def parse_coordinator_key(text: str) -> ShareKey:
    """The key that :attr:`ShareKey.coordinator_key` writes. Raises ValueError; a group id may have colons."""
    group_id, _, rest = text.rpartition(":")
    group_id, _, topic_id = group_id.rpartition(":")
    if not group_id.strip():
        raise ValueError("the group id is empty")
    if not rest.removeprefix("-").removeprefix("+").isdecimal() or not -_LARGEST_INT32 <= int(rest) <= _LARGEST_INT32:
        raise ValueError(f"not a partition: {rest!r}")
    return ShareKey(GroupId(group_id), TopicId(uuid_bytes(topic_id)), int(rest))


class InitializeState(NamedTuple):
    """Begin, or begin again, at a start offset (−1: not known yet) in a new state epoch."""

    key: ShareKey
    state_epoch: int
    start_offset: Offset


class ReadState(NamedTuple):
    """Read the whole state, for a leader that begins: older leaders are fenced from then on."""

    key: ShareKey
    leader_epoch: LeaderEpoch


class WriteState(NamedTuple):
    """Merge the batches that have changed. A start offset of −1 leaves the present one."""

    key: ShareKey
    state_epoch: int
    leader_epoch: LeaderEpoch
    start_offset: Offset
    delivery_complete_count: int = NO_COUNT
    batches: Sequence[StateBatch] = ()


class DeleteState(NamedTuple):
    key: ShareKey


class SummarizeState(NamedTuple):
    """Read the state without its batches, for an administrator; fences nobody."""

    key: ShareKey
    leader_epoch: LeaderEpoch


StateRequest = InitializeState | ReadState | WriteState | DeleteState | SummarizeState


class StateReply(NamedTuple):
    """``message`` is Apache Kafka's text for an error. ``state`` answers ReadState and SummarizeState."""

    error_code: ErrorCode = ErrorCode.NONE
    message: str | None = None
    state: SnapshotValue | None = None


class ShareStateDecision(NamedTuple):
    """Records to append and apply, and what follows once they are durable."""

    records: Sequence[tuple[bytes, bytes | None]] = ()
    reply: StateReply | None = None
    released: Sequence[tuple[int, object]] = ()
    """Always empty: no request waits for another one's decision."""
    prune_before: Offset | None = None
    """Records before this offset of the log are superseded: delete them."""
