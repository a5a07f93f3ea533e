"""Python's garbage collector, kept from stopping the loop: a full collection looks at what is new, not at everything.

A broker of ten thousand partitions has half a million objects that stay; traversing them takes 150 ms or more on the
loop, and a single large request makes enough new ones to start a full collection. The rule: objects that survive a full
collection are *frozen*, so that the next one traverses only newer ones. Frozen objects are freed by reference counting
like any other, except cycles; for these, once the frozen objects have doubled, one collection traverses them all. Only
for a process that is a broker and nothing else.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Final, Protocol, cast

_OLDEST: Final = 2
LEAST: Final = 200_000
"""Frozen objects below which no collection traverses them again: some 50 ms."""


class Garbage(Protocol):
    """The part of the ``gc`` module that is used."""

    callbacks: list[Callable[[str, dict[str, int]], object]]

    def get_objects(self, generation: int) -> list[object]:
        """The tracked objects of one generation."""

    def freeze(self) -> None:
        """Exclude all present objects from later collections."""

    def unfreeze(self) -> None:
        """Return the frozen objects to the oldest generation."""

    def get_freeze_count(self) -> int:
        """The number of frozen objects."""


class Collector:
    """Freezes objects after full collections. ``start`` it once the broker is up."""

    def __init__(self, garbage: Garbage | None = None) -> None:
        self._gc = cast("Garbage", gc) if garbage is None else garbage
        self._frozen = 0
        """An upper bound of the frozen objects: those freed since are not counted out."""
        self._most = LEAST
        self._traverses_all = False

    def start(self) -> None:
        """Freeze all present objects, and from now on the survivors of every full collection."""
        self._gc.freeze()
        self._frozen = self._gc.get_freeze_count()
        self._most = max(LEAST, 2 * self._frozen)
        self._gc.callbacks.append(self._collected)

    def stop(self) -> None:
        """Restore Python's own collections."""
        self._gc.callbacks.remove(self._collected)
        self._gc.unfreeze()

    def _collected(self, phase: str, info: dict[str, int]) -> None:
        if phase != "stop" or info["generation"] != _OLDEST:
            return
        left = len(self._gc.get_objects(_OLDEST))
        self._gc.freeze()
        if self._traverses_all:
            self._traverses_all = False
            self._frozen = left
            self._most = max(LEAST, 2 * left)
            return
        self._frozen += left
        if self._frozen > self._most:
            self._frozen = self._gc.get_freeze_count()
            if self._frozen > self._most:
                self._gc.unfreeze()
                self._traverses_all = True
