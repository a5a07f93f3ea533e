"""Bugs of clusters: they need several brokers (``oncelog sim --cluster --plant NAME``)."""

from __future__ import annotations

from typing import Final

from oncelog.sim.mutants.clusters.coordinators import COORDINATORS
from oncelog.sim.mutants.clusters.leadership import LEADERSHIP
from oncelog.sim.mutants.clusters.replication import REPLICATION

CLUSTERS: Final = (*REPLICATION, *LEADERSHIP, *COORDINATORS)

__all__ = ["CLUSTERS"]
