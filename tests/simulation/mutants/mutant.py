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

from oncelog.sim.seeds import simulation
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
    """The workload with which it is looked for: seeds that do not draw it are passed over."""

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Break it while the context is open."""
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

    def planted(self) -> AbstractContextManager[None]:
        """While the context is open, break it for each run of a seed by itself, so that a seed's trace is its own."""

        def replace_simulate(simulate: Any) -> Any:
            def simulate_mutant(seed: int, **options: Any) -> Any:
                with self.applied():
                    return simulate(seed, **options)

            return simulate_mutant

        return Mutant(self.name, self.what, simulation, "simulate", replace_simulate).applied()


def every(count: int) -> Callable[[], bool]:
    """True each ``count``-th time it is asked."""
    asked = 0

    def now() -> bool:
        nonlocal asked
        asked += 1
        return asked % count == 0

    return now
