"""A group of a newer protocol (KIP-848, KIP-932): its epoch, its members, and their target assignment.

The rule: only records change a group, in any order, after any compaction (KAFKA-17306, KAFKA-19862). A tombstone of
something unknown changes nothing.
"""

from __future__ import annotations

from typing import Final, Generic, Protocol, TypeVar

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import GroupId, MemberId
from oncelog.core.groups.modern.members import NO_PARTITIONS, Partitions, bytes_of_share

FIRST_EPOCH: Final = 1


class Refused(Exception):
    """A request that changes nothing: its error code and message."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code


class Member(Protocol):
    def size_bytes(self) -> int: ...


M = TypeVar("M", bound=Member)


class ModernGroup(Generic[M]):
    """The persisted state that groups of all newer protocols have."""

    protocol: str
    """The protocol's name in messages to clients."""

    def __init__(self, group_id: GroupId) -> None:
        self.group_id = group_id
        self.epoch = FIRST_EPOCH
        self.metadata_hash = 0
        self.target_epoch = FIRST_EPOCH
        self.target_timestamp_ms = 0
        """When the target assignment was computed; 0: not known, so the next one may be computed at once."""
        self.members: dict[MemberId, M] = {}
        self.target: dict[MemberId, Partitions] = {}
        self.metadata_refresh_epoch: int | None = None
        """The epoch in which the metadata hash was last compared. Soft: None after loading and new metadata."""
        self._held_bytes = 0

    def size_bytes(self) -> int:
        """An estimate of the memory that the group holds: members, their targets, and what else its protocol has."""
        return self._held_bytes

    def known_member(self, member_id: MemberId) -> M:
        """Raises Refused."""
        member = self.members.get(member_id)
        if member is None:
            raise Refused(ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {self.group_id}.")
        return member

    def check_not_full(self, member_id: MemberId, max_size: int) -> None:
        """Raises Refused for a new member of a full group."""
        if len(self.members) >= max_size and member_id not in self.members:
            raise Refused(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                f"The {self.protocol} group has reached its maximum capacity of {max_size} members.",
            )

    def is_target_due(self, epoch: int, interval_ms: int, now_ms: int) -> bool:
        """True if the target assignment is older than the epoch, and than the pause between two assignments."""
        # A time in the future is that of a coordinator whose clock is ahead: the interval cannot be told from it.
        is_recent = 0 <= now_ms - self.target_timestamp_ms < interval_ms
        return self.target_epoch < epoch and not (is_recent and self.target_timestamp_ms)

    def is_compared(self) -> bool:
        """True if the metadata hash was compared since the last change of metadata, and the records of that comparison
        were appended."""
        return self.metadata_refresh_epoch is not None and self.metadata_refresh_epoch <= self.epoch

    def _set_target(self, member_id: MemberId, share: Partitions | None) -> None:
        self._held_bytes -= bytes_of_share(self.target.get(member_id, NO_PARTITIONS))
        if share is None:
            self.target.pop(member_id, None)
        else:
            self.target[member_id] = share
            self._held_bytes += bytes_of_share(share)

    def _set_member(self, member_id: MemberId, member: M | None) -> None:
        before = self.members.get(member_id)
        if before is not None:
            self._held_bytes -= before.size_bytes()
        if member is None:
            self.members.pop(member_id, None)
        else:
            self.members[member_id] = member
            self._held_bytes += member.size_bytes()
