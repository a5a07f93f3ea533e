"""Virtual time: one heap of future calls, one seed behind every choice, and one digest of everything that happened.

Everything happens through :meth:`Kernel.at` and :meth:`Kernel.soon`; calls due at the same time run in the order of
scheduling. :meth:`Kernel.entropy` has one random stream per purpose: an additional draw in one place does not change
the others. The same seed gives the same trace, byte for byte, for any PYTHONHASHSEED.
"""

from __future__ import annotations

import hashlib
import heapq
import random
from collections import deque
from collections.abc import Callable
from contextvars import Context
from typing import Any, Final

# Wall time at the start of a simulation, milliseconds since the epoch.
START_MS: Final = 1_700_000_000_000
# Trace lines kept for a report.
LAST_LINES: Final = 400
# Trace lines per update of the digest: many small updates are slower than a large one.
_LINES_AT_ONCE: Final = 4 * LAST_LINES


class ScheduledCall:
    """A call that will be made unless it is cancelled: asyncio's handle."""

    __slots__ = ("_arguments", "_at_us", "_callback", "_context")  # Kernel uses these directly

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
        return self._callback is None

    def when(self) -> float:
        return self._at_us / 1_000_000

    def happen(self) -> bool:
        """Make the call unless it was cancelled. Returns True if it was made."""
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
    """Times are microseconds since the start of the simulation."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.now_us = 0
        # Number of calls made.
        self.happened = 0
        # Called with every line of the trace.
        self.log: Callable[[str], None] | None = None
        # The last digested lines of the trace, then the lines not digested yet.
        self._lines: list[str] = []
        # Number of digested lines in the list.
        self._digested = 0
        self._sequence = 0
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
        call = ScheduledCall(self.now_us, callback, arguments, context)
        self._soon.append(call)
        return call

    def at(
        self, at_us: int, callback: Callable[..., object], *arguments: Any, context: Context | None = None
    ) -> ScheduledCall:
        if at_us <= self.now_us:
            return self.soon(callback, *arguments, context=context)
        call = ScheduledCall(at_us, callback, arguments, context)
        self._sequence += 1
        heapq.heappush(self._later, (at_us, self._sequence, call))
        return call

    def after(self, delay_us: int, callback: Callable[..., object], *arguments: Any) -> ScheduledCall:
        return self.at(self.now_us + delay_us, callback, *arguments)

    def step(self) -> bool:
        """False without a call."""
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
        if callback is not None:  # ScheduledCall.happen inlined: this is the hottest path
            call._callback = None
            self.happened += 1
            if call._context is None:
                callback(*call._arguments)
            else:
                call._context.run(callback, *call._arguments)
        return True

    def run_soon(self) -> bool:
        """Make the calls due now, without advancing time. True if there were any."""
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
    now_us, _, text = line.rstrip("\n").partition(" ")
    return f"{int(now_us) / 1_000_000:12.6f} {text}"
