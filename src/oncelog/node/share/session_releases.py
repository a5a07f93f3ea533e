"""Releases the records of members whose sessions have ended, in slices: a session may have ten thousand partitions.

What a slice leaves is released a millisecond later, or before the member's next session acquires anything: it could not
be told from what that one has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final

from oncelog.base.ids import GroupId
from oncelog.core.share.sessions import PartitionKey, SessionKey

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
        self._left: dict[GroupId, dict[SessionKey, dict[PartitionKey, None]]] = {}
        self.partition_count = 0
        """Partitions left to release, of all members together."""

    def has_group(self, group_id: GroupId) -> bool:
        return group_id in self._left

    def begin(self, key: SessionKey, partitions: Iterable[PartitionKey]) -> None:
        members = self._left.setdefault(key.group_id, {})
        is_new = key not in members
        left = members.setdefault(key, {})
        self.partition_count -= len(left)
        left.update(dict.fromkeys(partitions))
        self.partition_count += len(left)
        if is_new:
            self._go_on_later(key)

    def goes_on(self, key: SessionKey) -> bool:
        """Release a slice. Returns True if more is left."""
        members = self._left.get(key.group_id, {})
        left = members.get(key)
        if left is None:
            return False
        count = min(len(left), PARTITIONS_PER_SLICE)
        self.partition_count -= count
        self._release(key, [left.popitem()[0] for _ in range(count)])
        if left:
            return True
        del members[key]
        if not members:
            del self._left[key.group_id]
        self._ended(key.group_id)
        return False

    def clear(self) -> None:
        self._left.clear()
        self.partition_count = 0

    def _go_on_later(self, key: SessionKey) -> None:
        def go_on(now_ms: int) -> None:
            if self.goes_on(key):
                self._deadlines.at(now_ms + PAUSE_MS, go_on)

        go_on(self._deadlines.now_ms)
