"""A member of a consumer group (KIP-848): what it subscribes to, and how far it has followed the target assignment.

A member is a value; every change makes a new one. ``assigned`` and ``pending_revocation`` map a topic's id to its
partitions, each with the epoch in which the member got it (KIP-1251): a commit of an earlier epoch is accepted for a
partition that has been the member's since.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from oncelog.base.ids import MemberId, TopicId, TopicName
from oncelog.core.groups.model import Protocol
from oncelog.core.groups.modern.members import JOINING_EPOCH, MEMBER_BYTES, MemberState, bytes_of_names

Epochs = Mapping[TopicId, Mapping[int, int]]
"""Topic → partition → the epoch in which its owner got it."""
LEAVING_STATIC_EPOCH: Final = -2
"""A static member that leaves for a while: its successor gets its partitions."""
NOTHING: Final[Mapping[TopicId, Mapping[int, int]]] = {}
_PARTITION_BYTES: Final = 100


class ClassicMetadata(NamedTuple):
    """The part of a member that only the classic protocol has."""

    session_timeout_ms: int
    protocols: tuple[Protocol, ...]


class ConsumerMember(NamedTuple):
    """A member as its three records describe it. Time-outs in milliseconds."""

    member_id: MemberId
    epoch: int = JOINING_EPOCH
    previous_epoch: int = -1
    state: MemberState = MemberState.STABLE
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    client_id: str = ""
    client_host: str = ""
    topics: frozenset[TopicName] = frozenset()
    regex: str = ""
    assignor: str | None = None
    assigned: Epochs = NOTHING
    pending_revocation: Epochs = NOTHING
    classic: ClassicMetadata | None = None
    """None for a member of the new protocol."""

    def size_bytes(self) -> int:
        """An estimate of the memory that the member holds."""
        offers = () if self.classic is None else self.classic.protocols
        offered = sum([len(name) + len(metadata) for name, metadata in offers])
        partitions = sum(map(len, self.assigned.values())) + sum(map(len, self.pending_revocation.values()))
        subscription = bytes_of_names(self.topics) + len(self.regex) + offered
        return MEMBER_BYTES + len(self.member_id) + subscription + _PARTITION_BYTES * partitions

    def moved_to(self, epoch: int) -> ConsumerMember:
        """The member in an epoch; an answer that was lost may still be repeated from the one before."""
        return self._replace(epoch=epoch, previous_epoch=self.epoch)

    def is_reconciled_to(self, target_epoch: int) -> bool:
        return self.state is MemberState.STABLE and self.epoch == target_epoch

    def with_assignment_epochs_reset(self) -> ConsumerMember:
        """The member with epoch 0 for each of its partitions, as a static member leaves them to its successor."""
        return self._replace(
            assigned={topic: dict.fromkeys(partitions, 0) for topic, partitions in self.assigned.items()}
        )
