"""Wrong passwords and tokens, by who tries them: an address, or the user of a session.

After ``FREE`` wrong ones, the attempts of one source have their turn one after the other, ``PAUSE_S`` apart, the right
ones too. A source has ``MOST_WAITING`` attempts in its queue, all sources ``MOST_WAITING_OF_ALL``; others are refused
unread. After ``FORGOTTEN_S`` one wrong attempt is forgotten. A user with a session is a source of its own, so strangers
at the same address, or behind the same proxy, slow down new logins alone.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Final

FREE: Final = 5
PAUSE_S: Final = 1.0
MOST_WAITING: Final = 8
MOST_WAITING_OF_ALL: Final = 64
FORGOTTEN_S: Final = 10.0
"""Time that makes one wrong attempt forgotten."""
MOST_COUNTED: Final = 30
MOST_SOURCES: Final = 4096


class _Source:
    __slots__ = ("at_s", "free_s", "waiting", "wrong")

    def __init__(self, now_s: float) -> None:
        self.wrong = 0.0
        self.at_s = now_s
        """Time for which ``wrong`` holds."""
        self.free_s = now_s
        """Time at which the next attempt has its turn."""
        self.waiting = 0


class Attempts:
    """Counts wrong attempts and makes those who made many wait."""

    def __init__(
        self,
        now_s: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        self._now_s = now_s
        self._sleep = sleep
        self._sources: OrderedDict[str, _Source] = OrderedDict()
        self._waiting = 0

    async def may_try(self, source: str) -> bool:
        """Wait for the turn of an attempt; False if too many wait already."""
        known = self._sources.get(source)
        if known is None or self._wrong_of(known) <= FREE - 1:
            return True
        if known.waiting >= MOST_WAITING or self._waiting >= MOST_WAITING_OF_ALL:
            return False
        now_s = self._now_s()
        turn_s = max(now_s, known.free_s)
        known.free_s = turn_s + PAUSE_S
        known.waiting += 1
        self._waiting += 1
        try:
            await self._sleep(turn_s - now_s)
        finally:
            known.waiting -= 1
            self._waiting -= 1
        return True

    def was_wrong(self, source: str) -> None:
        known = self._sources.get(source)
        if known is None:
            known = self._sources[source] = _Source(self._now_s())
            if len(self._sources) > MOST_SOURCES:
                self._sources.popitem(last=False)
        self._sources.move_to_end(source)
        known.wrong = min(self._wrong_of(known) + 1, MOST_COUNTED)

    def _wrong_of(self, known: _Source) -> float:
        now_s = self._now_s()
        known.wrong = max(0.0, known.wrong - (now_s - known.at_s) / FORGOTTEN_S)
        known.at_s = now_s
        return known.wrong
