"""The memory quota of group members, for all shards of a broker. What members say of themselves, and what their leader
assigns to them, is held until they leave or their session expires, up to half an hour, and is bounded nowhere else.

The rule: while all members together hold more than ``members_max_bytes``, newcomers are refused, and so are assignments
(COORDINATOR_NOT_AVAILABLE, after which clients retry). Existing groups go on: a member may replace its metadata by some
that is no larger, and assignments are kept that take no more than the protocols of their group's members, or than the
assignments they replace.
"""

from __future__ import annotations

from collections.abc import Mapping

from oncelog.base.ids import GroupId
from oncelog.core.groups.group import ClassicGroup, size_of
from oncelog.core.groups.model import JoinRequest, SyncRequest
from oncelog.core.groups.settings import GroupSettings

_COUNT_AGAIN_MS = 1000


class MemberMemory:
    """The bytes that the members of several shards hold."""

    def __init__(self) -> None:
        self._shards: dict[MemberQuota, None] = {}
        self._counted_ms = 0

    def add(self, quota: MemberQuota) -> None:
        """Count a shard's members from now on."""
        self._shards[quota] = None

    def remove(self, quota: MemberQuota) -> None:
        """Count a shard's members no longer: it is unloaded."""
        self._shards.pop(quota, None)

    def has_room(self, size_bytes: int, limit: int, now_ms: int) -> bool:
        """True if so many bytes more are within the limit. All members are counted anew when they seem not to be, once
        a second."""
        if self._held_bytes() + size_bytes > limit and abs(now_ms - self._counted_ms) >= _COUNT_AGAIN_MS:
            self._counted_ms = now_ms
            for quota in self._shards:
                quota.count()
        return self._held_bytes() + size_bytes <= limit

    def _held_bytes(self) -> int:
        return sum([quota.held_bytes for quota in self._shards])


class MemberQuota:
    """The part of one shard in the memory of all members."""

    def __init__(self, groups: Mapping[GroupId, ClassicGroup], settings: GroupSettings, memory: MemberMemory) -> None:
        self._groups = groups
        self._settings = settings
        self._memory = memory
        memory.add(self)
        self.held_bytes = 0
        """An upper bound: members that left since the last count are still in it."""

    def count(self) -> None:
        self.held_bytes = sum(group.size_bytes() for group in self._groups.values())

    def close(self) -> None:
        """Hold nothing any more."""
        self._memory.remove(self)

    def admits_join(self, request: JoinRequest, now_ms: int) -> bool:
        """True if the member that joins may be added; it is then counted."""
        size = size_of(request.protocols) + len(request.client_id) + len(request.new_member_id)
        if not self._has_room(size, now_ms):
            group = self._groups.get(request.group_id)
            member = None if group is None else group.members.get(request.member_id)
            return member is not None and size_of(request.protocols) <= size_of(member.protocols)
        return True

    def admits_assignments(self, request: SyncRequest, now_ms: int) -> bool:
        """True if the assignments in a request may be kept; they are then counted."""
        size = sum([len(assignment) for _, assignment in request.assignments])
        if not size or self._has_room(size, now_ms):
            return True
        group = self._groups.get(request.group_id)
        if group is None:
            return False
        members = group.members.values()
        # Not the sum of both: each rebalance could then add the protocols' size to the assignments.
        protocols = sum([size_of(member.protocols) for member in members])
        return size <= max(protocols, sum([len(member.assignment) for member in members]))

    def _has_room(self, size_bytes: int, now_ms: int) -> bool:
        if not self._memory.has_room(size_bytes, self._settings.members_max_bytes, now_ms):
            return False
        self.held_bytes += size_bytes
        return True
