"""Shortens a plan of faults while the simulation still fails: delta debugging over its faults (Zeller, ddmin)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from oncelog.sim.faults.fault import Fault


def minimise(plan: Sequence[Fault], fails: Callable[[Sequence[Fault]], bool]) -> list[Fault]:
    """The shortest failing plan found: each fault is needed, and spans are halved. ``fails`` runs a plan; it must fail
    for the given one.
    """
    shortest = _remove_faults(list(plan), fails)
    for index, fault in enumerate(shortest):
        while fault.span_ms > 1:
            shorter = Fault(fault.at_ms, fault.kind, fault.span_ms // 2, fault.choice)
            tried = [*shortest[:index], shorter, *shortest[index + 1 :]]
            if not fails(tried):
                break
            shortest, fault = tried, shorter
    return shortest


def _remove_faults(plan: list[Fault], fails: Callable[[Sequence[Fault]], bool]) -> list[Fault]:
    if fails([]):
        return []
    parts = 2
    while len(plan) >= 2:
        size = -(-len(plan) // parts)
        for start in range(0, len(plan), size):
            rest = plan[:start] + plan[start + size :]
            if fails(rest):
                plan, parts = rest, max(parts - 1, 2)
                break
        else:
            if parts >= len(plan):
                break
            parts = min(len(plan), 2 * parts)
    return plan
