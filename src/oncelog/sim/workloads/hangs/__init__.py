"""Injected hanging transactions, live ones that look alike, and administrators that end the hanging ones.

``injector`` (with ``request_hangs``) and ``log_damage`` inject hangs, ``live_transactions`` runs the live ones,
``administrator`` runs the production tool during the faults, ``final_verdict`` after them. ``ground_truth`` holds the
injected hangs, ``workload`` starts everything.
"""

from __future__ import annotations

from oncelog.sim.workloads.hangs.workload import HangingTransactions, draw_hangs

__all__ = ["HangingTransactions", "draw_hangs"]
