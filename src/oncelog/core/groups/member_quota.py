"""The memory quota of group members, over all shards of a broker.

Nothing else bounds members' metadata and assignments, held until they leave or their session expires, up to half an
hour. While all members together exceed ``members_max_bytes``, new members, members that grow, changed subscriptions and
larger assignments are rejected with COORDINATOR_NOT_AVAILABLE, and clients retry.
"""

from __future__ import annotations

from collections.abc import Mapping

from oncelog.base.ids import GroupId
from oncelog.core.groups.any_group import AnyGroup
from oncelog.core.groups.classic.group import ClassicGroup, size_of
from oncelog.core.groups.consumer.group import ConsumerGroup
from oncelog.core.groups.consumer.heartbeat import ConsumerHeartbeat
from oncelog.core.groups.consumer.member import MEMBER_BYTES, ConsumerMember, bytes_of_names
from oncelog.core.groups.model import JoinRequest, SyncRequest
from oncelog.core.groups.settings import GroupSettings
from oncelog.core.groups.share.heartbeat import ShareHeartbeat

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

    def count(self) -> None:
        self.held_bytes = sum(group.size_bytes() for group in self._groups.values())

    def close(self) -> None:
        self._memory.remove(self)

    def changed(self, size_bytes: int) -> None:
        self.held_bytes += size_bytes

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
        group = self._groups.get(request.group_id)
        member = None if group is None or isinstance(group, ClassicGroup) else group.members.get(request.member_id)
        if request.epoch < 0:
            return True
        regex = request.regex if isinstance(request, ConsumerHeartbeat) else None
        size = bytes_of_names(request.topics or ()) + len(regex or "")
        if member is None:
            size += MEMBER_BYTES + len(request.member_id)
        elif request.topics in (None, member.topics) and regex in (
            None,
            member.regex if isinstance(member, ConsumerMember) else None,
        ):
            # A full request repeats the subscription.
            return True
        # A shorter subscription may bring more partitions. The group counts what it holds once it is applied.
        return self.admits(size, now_ms)

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
