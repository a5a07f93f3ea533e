"""Time slices of handlers that work through many items. Not an API.

A slice has a thousand items, or fifty while logs of new partitions are created.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, TypeVar

from oncelog.handlers.broker.waits import NextSlice, Steps

if TYPE_CHECKING:
    from oncelog.handlers.broker.ports import Partitions

T = TypeVar("T")
ITEMS: Final = 1000
"""Items per slice: the costliest take 20 µs each."""
# Each item may create a log: a directory and a few files.
ITEMS_WHILE_CREATING: Final = 50


def items_per_slice(partitions: Partitions) -> int:
    return ITEMS_WHILE_CREATING if partitions.is_creating_logs() else ITEMS


def needs_slices(count: int) -> bool:
    return count > ITEMS


def run_in_slices(items: Sequence[T], work: Callable[[Sequence[T]], None], partitions: Partitions) -> Steps[None]:
    """Do ``work`` on all items; on many, slice by slice."""
    if not needs_slices(len(items)):
        work(items)
        return
    start = 0
    while start < len(items):
        yield NextSlice()
        size = items_per_slice(partitions)
        work(items[start : start + size])
        start += size


class SliceBudget:
    __slots__ = ("_count", "_partitions")

    def __init__(self, partitions: Partitions) -> None:
        self._partitions = partitions
        self._count = 0

    def spent(self, items: int = 1) -> bool:
        """Count items; True if the slice is used up."""
        self._count += items
        # The smaller limit first: it needs no call to the port.
        if self._count < ITEMS_WHILE_CREATING or self._count < items_per_slice(self._partitions):
            return False
        self._count = 0
        return True
