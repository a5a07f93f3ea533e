"""Memory of a task that reads: taken from malloc while it reads, and given back to the operating system at its end.

Spark keeps the Python workers of tasks that have ended, for the next ones, and their free memory counts for the
executor. A reader's columns are made by one thread and freed by another; Arrow's usual allocator, mimalloc, keeps such
memory for the thread that made them, malloc gives it to whoever needs it next. The rule: only free memory is given
back, so doing so is never wrong; it takes a millisecond or two, so not while rows are read.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import pyarrow as pa


@contextmanager
def frugal_memory() -> Iterator[None]:
    """Let Arrow allocate with malloc, and return free memory of either at the end."""
    usual = pa.default_memory_pool()
    pa.set_memory_pool(pa.system_memory_pool())
    try:
        yield
    finally:
        pa.set_memory_pool(usual)
        usual.release_unused()
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
