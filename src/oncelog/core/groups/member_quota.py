"""The memory quota of group members, over all shards of a broker.

Nothing else bounds members' metadata and assignments, held until they leave or their session expires, up to half an
hour. While all members together exceed ``members_max_bytes``, new members, members that grow, changed subscriptions and
larger assignments are rejected with COORDINATOR_NOT_AVAILABLE, and clients retry.

Share state outlives members, and share groups do not expire: their partitions have a bound of their own,
``share_partitions_max``, which does not concern other groups.
"""

from __future__ import annotations

from collections.abc import Mapping

from oncelog.base.ids import GroupId
from oncelog.core.groups.any_group import AnyGroup
from oncelog.core.groups.classic.group import ClassicGroup, size_of
from oncelog.core.groups.consumer.group import ConsumerGroup
from oncelog.core.groups.consumer.heartbeat import ConsumerHeartbeat
from oncelog.core.groups.consumer.member import ConsumerMember
from oncelog.core.groups.model import JoinRequest, SyncRequest
from oncelog.core.groups.modern.members import MEMBER_BYTES, bytes_of_names
from oncelog.core.groups.settings import GroupSettings
from oncelog.core.groups.share.group import ShareGroup
from oncelog.core.groups.share.heartbeat import ShareHeartbeat
from oncelog.core.groups.share.member import ShareMember

_COUNT_AGAIN_MS = 1000


class MemberMemory:
    """The bytes that the members of several shards hold."""

    def __init__(self) -> None:
        self._shards: dict[MemberQuota, None] = {}
        self._counted_ms = 0

    def add(self, quota: MemberQuota) -> None:
        self._shards[quota] = None

    def remove(self, quota: MemberQuota) -> None:
        self._shards.pop(quota, None)

    def has_room(self, size_bytes: int, limit: int, now_ms: int) -> bool:
        if self._held_bytes() + size_bytes > limit and abs(now_ms - self._counted_ms) >= _COUNT_AGAIN_MS:
            # The running count is an upper bound: recount, at most once a second, before rejecting.
            self._counted_ms = now_ms
            for quota in self._shards:
                quota.count()
        return self._held_bytes() + size_bytes <= limit

    def share_partitions(self) -> int:
        return sum([quota.share_partitions for quota in self._shards])

    def _held_bytes(self) -> int:
        return sum([quota.held_bytes for quota in self._shards])


class MemberQuota:
    """One shard's share of the members' memory."""

    def __init__(
        self,
        groups: Mapping[GroupId, AnyGroup],
        settings: GroupSettings,
        memory: MemberMemory,
    ) -> None:
        self._groups = groups
        self._settings = settings
        self._memory = memory
        memory.add(self)
        self.held_bytes = 0
        """An upper bound: it includes members that have left since the last count."""
        self.share_partitions = 0

    def count(self) -> None:
        self.share_partitions = sum(map(share_partitions_of, self._groups.values()))
        self.held_bytes = sum(group.size_bytes() for group in self._groups.values())

    def close(self) -> None:
        self._memory.remove(self)

    def changed(self, size_bytes: int, share_partitions: int = 0) -> None:
        self.held_bytes += size_bytes
        self.share_partitions += share_partitions

    def admits_join(self, request: JoinRequest, now_ms: int) -> bool:
        """True if the joining member may be added; it is then counted."""
        size = size_of(request.protocols) + len(request.client_id) + len(request.new_member_id)
        if not self._has_room(size, now_ms):
            # An existing member may shrink, never grow.
            return size_of(request.protocols) <= self._protocol_bytes(request)
        return True

    def _protocol_bytes(self, request: JoinRequest) -> int:
        """The size of the protocols that the joining member offers already."""
        group = self._groups.get(request.group_id)
        if isinstance(group, ConsumerGroup):
            consumer_member = group.members.get(request.member_id)
            classic = None if consumer_member is None else consumer_member.classic
            return 0 if classic is None else size_of(classic.protocols)
        member = group.members.get(request.member_id) if isinstance(group, ClassicGroup) else None
        return 0 if member is None else size_of(member.protocols)

    def admits_heartbeat(self, request: ConsumerHeartbeat | ShareHeartbeat, now_ms: int) -> bool:
        """True if a member of a newer protocol may be added, or may change its subscription."""
        if request.epoch < 0 or self.is_steady(request):
            return True
        regex = request.regex if isinstance(request, ConsumerHeartbeat) else None
        size = bytes_of_names(request.topics or ()) + len(regex or "")
        if self._member(request) is None:
            size += MEMBER_BYTES + len(request.member_id)
        # A shorter subscription may bring more partitions. The group counts what it holds once it is applied.
        return self.admits(size, now_ms)

    def is_steady(self, request: ConsumerHeartbeat | ShareHeartbeat) -> bool:
        """True for a member that keeps its subscription; a full request repeats it."""
        member = self._member(request)
        if member is None or request.topics not in (None, member.topics):
            return False
        regex = request.regex if isinstance(request, ConsumerHeartbeat) else None
        return regex in (None, member.regex if isinstance(member, ConsumerMember) else None)

    def _member(self, request: ConsumerHeartbeat | ShareHeartbeat) -> ConsumerMember | ShareMember | None:
        group = self._groups.get(request.group_id)
        return None if group is None or isinstance(group, ClassicGroup) else group.members.get(request.member_id)

    def admits_share_partitions(self, count: int) -> bool:
        """True if so many more partitions may get share state."""
        return count <= 0 or count <= self.room_for_share_partitions()

    def room_for_share_partitions(self) -> int:
        """How many more partitions may get share state; negative if too many have it."""
        return self._settings.share_partitions_max - self._memory.share_partitions()

    def admits(self, size_bytes: int, now_ms: int) -> bool:
        """True if a group that counts what it holds may hold so much more."""
        return self._memory.has_room(size_bytes, self._settings.members_max_bytes, now_ms)

    def admits_assignments(self, request: SyncRequest, now_ms: int) -> bool:
        """True if a request's assignments may be kept; they are then counted."""
        size = sum([len(assignment) for _, assignment in request.assignments])
        if not size or self._has_room(size, now_ms):
            return True
        group = self._groups.get(request.group_id)
        if not isinstance(group, ClassicGroup):
            # A consumer group keeps no assignments of its members' making.
            return group is not None
        members = group.members.values()
        # Not the sum of both: each rebalance could then add the protocols' size to the assignments.
        protocols = sum([size_of(member.protocols) for member in members])
        return size <= max(protocols, sum([len(member.assignment) for member in members]))

    def _has_room(self, size_bytes: int, now_ms: int) -> bool:
        if not self._memory.has_room(size_bytes, self._settings.members_max_bytes, now_ms):
            return False
        self.held_bytes += size_bytes
        return True


def share_partitions_of(group: AnyGroup | None) -> int:
    return group.state_count() if isinstance(group, ShareGroup) else 0
