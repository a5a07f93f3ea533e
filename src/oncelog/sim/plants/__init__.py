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

PLANTS: Final[Mapping[str, Plant]] = {
    plant.name: plant for plant in (*REQUIRED, *TRANSACTIONS, *LOGS, *GROUPS, *CLIENTS, *ADMINISTRATORS)
}

__all__ = ["PLANTS", "Plant"]
