"""Memory that allocators keep after a task, given back to the operating system.

Spark keeps the Python workers of tasks that have ended, for the next ones, and their free memory counts for the
executor: a third of a reader's, in Arrow's pool and in malloc's. The rule: only free memory is given back, so calling
this is never wrong; it takes a millisecond or two, so not while rows are read.
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

import pyarrow as pa


def release_free_memory() -> None:
    """Return free memory of Arrow's pool and of malloc to the operating system; once, when a task has ended."""
    pa.default_memory_pool().release_unused()
    trim = _malloc_trim()
    if trim is not None:
        trim(0)


@cache
def _malloc_trim() -> Any:
    """glibc's ``malloc_trim``; None elsewhere."""
    try:
        trim = ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError):
        return None
    trim.argtypes = [ctypes.c_size_t]
    trim.restype = ctypes.c_int
    return trim
