"""Decides whether another broker is frozen: its process does not run, though its machine does.

A frozen process (SIGSTOP, swapped out, a long pause) answers nothing, while its kernel still accepts connections. A
broker that is cut off, or whose machine is down, accepts none: only its session tells of that. Rules:

1. Silence lasts from an unanswered request until anything arrives from the broker.
2. It is measured by :class:`AwakeClock`: a pause of the observer is not the broker's silence.
3. A broker is frozen after ``limit_ms`` of silence in which it accepted connections, and answered none of them for
   longer than two round trips. The last one is recent: a cut that follows a short pause is no freeze.
4. It must have answered before: a process that starts listens before it serves.
"""

from __future__ import annotations

from typing import Final

TICK_MS: Final = 250
"""Pause between two requests to a broker, and between two probes of a silent one."""
PROBE_AFTER_MS: Final = 500
"""Silence after which new connections are tried. Most pauses are shorter."""
PROBES: Final = 6
"""Connections kept for one broker; older ones are dropped."""
SLOW_AFTER_MS: Final = 3_000
"""Silence after which probes are tried half as often."""
_ANSWER_MS: Final = 250
_ROUND_TRIPS: Final = 2
_SILENT_PROBES: Final = 2
_RECENT_MS: Final = 750
_LONGEST_STEP_MS: Final = TICK_MS + 100
_MOST_LATENESS_MS: Final = 1_000
_FORGOTTEN_A_TICK_MS: Final = 25


class AwakeClock:
    """Milliseconds for which this process has run, advanced at every tick and alarm."""

    def __init__(self) -> None:
        self.now_ms = 0
        self.lateness_ms = 0
        """How late ticks were lately. Others on a busy machine are as late, so they get so much longer to answer."""
        self._advanced_ms: int | None = None

    def advance(self, wall_ms: int) -> None:
        elapsed_ms = 0 if self._advanced_ms is None else max(0, wall_ms - self._advanced_ms)
        self._advanced_ms = wall_ms
        # A longer step is a pause of this process, or a clock that was set.
        self.now_ms += min(elapsed_ms, _LONGEST_STEP_MS)
        late_ms = elapsed_ms - TICK_MS
        # A later tick is a freeze of this process alone, or a clock that was set: it tells nothing of others.
        late_ms = late_ms if late_ms <= _MOST_LATENESS_MS else 0
        self.lateness_ms = max(late_ms, self.lateness_ms - _FORGOTTEN_A_TICK_MS, 0)


class _Probe:
    __slots__ = ("accepted_ms", "began_ms", "number")

    def __init__(self, number: int, began_ms: int) -> None:
        self.number = number
        self.began_ms = began_ms
        self.accepted_ms: int | None = None

    def is_silent(self, now_ms: int) -> bool:
        """True if the connection was accepted, and an answer would have arrived."""
        if self.accepted_ms is None:
            return False
        handshake_ms = self.accepted_ms - self.began_ms
        return now_ms - self.accepted_ms >= _ANSWER_MS + _ROUND_TRIPS * handshake_ms


class Silence:
    """The silence of one broker. Times are of the observer's :class:`AwakeClock`."""

    __slots__ = ("_has_answered", "_probes", "_since_ms")

    def __init__(self) -> None:
        self._has_answered = False
        # The time of the oldest unanswered request; None: nothing is unanswered.
        self._since_ms: int | None = None
        self._probes: list[_Probe] = []

    def heard(self) -> None:
        self._has_answered = True
        self._since_ms = None
        self._probes.clear()

    def requested(self, now_ms: int) -> None:
        if self._since_ms is None:
            self._since_ms = now_ms

    def silent_ms(self, now_ms: int) -> int:
        return 0 if self._since_ms is None else now_ms - self._since_ms

    def due_ms(self, limit_ms: int) -> int | None:
        """The time at which the silence reaches the limit; None while the broker answers."""
        return None if self._since_ms is None else self._since_ms + limit_ms

    def wants_probe(self, now_ms: int) -> bool:
        silent_ms = self.silent_ms(now_ms)
        if silent_ms < PROBE_AFTER_MS or not self._has_answered:
            return False
        pause_ms = TICK_MS if silent_ms < SLOW_AFTER_MS else 2 * TICK_MS
        return not self._probes or now_ms - self._probes[-1].began_ms >= pause_ms

    def probe(self, number: int, now_ms: int) -> int | None:
        """Count a new connection that is being made. Returns the number of the one to drop for it, if any."""
        self._probes.append(_Probe(number, now_ms))
        return self._probes.pop(0).number if len(self._probes) > PROBES else None

    def accepted(self, number: int, now_ms: int) -> None:
        for probe in self._probes:
            if probe.number == number:
                probe.accepted_ms = now_ms

    def is_frozen(self, now_ms: int, limit_ms: int) -> bool:
        if self.silent_ms(now_ms) < limit_ms:
            return False
        silent = [probe.began_ms for probe in self._probes if probe.is_silent(now_ms)]
        return len(silent) >= _SILENT_PROBES and now_ms - silent[-1] <= _RECENT_MS
