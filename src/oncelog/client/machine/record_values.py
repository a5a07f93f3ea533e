"""Validates the arguments of ``send``: a record that cannot be encoded is refused before it is in a batch.

A batch is encoded when it is sent, together with other callers' records.
"""

from __future__ import annotations

from operator import index
from typing import Final

from oncelog.base.units import INT32_MAX, INT64_MAX
from oncelog.records.record import Headers, Record

NO_TIMESTAMP: Final = -1


def checked_record(
    topic: str,
    partition: int | None,
    value: bytes | None,
    key: bytes | None,
    headers: Headers,
    timestamp_ms: int,
) -> Record:
    """The record to send. Raises TypeError or ValueError naming the invalid argument."""
    if type(value) is not bytes and value is not None:
        _check_bytes("value", value)
    if type(key) is not bytes and key is not None:
        _check_bytes("key", key)
    if headers != ():
        _check_headers(headers)
    if type(timestamp_ms) is not int:
        timestamp_ms = _whole("timestamp_ms", timestamp_ms)
    if not NO_TIMESTAMP <= timestamp_ms <= INT64_MAX:
        raise ValueError(f"timestamp_ms={timestamp_ms}: give milliseconds since 1970, or -1 for none")
    if partition is not None and not 0 <= _whole("partition", partition) <= INT32_MAX:
        raise ValueError(f"partition={partition}: partitions are numbered from 0")
    if not isinstance(topic, str):
        raise TypeError(f"topic: give its name as str, not {_type_of(topic)}")
    return Record(NO_TIMESTAMP, timestamp_ms, key, value, headers)


def _check_bytes(argument: str, given: object) -> None:
    if isinstance(given, str):
        raise TypeError(f"{argument}: give bytes, not str; .encode() makes them")
    if not isinstance(given, bytes | bytearray | memoryview):
        raise TypeError(f"{argument}: give bytes or None, not {_type_of(given)}")
    if isinstance(given, memoryview) and (given.itemsize != 1 or given.ndim != 1):
        raise TypeError(f"{argument}: give a memoryview of bytes; .cast('B') makes one")


def _check_headers(headers: object) -> None:
    if not isinstance(headers, tuple | list):
        raise TypeError(f"headers: give a tuple of pairs (name, value), not {_type_of(headers)}")
    for header in headers:
        if not isinstance(header, tuple | list) or len(header) != 2:
            raise TypeError(f"headers: {header!r:.80} is not a pair (name, value)")
        name, value = header
        if not isinstance(name, str):
            raise TypeError(f"headers: a name is str, not {_type_of(name)}")
        if value is not None:
            _check_bytes(f"header {name!r:.80}", value)


def _whole(argument: str, given: object) -> int:
    try:
        # Also accepts numpy integers; bool counts as int.
        return index(given)  # type: ignore[arg-type]  # refused where it is no number
    except TypeError:
        raise TypeError(f"{argument}: give a whole number, not {_type_of(given)}") from None


def _type_of(given: object) -> str:
    return type(given).__name__
