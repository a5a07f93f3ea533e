"""The outcome of a request to a share group, or of a timer. It changes nothing; its records do, once applied."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from oncelog.base.ids import GroupId, MemberId, Offset, TopicId
from oncelog.core.groups.modern.members import Partitions
from oncelog.core.groups.share.records import ShareRecord

UNINITIALIZED_OFFSET = Offset(-1)
"""The start offset of a partition whose leader chooses it by the group's ``share.auto.offset.reset``."""


class PartitionState(NamedTuple):
    """A partition whose share state the share coordinator has to make or delete."""

    topic: TopicId
    partition: int
    state_epoch: int = 0
    start_offset: Offset = UNINITIALIZED_OFFSET


class ShareHeartbeatAnswer(NamedTuple):
    """The answer to a heartbeat; ``assignment`` is None where it is as the member knows it."""

    member_id: MemberId
    epoch: int
    assignment: Partitions | None = None


@dataclass(slots=True)
class ShareDecision:
    group_id: GroupId
    answer: ShareHeartbeatAnswer | None = None
    records: list[ShareRecord] = field(default_factory=list)
    session_of: MemberId | None = None
    """The member whose session restarts."""
    to_initialize: Sequence[PartitionState] = ()
    """State that the share coordinator makes once the records are durable; ``ShareGroups.initialized`` takes
    the results.
    """
    lacks_room: bool = False
    """Partitions of subscribed topics get no share state: too many have it."""
