"""The memory that Python holds at once for a piece of work."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from typing import Final

_TRIES: Final = 3


def peak_bytes(work: Callable[[], object], enough: int) -> int:
    """The most bytes allocated at once while ``work`` runs.

    It runs again while the peak is not below ``enough``: what threads of other tests allocate meanwhile counts too.
    """
    peak = 0
    for _ in range(_TRIES):
        tracemalloc.start()
        try:
            work()
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        if peak < enough:
            break
    return peak
