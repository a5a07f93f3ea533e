"""Bugs of clusters: they need several brokers."""

from __future__ import annotations

from typing import Final

from tests.simulation.mutants.clusters.coordinators import COORDINATORS
from tests.simulation.mutants.clusters.leadership import LEADERSHIP
from tests.simulation.mutants.clusters.replication import REPLICATION
from tests.simulation.mutants.shares import OF_SHARE_CLUSTERS

CLUSTERS: Final = (*REPLICATION, *LEADERSHIP, *COORDINATORS, *OF_SHARE_CLUSTERS)

__all__ = ["CLUSTERS"]
