"""A member of a share group (KIP-932). A member is a value; every change makes a new one."""

from __future__ import annotations

from typing import NamedTuple

from oncelog.base.ids import MemberId, TopicName
from oncelog.core.groups.modern.members import (
    JOINING_EPOCH,
    MEMBER_BYTES,
    NO_PARTITIONS,
    MemberState,
    Partitions,
    bytes_of_names,
    bytes_of_share,
)


class ShareMember(NamedTuple):
    """A member as its three records describe it. Its partitions may be those of other members, too."""

    member_id: MemberId
    epoch: int = JOINING_EPOCH
    previous_epoch: int = -1
    state: int = MemberState.STABLE
    """STABLE in every record of ours and Apache Kafka's."""
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topics: frozenset[TopicName] = frozenset()
    assigned: Partitions = NO_PARTITIONS

    def size_bytes(self) -> int:
        """An estimate of the memory that the member holds."""
        return MEMBER_BYTES + len(self.member_id) + bytes_of_names(self.topics) + bytes_of_share(self.assigned)

    def subscribes_as(self, other: ShareMember) -> bool:
        # Python compares a set of 20,000 names with itself name by name.
        return self.topics is other.topics or self.topics == other.topics

    def is_reconciled_to(self, target_epoch: int) -> bool:
        return self.state == MemberState.STABLE and self.epoch == target_epoch
