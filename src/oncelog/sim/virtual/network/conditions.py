"""Conditions of the simulated network: delays, loss and duplicates, one set for each directed pair of hosts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

RETRANSMISSION_US: Final = 200_000
"""A lost packet is sent again after this time."""
ANY_HOST: Final = "*"
"""The name that stands for every host in a directed pair."""
HostPair = tuple[str, str]
"""(source, target): one direction between two hosts."""


@dataclass(frozen=True, slots=True)
class NetworkConditions:
    """Delays in microseconds (one way), and probabilities."""

    least_us: int = 100
    most_us: int = 1_000
    lost: float = 0.0
    """Probability that a packet has to be sent again."""
    split: float = 0.02
    """Probability that bytes written at once arrive in two parts."""
    repeated: float = 0.0
    """Probability that a request which may be repeated also arrives on a connection of its own, later."""
