"""Signals that ask a process to end in order: Ctrl-C, SIGTERM, and SIGHUP, which comes when its terminal is gone."""

from __future__ import annotations

import signal
from types import FrameType
from typing import Final

_HANG_UP: Final = getattr(signal, "SIGHUP", None)
"""None: the system has none."""


def stop_signals() -> tuple[signal.Signals, ...]:
    """The signals, but SIGHUP where the caller had it ignored (``nohup``)."""
    is_heeded = _HANG_UP is not None and signal.getsignal(_HANG_UP) != signal.SIG_IGN
    return (signal.SIGINT, signal.SIGTERM, *([_HANG_UP] if is_heeded and _HANG_UP is not None else []))


def interrupt_at_stop_signals() -> None:
    """Let each of them raise KeyboardInterrupt, as Ctrl-C does. A shell and the system both send SIGHUP when a terminal
    closes: the second must not interrupt what the first has begun, so it is ignored."""
    for number in stop_signals():
        signal.signal(number, _hang_up if number == _HANG_UP else signal.default_int_handler)


def _hang_up(number: int, frame: FrameType | None) -> None:
    signal.signal(number, signal.SIG_IGN)
    signal.default_int_handler(number, frame)
