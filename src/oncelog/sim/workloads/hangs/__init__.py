"""Injected hanging transactions, live ones that look alike, and administrators that end the hanging ones."""

from __future__ import annotations

from oncelog.sim.workloads.hangs.workload import HangingTransactions, draw_hangs

__all__ = ["HangingTransactions", "draw_hangs"]
