"""The order of all commits of a tree as this process sees it, and the local sessions that follow it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from oncelog.ports import Change, CommittedChange

KEPT: Final = 1_000
"""Changes kept for sessions that start to follow at an earlier position."""
KEPT_BYTES: Final = 8 << 20
"""Memory for these changes: creating a thousand topics at once takes half a MiB. A session that starts behind the
oldest one sees a gap.
"""
_CHANGE_BYTES: Final = 200
"""Memory of a changed node besides its path and value."""

Listener = Callable[[CommittedChange], None]
Ended = Callable[[], None]


class _Follower(NamedTuple):
    after: int
    listener: Listener
    ended: Ended | None


class Followers:
    """The caller holds a lock."""

    def __init__(self) -> None:
        self._followers: dict[int, _Follower] = {}

    def __bool__(self) -> bool:
        return bool(self._followers)

    def add(self, session_id: int, after: int, listener: Listener, ended: Ended | None) -> None:
        """Deliver to a session all changes after ``after``, replacing its former subscription."""
        self._followers[session_id] = _Follower(after, listener, ended)

    def remove(self, session_id: int) -> None:
        self._followers.pop(session_id, None)

    def deliver(self, change: CommittedChange) -> None:
        # A copy: a listener may unsubscribe.
        for follower in list(self._followers.values()):
            if change.position > follower.after:
                follower.listener(change)

    def end(self, session_id: int) -> None:
        """Notify a session that the tree has ended it, and remove it."""
        follower = self._followers.pop(session_id, None)
        if follower is not None and follower.ended is not None:
            follower.ended()


class ChangeStream:
    """The caller holds the tree's lock."""

    def __init__(self, position: int = 0) -> None:
        self.position = position
        self.followers = Followers()
        self._tokens: deque[str] = deque(maxlen=KEPT)
        self._kept: deque[tuple[CommittedChange, int]] = deque()
        """Recent changes with their sizes."""
        self._kept_bytes = 0

    def append(self, token: str, changes: Sequence[Change]) -> int:
        """Add a commit and deliver it to all followers, the writer included. Returns its position."""
        self.deliver(CommittedChange(self.position + 1, token, tuple(changes)))
        return self.position

    def deliver(self, change: CommittedChange) -> None:
        """Add the next change of the order. Missing changes show as a gap in positions."""
        self.position = change.position
        self._tokens.append(change.token)
        size = sum(_CHANGE_BYTES + len(path) + len(value or b"") for path, value, _ in change.changes)
        self._kept.append((change, size))
        self._kept_bytes += size
        # The newest change is always kept, however large.
        while len(self._kept) > KEPT or (self._kept_bytes > KEPT_BYTES and len(self._kept) > 1):
            self._kept_bytes -= self._kept.popleft()[1]
        self.followers.deliver(change)

    def has(self, token: str) -> bool:
        """True if a recent commit has this token."""
        return token in self._tokens

    def follow(self, session_id: int, after: int, listener: Listener | None, ended: Ended | None = None) -> None:
        """Deliver the kept changes after a position and all later ones to a session; ``listener=None`` unsubscribes."""
        if listener is None:
            self.followers.remove(session_id)
            return
        self.followers.add(session_id, after, listener, ended)
        for change, _ in list(self._kept):
            if change.position > after:
                listener(change)
