"""The memory quota of a shard's group members. Their metadata is held until they leave or their session expires, up to
half an hour, and is bounded nowhere else. (The chosen assignment is one record, as large as a message may be.)

The rule: a member may replace its metadata by some that is no larger. Others are refused (COORDINATOR_NOT_AVAILABLE,
after which clients retry) while all together hold more than ``members_max_bytes``.
"""

from __future__ import annotations

from collections.abc import Mapping

from oncelog.base.ids import GroupId
from oncelog.core.groups.group import Group, size_of
from oncelog.core.groups.model import JoinRequest
from oncelog.core.groups.settings import GroupSettings

_COUNT_AGAIN_MS = 1000


class MemberQuota:
    """An upper bound of the bytes held: each join adds to it, and all members are counted anew when it is too much."""

    def __init__(self, groups: Mapping[GroupId, Group], settings: GroupSettings) -> None:
        self._groups = groups
        self._settings = settings
        self._held_bytes = 0
        """An upper bound: members that left since the last count are still in it."""
        self._counted_ms = 0

    def has_room(self, request: JoinRequest, now_ms: int) -> bool:
        """True if the member that joins may be added; it is then counted."""
        size = size_of(request.protocols) + len(request.client_id) + len(request.new_member_id)
        limit = self._settings.members_max_bytes
        if self._held_bytes + size > limit and abs(now_ms - self._counted_ms) >= _COUNT_AGAIN_MS:
            self._counted_ms = now_ms
            self._held_bytes = sum(group.size_bytes() for group in self._groups.values())
        if self._held_bytes + size > limit:
            group = self._groups.get(request.group_id)
            member = None if group is None else group.members.get(request.member_id)
            return member is not None and size_of(request.protocols) <= size_of(member.protocols)
        self._held_bytes += size
        return True
