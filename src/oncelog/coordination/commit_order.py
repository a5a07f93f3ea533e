"""The order of all commits of one tree as this process sees it, and the sessions here that follow it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from oncelog.ports import Change, CommittedChange

KEPT: Final = 1_000
"""Changes that a session can still be told of that begins to follow behind them."""
KEPT_BYTES: Final = 8 << 20
"""Memory of these changes: a thousand topics created at once take half a megabyte. A session that begins behind those
that went for it sees a gap."""
_CHANGE_BYTES: Final = 200
"""Memory of a changed node without its path and value."""

Listener = Callable[[CommittedChange], None]
Ended = Callable[[], None]


class _Follower(NamedTuple):
    after: int
    listener: Listener
    ended: Ended | None


class Followers:
    """The sessions of this process that follow the tree. Calls come one at a time: the caller holds a lock."""

    def __init__(self) -> None:
        self._followers: dict[int, _Follower] = {}

    def __bool__(self) -> bool:
        return bool(self._followers)

    def add(self, session_id: int, after: int, listener: Listener, ended: Ended | None) -> None:
        """Tell a session of all changes to come behind ``after``, in place of what it followed before."""
        self._followers[session_id] = _Follower(after, listener, ended)

    def remove(self, session_id: int) -> None:
        """Tell a session of nothing any more."""
        self._followers.pop(session_id, None)

    def deliver(self, change: CommittedChange) -> None:
        """Tell everyone who follows of the next change."""
        for follower in list(self._followers.values()):
            if change.position > follower.after:
                follower.listener(change)

    def end(self, session_id: int) -> None:
        """The tree has ended a session that was not closed: tell it, and nothing more."""
        follower = self._followers.pop(session_id, None)
        if follower is not None and follower.ended is not None:
            follower.ended()


class ChangeStream:
    """Positions, the last changes, and who follows. Calls come one at a time: the caller holds the tree's lock."""

    def __init__(self, position: int = 0) -> None:
        self.position = position
        self.followers = Followers()
        self._tokens: deque[str] = deque(maxlen=KEPT)
        self._kept: deque[tuple[CommittedChange, int]] = deque()
        """The last changes with their sizes."""
        self._kept_bytes = 0

    def append(self, token: str, changes: Sequence[Change]) -> int:
        """A commit was carried out; its position. Every session that follows is told, the writer's too."""
        self.deliver(CommittedChange(self.position + 1, token, tuple(changes)))
        return self.position

    def deliver(self, change: CommittedChange) -> None:
        """Take over the next change of the order; what is missing before it shows in its position."""
        self.position = change.position
        self._tokens.append(change.token)
        size = sum(_CHANGE_BYTES + len(path) + len(value or b"") for path, value, _ in change.changes)
        self._kept.append((change, size))
        self._kept_bytes += size
        while len(self._kept) > KEPT or (self._kept_bytes > KEPT_BYTES and len(self._kept) > 1):
            self._kept_bytes -= self._kept.popleft()[1]
        self.followers.deliver(change)

    def has(self, token: str) -> bool:
        """True if a commit of that name is among the last ones."""
        return token in self._tokens

    def follow(self, session_id: int, after: int, listener: Listener | None, ended: Ended | None = None) -> None:
        """Tell a session of the changes after a position that are kept, and of all to come; None ends it."""
        if listener is None:
            self.followers.remove(session_id)
            return
        self.followers.add(session_id, after, listener, ended)
        for change, _ in list(self._kept):
            if change.position > after:
                listener(change)
