"""Rate-limited log lines, for events that any client can cause as often as it likes."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Final

EVERY_S: Final = 60.0


class LimitedLines:
    """Logs one kind of event at most once a minute, with the number of events since the last line."""

    def __init__(self, logger: logging.Logger, level: int, now_s: Callable[[], float] = time.monotonic) -> None:
        self._logger = logger
        self._level = level
        self._now_s = now_s
        self._next_s: float | None = None
        self._unlogged = 0

    def log(self, message: str) -> None:
        now_s = self._now_s()
        if self._next_s is not None and now_s < self._next_s:
            self._unlogged += 1
            return
        more = f" ({self._unlogged} more since the last line)" if self._unlogged else ""
        self._next_s, self._unlogged = now_s + EVERY_S, 0
        self._logger.log(self._level, "%s%s", message, more)
