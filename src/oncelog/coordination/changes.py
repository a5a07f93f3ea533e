"""The order of all commits of one tree in this process, and the sessions that follow it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from oncelog.ports import Change, CommittedChange

KEPT: Final = 1_000
"""Changes that a session can still be told of that begins to follow behind them."""

Listener = Callable[[CommittedChange], None]


class ChangeStream:
    """Positions, the last changes, and who follows. Calls come one at a time: the tree's lock is held."""

    def __init__(self) -> None:
        self.position = 0
        self._kept: deque[CommittedChange] = deque(maxlen=KEPT)
        self._listeners: dict[int, Listener] = {}

    def append(self, token: str, changes: Sequence[Change]) -> int:
        """A commit was carried out; its position. Every session that follows is told, the writer's too."""
        self.position += 1
        change = CommittedChange(self.position, token, tuple(changes))
        self._kept.append(change)
        for listener in list(self._listeners.values()):
            listener(change)
        return self.position

    def has(self, token: str) -> bool:
        """True if a commit of that name is among the last ones."""
        return any(change.token == token for change in self._kept)

    def follow(self, session_id: int, after: int, listener: Listener | None) -> None:
        """Tell a session of the changes after a position that are kept, and of all to come; None ends it."""
        if listener is None:
            self._listeners.pop(session_id, None)
            return
        self._listeners[session_id] = listener
        for change in list(self._kept):
            if change.position > after:
                listener(change)
