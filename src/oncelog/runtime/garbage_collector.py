"""Keeps Python's garbage collector from pausing the loop: a full collection traverses only new objects.

A broker of ten thousand partitions has half a million long-lived objects. Traversing them blocks the loop for 150 ms or
more, and one large request makes enough new objects to trigger that. So objects that survive a full collection are
*frozen*: the next one skips them. Reference counting still frees them, except cycles; once they have doubled, one
collection traverses them all. Only for a process that is a broker and nothing else.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Final, Protocol, cast

_OLDEST: Final = 2
LEAST: Final = 200_000
"""Frozen objects below which they are never traversed again: some 50 ms."""


class Garbage(Protocol):
    """The functions used of the ``gc`` module."""

    callbacks: list[Callable[[str, dict[str, int]], object]]

    def get_objects(self, generation: int) -> list[object]:
        """The tracked objects of one generation."""

    def freeze(self) -> None:
        """Exclude all present objects from later collections."""

    def unfreeze(self) -> None:
        """Return the frozen objects to the oldest generation."""

    def get_freeze_count(self) -> int: ...


class Collector:
    """Freezes objects. ``start`` it once the broker is up."""

    def __init__(self, garbage: Garbage | None = None) -> None:
        self._gc = cast("Garbage", gc) if garbage is None else garbage
        # An upper bound: objects freed since they were frozen are not subtracted.
        self._frozen = 0
        self._most = LEAST
        self._traverses_all = False

    def start(self) -> None:
        """Freeze all present objects, and from now on the survivors of each full collection."""
        self._gc.freeze()
        self._frozen = self._gc.get_freeze_count()
        self._most = max(LEAST, 2 * self._frozen)
        self._gc.callbacks.append(self._collected)

    def stop(self) -> None:
        self._gc.callbacks.remove(self._collected)
        self._gc.unfreeze()

    def _collected(self, phase: str, info: dict[str, int]) -> None:
        if phase != "stop" or info["generation"] != _OLDEST:
            return
        survivors = len(self._gc.get_objects(_OLDEST))
        self._gc.freeze()
        if self._traverses_all:
            self._traverses_all = False
            self._frozen = survivors
            self._most = max(LEAST, 2 * survivors)
            return
        self._frozen += survivors
        if self._frozen > self._most:
            self._frozen = self._gc.get_freeze_count()
            if self._frozen > self._most:
                self._gc.unfreeze()
                self._traverses_all = True
