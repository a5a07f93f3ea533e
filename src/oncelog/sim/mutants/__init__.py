"""Mutants: each breaks the production code in one place, and the simulator must notice (a mutation score).

A simulator that finds nothing proves nothing. ``MUTANTS`` has them by name (``oncelog sim --plant NAME``); each is
a context manager that breaks the code while it is open and mends it after. See ``mutant`` for how.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from oncelog.sim.mutants.administrators import ADMINISTRATORS
from oncelog.sim.mutants.clusters import CLUSTERS
from oncelog.sim.mutants.groups import CLIENTS, GROUPS
from oncelog.sim.mutants.logs import LOGS
from oncelog.sim.mutants.mutant import Mutant
from oncelog.sim.mutants.required import REQUIRED
from oncelog.sim.mutants.transactions import TRANSACTIONS

MUTANTS: Final[Mapping[str, Mutant]] = {
    mutant.name: mutant for mutant in (*REQUIRED, *TRANSACTIONS, *LOGS, *GROUPS, *CLIENTS, *ADMINISTRATORS, *CLUSTERS)
}
OF_CLUSTERS: Final = frozenset(mutant.name for mutant in CLUSTERS)
"""Mutants that need several brokers."""

__all__ = ["MUTANTS", "OF_CLUSTERS", "Mutant"]
