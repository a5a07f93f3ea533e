"""Releases the records of members whose sessions have ended, in slices: a session may have ten thousand partitions.

What a slice leaves is released a millisecond later, or before the member's next session acquires anything: it could not
be told from what that one has.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from oncelog.base.ids import GroupId
from oncelog.core.share.sessions import PartitionKey, SessionKey, ShareSession

if TYPE_CHECKING:
    from oncelog.node.kernel.deadlines import Deadlines

PARTITIONS_PER_SLICE: Final = 50
"""Each may write a state, of which some 0.1 ms of work follow here."""
PAUSE_MS: Final = 1


class SessionReleases:
    """``release`` releases the records of a member in some partitions; ``ended`` is called when a member has none left
    to release."""

    def __init__(
        self,
        deadlines: Deadlines,
        release: Callable[[SessionKey, Sequence[PartitionKey]], None],
        ended: Callable[[GroupId], None],
    ) -> None:
        self._deadlines = deadlines
        self._release = release
        self._ended = ended
        self._left: dict[GroupId, dict[SessionKey, deque[PartitionKey]]] = {}

    def has_group(self, group_id: GroupId) -> bool:
        return group_id in self._left

    def begin(self, session: ShareSession) -> None:
        members = self._left.setdefault(session.key.group_id, {})
        is_new = session.key not in members
        members.setdefault(session.key, deque()).extend(session.partitions)
        if is_new:
            self._go_on_later(session.key)

    def goes_on(self, key: SessionKey) -> bool:
        """Release a slice. Returns True if more is left."""
        members = self._left.get(key.group_id, {})
        left = members.get(key)
        if left is None:
            return False
        self._release(key, [left.popleft() for _ in range(min(len(left), PARTITIONS_PER_SLICE))])
        if left:
            return True
        del members[key]
        if not members:
            del self._left[key.group_id]
        self._ended(key.group_id)
        return False

    def clear(self) -> None:
        self._left.clear()

    def _go_on_later(self, key: SessionKey) -> None:
        def go_on(now_ms: int) -> None:
            if self.goes_on(key):
                self._deadlines.at(now_ms + PAUSE_MS, go_on)

        go_on(self._deadlines.now_ms)
