"""Mutants: one attribute of production code is replaced for a while.

A mutant gets the attribute and returns its replacement, so that it says only what is different. State that a mutant
needs (every third time …) lives in its closure and begins anew each time it is applied: same seed, same trace.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from inspect import getattr_static
from typing import Any

from oncelog.sim.workloads.kit.workload import Workload


@dataclass(frozen=True, slots=True)
class Mutant:
    """A bug: what it does, and where. ``owner`` is the module or class, ``attribute`` the function that is replaced."""

    name: str
    what: str
    owner: Any
    attribute: str
    replace: Callable[[Any], Any]
    """Takes the function that is right, returns the one that is wrong."""
    faults: tuple[str, ...] = ()
    """Kinds of faults among which it is looked for; none: those that seeds draw."""
    workload: type[Workload] | None = None
    """The workload, in clusters, with which it is looked for: seeds that do not draw it are passed over."""

    def applied(self) -> AbstractContextManager[None]:
        """Break it while the context is open."""
        return self._applied()

    @contextmanager
    def _applied(self) -> Iterator[None]:
        right = getattr_static(self.owner, self.attribute)
        is_inherited = self.attribute not in vars(self.owner)
        setattr(self.owner, self.attribute, self.replace(right))
        try:
            yield
        finally:
            if is_inherited:
                delattr(self.owner, self.attribute)
            else:
                setattr(self.owner, self.attribute, right)


def every(count: int) -> Callable[[], bool]:
    """True each ``count``-th time it is asked."""
    asked = 0

    def now() -> bool:
        nonlocal asked
        asked += 1
        return asked % count == 0

    return now
