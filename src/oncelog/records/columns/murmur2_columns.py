"""Apache Kafka's murmur2 of many keys at once: a numpy step for every four bytes of the longest key."""

from __future__ import annotations

from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from oncelog.records.columns.binary_views import bytes_of, field_of

Array: TypeAlias = "pa.Array[Any]"

_M: Final = np.uint32(0x5BD1E995)
_SEED: Final = 0x9747B28C


def murmur2_of(keys: Array) -> npt.NDArray[np.uint32]:
    """The hash of each key as in the Java client, unsigned; undefined for a null key."""
    field = field_of(keys)
    starts, lengths = field.starts, field.sizes
    data = np.concatenate([bytes_of(field.data), np.zeros(4, np.uint8)])
    words: npt.NDArray[np.uint32] = np.ndarray(len(data) - 3, "<u4", data.data, 0, (1,))
    value = (np.uint32(_SEED) ^ lengths.astype(np.uint32)).astype(np.uint32)
    whole = lengths >> 2
    for step in range(int(whole.max()) if len(whole) else 0):
        some = np.flatnonzero(whole > step)
        k = words[starts[some] + 4 * step] * _M
        k = (k ^ (k >> np.uint32(24))) * _M
        value[some] = (value[some] * _M) ^ k
    rest = lengths & 3
    some = np.flatnonzero(rest)
    mask = (np.uint32(1) << (rest[some].astype(np.uint32) * np.uint32(8))) - np.uint32(1)
    value[some] = (value[some] ^ (words[starts[some] + 4 * whole[some]] & mask)) * _M
    value ^= value >> np.uint32(13)
    value *= _M
    value ^= value >> np.uint32(15)
    return value
