"""Mutants: each breaks the production code in one place, and the simulator must notice (a mutation score).

A simulator that finds nothing proves nothing. ``MUTANTS`` has them by name. ``python -m tests.simulation.mutants NAME``
runs ``oncelog sim`` with one of them, ``python -m tests.simulation.mutation`` counts the seeds until each is found.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tests.simulation.mutants.administrators import ADMINISTRATORS
from tests.simulation.mutants.clusters import CLUSTERS
from tests.simulation.mutants.consumer_groups import CONSUMER_GROUPS
from tests.simulation.mutants.groups import CLIENTS, GROUPS
from tests.simulation.mutants.logs import LOGS
from tests.simulation.mutants.mutant import Mutant
from tests.simulation.mutants.required import REQUIRED
from tests.simulation.mutants.shares import SHARES
from tests.simulation.mutants.transactions import TRANSACTIONS

MUTANTS: Final[Mapping[str, Mutant]] = {
    mutant.name: mutant
    for mutant in (
        *(*REQUIRED, *TRANSACTIONS, *LOGS, *GROUPS, *CONSUMER_GROUPS, *SHARES),
        *(*CLIENTS, *ADMINISTRATORS, *CLUSTERS),
    )
}
OF_CLUSTERS: Final = frozenset(mutant.name for mutant in CLUSTERS)
"""Mutants that need several brokers."""

__all__ = ["MUTANTS", "OF_CLUSTERS", "Mutant"]
