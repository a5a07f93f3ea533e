"""The port through which handlers reach the share partitions that this broker leads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, Protocol

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import NO_OFFSET, GroupId, LeaderEpoch, MemberId, Offset, TopicPartition
from oncelog.core.share.model import Acknowledgement, Refusal

if TYPE_CHECKING:
    from oncelog.core.groups.share.settings import ShareGroupSettings
    from oncelog.core.share.partition import SharePartition
    from oncelog.core.share.sessions import SessionKey, ShareSession, ShareSessions
    from oncelog.core.share_state.model import ShareKey


class LedSharePartition:
    """A partition as one group sees it, for as long as this broker leads it in one epoch.

    ``machine`` is None while its state is read; then it stays None if that failed, for the reason in ``refusal``.
    """

    __slots__ = (
        "compares_again",
        "durable_start",
        "is_compared",
        "key",
        "leader_epoch",
        "machine",
        "partition",
        "refusal",
        "search_from_ms",
        "sent_start",
        "writes",
    )

    def __init__(self, key: ShareKey, partition: TopicPartition, leader_epoch: LeaderEpoch) -> None:
        self.key = key
        self.partition = partition
        self.leader_epoch = leader_epoch
        self.machine: SharePartition | None = None
        self.refusal: Refusal | None = None
        """Why it cannot be used any more."""
        self.search_from_ms: int | None = None
        """The group begins at the first record of this time or later: a request has to find it."""
        self.writes = 0
        """Writes of its state on their way."""
        self.durable_start = self.sent_start = NO_OFFSET
        """The start offset that the coordinator is known to have, and the last one that was sent to it."""
        self.is_compared = False
        """True while the coordinator is asked whether it still has this state: nothing is acquired."""
        self.compares_again = False


class PendingAcknowledgement:
    """The outcome of an acknowledgement, once its state is durable or refused."""

    __slots__ = ("_callback", "is_settled", "refusal")

    def __init__(self) -> None:
        self.is_settled = False
        self.refusal: Refusal | None = None
        self._callback: Callable[[], object] | None = None

    def settle(self, refusal: Refusal | None = None) -> None:
        self.is_settled, self.refusal = True, refusal
        if self._callback is not None:
            self._callback()

    def when_settled(self, callback: Callable[[], object]) -> None:
        self._callback = callback


UNKNOWN_PARTITION: Final = Refusal(
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition."
)
NOT_LEADER: Final = Refusal(
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    "For requests intended only for the leader, this error indicates that the broker is not the current leader. For "
    "requests intended for any replica, this error indicates that the broker is not a replica of the topic partition.",
)


class Shares(Protocol):
    """The share sessions of this broker's clients, and the share partitions it leads for their groups."""

    sessions: ShareSessions

    @property
    def now_ms(self) -> int:
        """Time of the event being handled: a waiting request is asked before its context's time moves."""

    @property
    def changes(self) -> int:
        """A position in the changes of share partitions and their logs."""

    def changed_since(self, changes: int) -> Sequence[TopicPartition | ShareKey] | None:
        """The keys that have changed since a position; None if they are too many."""

    def settings_of(self, group_id: GroupId) -> ShareGroupSettings:
        """The group's present settings."""

    def led(self, key: ShareKey, partition: TopicPartition) -> LedSharePartition | Refusal | None:
        """A share partition for a fetch. The first call reads its state; fetches that wait for ``key`` are woken by the
        end of that. None: there is no room for more of them now.
        """

    def led_already(self, key: ShareKey) -> LedSharePartition | None:
        """A share partition that is led here already, to describe it."""

    def partition_added(self, key: ShareKey) -> None:
        """A member begins to fetch a share partition: its group may not be the one whose state was read here, but one
        made again."""

    def machine_of(self, led: LedSharePartition) -> SharePartition | None:
        """The machine, to acquire records, with the group's present settings; None while it cannot be used."""

    def begin_at(self, led: LedSharePartition, offset: Offset | Refusal) -> None:
        """Begin a share partition at the offset found for its ``search_from_ms``."""

    def acquired(self, led: LedSharePartition) -> None:
        """Records were acquired: watch over their locks."""

    def acknowledge(
        self, key: ShareKey, member_id: MemberId, acknowledgements: Sequence[Acknowledgement]
    ) -> PendingAcknowledgement:
        """Acknowledge records that a member has acquired."""

    def goes_on_releasing(self, key: SessionKey) -> bool:
        """Release a slice of what a former session of the member had. Returns True if more is left: nothing may be
        acquired for the member before."""

    def end_session(self, session: ShareSession) -> None:
        """End a session and release the records of its member; does not wait until that is durable. Nothing if it has
        ended already: the member may have another one since."""
