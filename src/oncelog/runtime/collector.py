"""Python's garbage collector, kept from stopping the loop: a full collection looks at what is new, not at everything.

A broker of ten thousand partitions has half a million objects that stay; to look through them takes 150 ms or more on
the loop, and a single large request makes enough new ones to set it off. The rule: what a full collection has left is
*frozen*, so that the next one looks only at what has come since. What is frozen is freed like anything else when
nothing refers to it any more, unless it refers to itself; for that, once the frozen objects have doubled, one
collection looks at them all. Only for a process that is a broker and nothing else.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Final, Protocol, cast

_OLDEST: Final = 2
LEAST: Final = 200_000
"""Frozen objects below which they are not looked at again: some 50 ms."""


class Garbage(Protocol):
    """What is used of the ``gc`` module."""

    callbacks: list[Callable[[str, dict[str, int]], object]]

    def get_objects(self, generation: int) -> list[object]:
        """Those of one generation."""

    def freeze(self) -> None:
        """Leave all objects there are out of later collections."""

    def unfreeze(self) -> None:
        """Put them back into the oldest generation."""

    def get_freeze_count(self) -> int:
        """How many are left out."""


class Collector:
    """See the module. ``start`` it once the broker is up."""

    def __init__(self, garbage: Garbage | None = None) -> None:
        self._gc = cast("Garbage", gc) if garbage is None else garbage
        self._frozen = 0
        """At most so many: those that were freed since are not known."""
        self._most = LEAST
        self._looks_at_all = False

    def start(self) -> None:
        """Freeze what there is, and what every full collection leaves."""
        self._gc.freeze()
        self._frozen = self._gc.get_freeze_count()
        self._most = max(LEAST, 2 * self._frozen)
        self._gc.callbacks.append(self._collected)

    def stop(self) -> None:
        """Python's own way again."""
        self._gc.callbacks.remove(self._collected)
        self._gc.unfreeze()

    def _collected(self, phase: str, info: dict[str, int]) -> None:
        if phase != "stop" or info["generation"] != _OLDEST:
            return
        left = len(self._gc.get_objects(_OLDEST))
        self._gc.freeze()
        if self._looks_at_all:
            self._looks_at_all = False
            self._frozen = left
            self._most = max(LEAST, 2 * left)
            return
        self._frozen += left
        if self._frozen > self._most:
            self._frozen = self._gc.get_freeze_count()
            if self._frozen > self._most:
                self._gc.unfreeze()
                self._looks_at_all = True
