"""The heap of the console's process: what is large is given back when it is free.

By itself glibc takes large pieces out of its heaps once it has seen one freed, and keeps what they leave; it has a heap
for each thread, so that every thread that has seen a large value would keep tens of megabytes. Threads of Python gain
nothing from heaps of their own: one of them runs at a time.
"""

from __future__ import annotations

import contextlib
import ctypes
from typing import Final

from oncelog.base.units import KIB

_M_MMAP_THRESHOLD: Final = -3
_M_ARENA_MAX: Final = -8
_LARGE_BYTES: Final = 512 * KIB


def give_back_large_memory() -> None:
    """Have glibc map each large piece of memory by itself, and unmap it when it is free, and use one heap."""
    with contextlib.suppress(OSError, AttributeError):
        libc = ctypes.CDLL(None)
        libc.mallopt(_M_MMAP_THRESHOLD, _LARGE_BYTES)
        libc.mallopt(_M_ARENA_MAX, 1)
