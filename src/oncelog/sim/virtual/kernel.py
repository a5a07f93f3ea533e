"""Virtual time: one heap of what happens next, one seed behind every choice, one digest of all that happened.

Rules: nothing happens but through :meth:`Kernel.at` and :meth:`Kernel.soon`; what is due at the same moment happens in
the order it was asked for. Chance comes from :meth:`Kernel.entropy`, one stream per purpose, so that one more draw in
one place does not change all the others. Same seed, same trace, byte for byte, whatever PYTHONHASHSEED is.
"""

from __future__ import annotations

import hashlib
import heapq
import random
from collections import deque
from collections.abc import Callable
from contextvars import Context
from typing import Any, Final

START_MS: Final = 1_700_000_000_000
"""Wall time when a simulation begins, milliseconds since the epoch."""
LAST_LINES: Final = 400
"""Lines of the trace that are kept for a report."""
_LINES_AT_ONCE: Final = 4 * LAST_LINES
"""Lines of the trace that the digest takes in at once: a thousand small updates cost more than a large one."""


class ScheduledCall:
    """Something that will happen, unless it is cancelled. What asyncio calls a handle."""

    __slots__ = ("_arguments", "_at_us", "_callback", "_context")  # known to Kernel, which is the one that makes them

    def __init__(
        self, at_us: int, callback: Callable[..., object], arguments: tuple[Any, ...], context: Context | None
    ) -> None:
        self._at_us = at_us
        self._callback: Callable[..., object] | None = callback
        self._arguments = arguments
        self._context = context

    def cancel(self) -> None:
        self._callback = None
        self._arguments = ()

    def cancelled(self) -> bool:
        """True when the call is cancelled, or was made."""
        return self._callback is None

    def when(self) -> float:
        """When, in seconds of virtual time."""
        return self._at_us / 1_000_000

    def happen(self) -> bool:
        """Do it now, unless cancelled; whether it was done."""
        callback = self._callback
        if callback is None:
            return False
        self._callback = None
        if self._context is None:
            callback(*self._arguments)
        else:
            self._context.run(callback, *self._arguments)
        return True


class Kernel:
    """The future by virtual time, in order. Times in microseconds since the start of the simulation."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.now_us = 0
        self.happened = 0
        """Number of calls that were made."""
        self.log: Callable[[str], None] | None = None
        """Called with every line of the trace, for who wants to read it."""
        self._lines: list[str] = []
        """Lines of the trace: the last that the digest has taken in, and those that it has not."""
        self._digested = 0
        """Number of lines that the digest has taken in."""
        self._asked = 0
        self._later: list[tuple[int, int, ScheduledCall]] = []
        self._soon: deque[ScheduledCall] = deque()
        self._digest = hashlib.sha256()
        self._streams: dict[str, random.Random] = {}

    def now_ms(self) -> int:
        return START_MS + self.now_us // 1000

    def entropy(self, purpose: str) -> random.Random:
        stream = self._streams.get(purpose)
        if stream is None:
            stream = self._streams[purpose] = random.Random(f"{self.seed}/{purpose}")
        return stream

    def soon(self, callback: Callable[..., object], *arguments: Any, context: Context | None = None) -> ScheduledCall:
        """Do it now, after what was asked for before."""
        call = ScheduledCall(self.now_us, callback, arguments, context)
        self._soon.append(call)
        return call

    def at(
        self, at_us: int, callback: Callable[..., object], *arguments: Any, context: Context | None = None
    ) -> ScheduledCall:
        if at_us <= self.now_us:
            return self.soon(callback, *arguments, context=context)
        call = ScheduledCall(at_us, callback, arguments, context)
        self._asked += 1
        heapq.heappush(self._later, (at_us, self._asked, call))
        return call

    def after(self, delay_us: int, callback: Callable[..., object], *arguments: Any) -> ScheduledCall:
        return self.at(self.now_us + delay_us, callback, *arguments)

    def step(self) -> bool:
        """Let the next thing happen; False when nothing will ever happen again."""
        soon = self._soon
        if soon:
            call = soon.popleft()
        else:
            later = self._later
            while later:
                at_us, _, call = heapq.heappop(later)
                if call._callback is not None:
                    break
            else:
                return False
            self.now_us = at_us
            while later and later[0][0] == at_us:
                soon.append(heapq.heappop(later)[2])
        callback = call._callback
        if callback is not None:  # this is Happening.happen, without the call: nothing is run more often
            call._callback = None
            self.happened += 1
            if call._context is None:
                callback(*call._arguments)
            else:
                call._context.run(callback, *call._arguments)
        return True

    def run_soon(self) -> bool:
        """Let happen what was asked for at this moment, without time passing; whether there was anything."""
        ran = bool(self._soon)
        for _ in range(len(self._soon)):
            self._soon.popleft().happen()
        return ran

    def trace(self, line: str) -> None:
        lines = self._lines
        lines.append(f"{self.now_us} {line}\n")
        if len(lines) > _LINES_AT_ONCE:
            self._digest_lines()
        if self.log is not None:
            self.log(_readable(lines[-1]))

    def last_lines(self) -> list[str]:
        return [_readable(line) for line in self._lines[-LAST_LINES:]]

    def trace_sha256(self) -> str:
        self._digest_lines()
        return self._digest.hexdigest()

    def _digest_lines(self) -> None:
        self._digest.update("".join(self._lines[self._digested :]).encode())
        del self._lines[:-LAST_LINES]
        self._digested = len(self._lines)


def _readable(line: str) -> str:
    now_us, _, what = line.rstrip("\n").partition(" ")
    return f"{int(now_us) / 1_000_000:12.6f} {what}"
