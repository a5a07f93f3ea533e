"""Bounds the memory of sealed segments' indexes: the least recently used are dropped first."""

from __future__ import annotations

from collections import OrderedDict
from typing import Protocol

from oncelog.base.units import MIB


class HoldsIndexes(Protocol):
    def index_bytes(self) -> int: ...

    def forget_indexes(self) -> None:
        """Drop indexes that can be read again."""


class IndexBudget:
    def __init__(self, limit_bytes: int = 64 * MIB) -> None:
        self._limit = limit_bytes
        self._held: OrderedDict[int, HoldsIndexes] = OrderedDict()
        self._bytes = 0

    def used(self, segment: HoldsIndexes) -> None:
        key = id(segment)
        if key in self._held:
            self._held.move_to_end(key)
            return
        self._held[key] = segment
        self._bytes += segment.index_bytes()
        while self._bytes > self._limit and len(self._held) > 1:
            _, oldest = self._held.popitem(last=False)
            self._bytes -= oldest.index_bytes()
            oldest.forget_indexes()

    def forget(self, segment: HoldsIndexes) -> None:
        """Stop counting ``segment``: it is gone, or grows again."""
        if self._held.pop(id(segment), None) is not None:
            self._bytes -= segment.index_bytes()
