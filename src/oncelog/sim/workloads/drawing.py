"""Which workloads a seed runs."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Final

from oncelog.sim.workloads.base import Workload
from oncelog.sim.workloads.producing import Producers

KINDS: Final[Mapping[str, Callable[[str, random.Random, int], Workload]]] = {
    "produce": Producers.draw,
}
"""Every workload that can be drawn, by name."""


def draw_workloads(entropy: random.Random, transaction_version: int) -> list[Workload]:
    """One to three, of kinds by chance."""
    kinds = [entropy.choice(sorted(KINDS)) for _ in range(entropy.randint(1, 3))]
    return [KINDS[kind](f"{kind}{index}", entropy, transaction_version) for index, kind in enumerate(kinds)]
