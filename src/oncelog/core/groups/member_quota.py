"""How much the members of a shard's groups may hold: what they say of themselves stays until they leave or fall silent,
up to half an hour, and nobody else bounds it. (What is agreed in the end is one record, as large as a message may be.)

The rule: whoever is a member may say again as much as it has said. Others wait for room (COORDINATOR_NOT_AVAILABLE,
which clients repeat) while all together hold more than ``members_max_bytes``.
"""

from __future__ import annotations

from collections.abc import Mapping

from oncelog.base.ids import GroupId
from oncelog.core.groups.group import Group, size_of
from oncelog.core.groups.model import GroupSettings, JoinRequest

_COUNT_AGAIN_MS = 1000


class MemberQuota:
    """Counts up with every request, and all that is there when that is too much."""

    def __init__(self, groups: Mapping[GroupId, Group], settings: GroupSettings) -> None:
        self._groups = groups
        self._settings = settings
        self._held_bytes = 0
        """At most; less since the last count, when members have gone."""
        self._counted_ms = 0

    def has_room(self, request: JoinRequest, now_ms: int) -> bool:
        """Whether one who joins may be taken in; if so it counts."""
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
