"""Signals that ask a process to stop: Ctrl-C, SIGTERM, and SIGHUP, which is sent when its terminal closes."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from types import FrameType
from typing import Final

# None on systems without SIGHUP.
_HANG_UP: Final = getattr(signal, "SIGHUP", None)


def stop_signals() -> tuple[signal.Signals, ...]:
    """The signals to handle: SIGHUP only unless the caller had it ignored (``nohup``)."""
    is_heeded = _HANG_UP is not None and signal.getsignal(_HANG_UP) != signal.SIG_IGN
    return (signal.SIGINT, signal.SIGTERM, *([_HANG_UP] if is_heeded and _HANG_UP is not None else []))


def interrupt_at_stop_signals() -> None:
    for number in stop_signals():
        signal.signal(number, _interrupt)


@contextlib.contextmanager
def stop_signals_deferred() -> Iterator[None]:
    """Defer KeyboardInterrupt to the end of the block, for steps that belong together; blocks do not nest. A second
    signal interrupts at once: the block may wait for a reader that has stopped reading.
    """
    _deferral.is_active, _deferral.is_due = True, False
    try:
        yield
    finally:
        _deferral.is_active = False
    if _deferral.is_due:
        raise KeyboardInterrupt


class _Deferral:
    """State shared by ``stop_signals_deferred`` and the handler; one per process."""

    is_active = False
    is_due = False


_deferral: Final = _Deferral()


def _interrupt(number: int, frame: FrameType | None) -> None:
    if number == _HANG_UP:
        # The shell and the system both send SIGHUP when a terminal closes; the second must not interrupt the cleanup.
        signal.signal(number, signal.SIG_IGN)
    if _deferral.is_active and not _deferral.is_due:
        _deferral.is_due = True
        return
    signal.default_int_handler(number, frame)
