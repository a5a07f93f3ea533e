"""Bugs of clusters: they need several brokers."""

from __future__ import annotations

from typing import Final

from tests.simulation.mutants.clusters.coordinators import COORDINATORS
from tests.simulation.mutants.clusters.leadership import LEADERSHIP
from tests.simulation.mutants.clusters.replication import REPLICATION

CLUSTERS: Final = (*REPLICATION, *LEADERSHIP, *COORDINATORS)

__all__ = ["CLUSTERS"]
