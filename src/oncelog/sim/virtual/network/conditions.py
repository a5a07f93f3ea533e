"""Conditions of the simulated network: delays, loss and duplicates, per directed pair of hosts.

The network may deliver a request twice if Kafka's protocol promises that a copy changes nothing.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

PRODUCE: Final = 0
FETCH: Final = 1
END_TXN: Final = 26
WRITE_TXN_MARKERS: Final = 27
_END_TXN_WITH_BUMP: Final = 5
_KEY_AND_VERSION: Final = struct.Struct(">hh")
# A lost packet is sent again after this time.
RETRANSMISSION_US: Final = 200_000
# Stands for every host in a directed pair.
ANY_HOST: Final = "*"
# (source, target): one direction between two hosts.
HostPair = tuple[str, str]


@dataclass(frozen=True, slots=True)
class NetworkConditions:
    """Delays in microseconds (one way), and probabilities."""

    least_us: int = 100
    most_us: int = 1_000
    # Probability that a packet is lost and sent again.
    lost: float = 0.0
    # Probability that bytes of one write arrive in two parts.
    split: float = 0.02
    # Probability that a repeatable request also arrives later, on another connection.
    repeated: float = 0.0


def may_be_repeated(frame: bytes) -> bool:
    """True if the protocol promises that a second copy of the request, however late, changes nothing."""
    api_key, version = _KEY_AND_VERSION.unpack_from(frame, 4) if len(frame) >= 8 else (-1, -1)
    # Produce is recognised by its sequences, EndTxn since version 5 by its epoch, and an administrator's marker by its
    # start offset (markers without one go only to dead producers). By Kafka's design, most other requests do harm when
    # late: an offset commit goes back, AddPartitionsToTxn of Transactions V1 opens a transaction.
    return api_key in (PRODUCE, FETCH, WRITE_TXN_MARKERS) or (api_key == END_TXN and version >= _END_TXN_WITH_BUMP)
