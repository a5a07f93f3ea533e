"""A real broker or cluster inside a test, and asyncio programs in virtual time under faults.

``with Broker() as broker: ... broker.bootstrap_servers``. See ``broker``, ``cluster`` and ``simulation``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.base.lazy_names import lazy_names

if TYPE_CHECKING:
    from oncelog.testing.broker import Broker as Broker
    from oncelog.testing.cluster.cluster import Cluster as Cluster
    from oncelog.testing.simulation import Simulation as Simulation

__all__ = ["Broker", "Cluster", "Simulation"]

# The pytest plugin in this package is loaded by every test run: import the classes only when they are used.
__getattr__ = lazy_names(__name__, {"Broker": ".broker", "Cluster": ".cluster.cluster", "Simulation": ".simulation"})
