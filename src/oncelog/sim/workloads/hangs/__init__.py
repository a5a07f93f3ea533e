"""Hanging transactions injected on purpose, live ones that look like them, and administrators that end them.

``injector`` (with ``request_hangs`` and ``pending_offsets``) and ``log_damage`` make them, ``live_lookalikes`` makes
the live ones; ``administrator`` runs the production tool during the faults, ``final_verdict`` after them;
``ground_truth`` holds the hangs that were injected, ``workload`` starts all.
"""

from __future__ import annotations

from oncelog.sim.workloads.hangs.workload import HangingTransactions, draw_hangs

__all__ = ["HangingTransactions", "draw_hangs"]
