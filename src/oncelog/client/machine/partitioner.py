"""Chooses a record's partition, as other clients do.

Keyed records go by ``murmur2``, like the Java client's; those without a key stay on one partition until a batch is
full, then move on (KIP-480, made deterministic).
"""

from __future__ import annotations

from typing import Final

_M: Final = 0x5BD1E995
_SEED: Final = 0x9747B28C
_MASK: Final = 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """The 32-bit murmur2 of Apache Kafka's ``Utils``, as an unsigned number."""
    length = len(data)
    value = (_SEED ^ length) & _MASK
    whole = length & ~3
    for at in range(0, whole, 4):
        k = int.from_bytes(data[at : at + 4], "little") * _M & _MASK
        k = (k ^ (k >> 24)) * _M & _MASK
        value = (value * _M & _MASK) ^ k
    rest = length - whole
    if rest:
        value ^= int.from_bytes(data[whole:], "little")
        value = value * _M & _MASK
    value ^= value >> 13
    value = value * _M & _MASK
    return value ^ (value >> 15)


def partition_of_key(key: bytes, partition_count: int) -> int:
    # As Java: the sign bit is masked, not the absolute value.
    return (murmur2(key) & 0x7FFFFFFF) % partition_count


class StickyPartitioner:
    def __init__(self, batch_bytes: int) -> None:
        self._batch_bytes = batch_bytes
        self._current: dict[str, int] = {}
        self._given: dict[str, int] = {}

    def choose(self, topic: str, size_bytes: int, partition_count: int) -> int:
        current = self._current.get(topic, 0)
        if self._given.get(topic, 0) >= self._batch_bytes:
            current += 1
            self._given[topic] = 0
        current %= partition_count
        self._current[topic] = current
        self._given[topic] = self._given.get(topic, 0) + size_bytes
        return current
