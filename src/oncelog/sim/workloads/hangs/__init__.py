"""Hanging transactions planted on purpose, what looks like them and is not, and administrators that end them.

``planting`` and ``damaging`` make them, ``excused`` makes what must not be touched, ``administering`` runs the
production tool during the faults, ``closing`` after them; ``ground`` knows what was planted, ``workload`` starts all.
"""

from __future__ import annotations

from oncelog.sim.workloads.hangs.workload import HangingTransactions, draw_hangs

__all__ = ["HangingTransactions", "draw_hangs"]
