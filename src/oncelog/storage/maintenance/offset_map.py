"""The last offset of every key in the dirty part of a log, in bounded memory.

Long keys are kept as a 16-byte hash; the chance that two of 10⁹ keys collide is about 10⁻²⁰. When the map is full,
cleaning covers less of the log this time: it goes as far as :attr:`OffsetMap.latest_offset`.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Final

_HASH_BYTES: Final = 16
_ENTRY_BYTES: Final = 160
"""Memory of an entry, key and offset included."""
_MIN_ENTRIES: Final = 10_000


class OffsetMap:
    """Keys to offsets, at most as many as fit into ``memory_bytes``."""

    __slots__ = ("_limit", "_offsets", "latest_offset")

    def __init__(self, memory_bytes: int) -> None:
        self._limit = max(_MIN_ENTRIES, memory_bytes // _ENTRY_BYTES)
        self._offsets: dict[bytes, int] = {}
        self.latest_offset = -1
        """Up to here (inclusive) the log is in the map."""

    def __len__(self) -> int:
        return len(self._offsets)

    def is_full(self) -> bool:
        """True if a new key would not fit."""
        return len(self._offsets) >= self._limit

    def put(self, key: bytes, offset: int) -> None:
        """Note that ``key`` was written at ``offset``, which is later than all before."""
        self._offsets[_slot(key)] = offset

    def last_offset(self, key: bytes) -> int:
        """Offset of the last record with ``key``, −1 when the map has none."""
        return self._offsets.get(_slot(key), -1)


def _slot(key: bytes) -> bytes:
    return key if len(key) < _HASH_BYTES else blake2b(key, digest_size=_HASH_BYTES).digest()
