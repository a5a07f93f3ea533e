"""Turns at reading records: one answer with records is worked on at a time, in the whole console.

Why: a value of 10 MB is there several times while it is read (the answer, the batch, the record, its text). Browsers
that look at such values at once would add these up; one after the other they cost what one does.

The rules: whoever has the turn waits for nobody but a broker, and keeps nothing large when the turn is over. Nobody
waits for it longer than ``PATIENCE_S``: a broker that hangs while a page has the turn holds up no other by more, and
the bound on memory is given up before that is.
"""

from __future__ import annotations

import contextlib
import ctypes
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from oncelog.base.units import KIB

PATIENCE_S: Final = 2.0
_TURN: Final = threading.Lock()
_M_MMAP_THRESHOLD: Final = -3
_LARGE_BYTES: Final = 512 * KIB


def _give_back_large_memory() -> None:
    """Have glibc map each large piece of memory by itself, and unmap it when it is free.

    By itself glibc takes large pieces out of its heaps once it has seen one freed, and keeps what they leave; it has a
    heap for each thread, so that every thread that has seen a large value would keep tens of megabytes.
    """
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).mallopt(_M_MMAP_THRESHOLD, _LARGE_BYTES)


_give_back_large_memory()


@contextmanager
def turn() -> Iterator[None]:
    """The turn, or what is done without it once it was waited for long enough."""
    has_turn = _TURN.acquire(timeout=PATIENCE_S)
    try:
        yield
    finally:
        if has_turn:
            _TURN.release()
