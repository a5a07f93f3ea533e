"""Turns at reading records: one answer with records is worked on at a time, in the whole console.

Why: a value of 10 MB is there several times while it is read (the answer, the batch, the record, its text). Browsers
that look at such values at once would add these up; one after the other they cost what one does.

The rule: whoever has the turn waits for nobody but the broker, whose answer has begun to come, and keeps nothing large
when the turn is over.
"""

from __future__ import annotations

import contextlib
import ctypes
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from oncelog.base.units import KIB
from oncelog.console.cluster_access import ClusterSlow

PAGE_S: Final = 8.0
"""A page waits so long for its turn; it says so before the browser's patience is over."""
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
def turn_of_a_page() -> Iterator[None]:
    """The turn, for a page. Raises ClusterSlow."""
    if not _TURN.acquire(timeout=PAGE_S):
        raise ClusterSlow("other records are being read, which takes long; ask again")
    try:
        yield
    finally:
        _TURN.release()


def turn() -> threading.Lock:
    """The turn, for searches, tails and downloads, which have time."""
    return _TURN
