"""A real broker inside a test: ``with Broker() as broker: ... broker.bootstrap_servers``. See ``broker``; ``cluster``,
for several of them; and ``simulation``, for asyncio programs in virtual time under faults by seed."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from oncelog.testing.broker import Broker as Broker
    from oncelog.testing.cluster.cluster import Cluster as Cluster
    from oncelog.testing.simulation import Simulation as Simulation

__all__ = ["Broker", "Cluster", "Simulation"]


def __getattr__(name: str) -> object:
    """Import ``Broker``, ``Cluster`` or ``Simulation`` on first use, because the pytest plugin is in this package."""
    if name == "Broker":
        from oncelog.testing.broker import Broker

        return Broker
    if name == "Cluster":
        from oncelog.testing.cluster.cluster import Cluster

        return Cluster
    if name == "Simulation":
        from oncelog.testing.simulation import Simulation

        return Simulation
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
