"""A cache of results whose keys come from peers, bounded in bytes."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final, Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

LARGEST_SHARE: Final = 512
"""A result larger than 1/512 of the cache is not kept: only attackers use names of 30 kB."""
_STRING_BYTES: Final = 50


def text_bytes(text: str) -> int:
    """An upper estimate of the memory that a string takes."""
    return _STRING_BYTES + len(text) * (1 if text.isascii() else 4)


class Memo(Generic[K, V]):
    """Results are discarded all at once when the next one would exceed ``max_bytes``."""

    __slots__ = ("_max_bytes", "_results", "get", "held_bytes")

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._results: dict[K, V] = {}
        # The dict's own method: without an order of use a look-up costs no more than in a dict.
        self.get = self._results.get
        self.held_bytes = 0

    def __len__(self) -> int:
        return len(self._results)

    def remember(self, key: K, result: V, size_bytes: int) -> None:
        """The result takes ``size_bytes`` together with its key."""
        # One huge name must not flush the cache.
        if size_bytes * LARGEST_SHARE > self._max_bytes:
            return
        if self.held_bytes + size_bytes > self._max_bytes:
            self.clear()
        self._results[key] = result
        self.held_bytes += size_bytes

    def clear(self) -> None:
        self._results.clear()
        self.held_bytes = 0
