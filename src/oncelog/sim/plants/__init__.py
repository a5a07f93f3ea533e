"""Bugs to plant: each breaks the production code in one place, and the simulator must notice.

They are its own test (a mutation score): a simulator that finds nothing proves nothing. ``PLANTS`` names those that
fall; a plant is a context manager that breaks the code while it is open and mends it after. See ``planting`` for how.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from oncelog.sim.plants.administrators import ADMINISTRATORS
from oncelog.sim.plants.groups import CLIENTS, GROUPS
from oncelog.sim.plants.logs import LOGS
from oncelog.sim.plants.planting import Plant
from oncelog.sim.plants.required import REQUIRED
from oncelog.sim.plants.transactions import TRANSACTIONS

_ALL: Final = (*REQUIRED, *TRANSACTIONS, *LOGS, *GROUPS, *CLIENTS, *ADMINISTRATORS)
_UNSEEN: Final = frozenset(
    {
        "commit-answered-early",
        "gap-accepted",
        "marker-before-decision",
        "marker-not-retried",
        "retention-takes-more",
        "time-out-forgotten-at-load",
        "watermark-past-sync",
        "window-of-four",
    }
)
"""Not seen to fall in the few seeds that were tried: what the simulator has yet to learn, or what is no bug alone."""

PLANTS: Final[Mapping[str, Plant]] = {plant.name: plant for plant in _ALL if plant.name not in _UNSEEN}
CANDIDATES: Final[Mapping[str, Plant]] = {plant.name: plant for plant in _ALL if plant.name in _UNSEEN}

__all__ = ["CANDIDATES", "PLANTS", "Plant"]
