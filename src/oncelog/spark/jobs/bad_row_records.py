"""Bad rows as records of a quarantine topic: as they were, or changed as little as the topic needs to take them.

The rule: a record has the row's bytes, and headers that say where the row was and why it is bad. Further headers tell
each change: ``oncelog.timestamp`` has the time of the row where the record has another, ``oncelog.key`` is ``null``
where the record has a key instead of none, and ``oncelog.cut`` names the parts that are cut. With the place in the
source's log the original can be read again as long as that log has it.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

HEADER: Final = "oncelog."
"""Before the names of our headers: ``topic``, ``partition``, ``offset``, ``reason``."""
_RECORD_BYTES: Final = 40
_HEADER_BYTES: Final = 10
_LONGEST_REASON: Final = 200

Headers = list[tuple[str, bytes | None]]


@dataclass(frozen=True, slots=True)
class Form:
    """How records are made: of at most ``limit_bytes``; each in a batch of its own; with the time of sending; with a
    key, whatever the row had."""

    limit_bytes: int
    alone: bool = False
    time_of_sending: bool = False
    always_with_key: bool = False


def bad_row_records(rows: pa.RecordBatch, form: Form) -> Iterator[dict[str, Any]]:
    """The arguments of ``send`` for each row."""
    times: Any = rows.column(rows.schema.get_field_index("timestamp")).cast(pa.int64())
    others: Any = rows.drop_columns(["timestamp"])
    for row, micros in zip(others.to_pylist(), times.to_pylist(), strict=True):
        yield _record(row, None if micros is None else micros // 1000, form)


def _record(row: dict[str, Any], row_ms: int | None, form: Form) -> dict[str, Any]:
    own: Headers = [(header["key"], header["value"]) for header in row.get("headers") or ()]
    place: Headers = [(HEADER + name, str(row[name]).encode()) for name in ("topic", "partition", "offset", "reason")]
    told: Headers = []
    key: bytes | None = row["key"]
    time_ms = row_ms
    if form.time_of_sending or time_ms is None or time_ms < -1:
        time_ms = time.time_ns() // 1_000_000
        told.append((HEADER + "timestamp", b"unknown" if row_ms is None else b"%d" % row_ms))
    if key is None and form.always_with_key:
        key = f"{row['topic']}-{row['partition']}-{row['offset']}".encode()
        told.append((HEADER + "key", b"null"))
    value: bytes | None = row["value"]
    if _size(key, value, [*own, *place, *told]) > form.limit_bytes:
        key, value, own, place, told = _cut(key, value, own, place, told, form.limit_bytes)
    return {"value": value, "key": key, "headers": (*own, *place, *told), "timestamp_ms": time_ms}


def _cut(
    key: bytes | None, value: bytes | None, own: Headers, place: Headers, told: Headers, limit_bytes: int
) -> tuple[bytes | None, bytes | None, Headers, Headers, Headers]:
    """Parts of at most ``limit_bytes``: the value is cut first, then headers go, then key and reason are cut."""
    place = [(name, text and text[:_LONGEST_REASON]) for name, text in place]
    told = [*told, (HEADER + "cut", b"value,headers,key")]
    told += _facts("value", value)
    left = limit_bytes - _size(None, None, [*place, *told])
    cut = ["value"]
    if len(key or b"") + _size(None, None, own) > left // 2:
        own, cut = [], [*cut, "headers"]
    if len(key or b"") > left // 2:
        told += _facts("key", key)
        left -= _size(None, None, _facts("key", key))
        key, cut = (key or b"")[: max(0, left // 2)], [*cut, "key"]
    told = [(name, ",".join(cut).encode() if name == HEADER + "cut" else text) for name, text in told]
    left = limit_bytes - _size(key, None, [*own, *place, *told])
    return key, None if value is None else value[: max(0, left)], own, place, told


def _facts(name: str, content: bytes | None) -> Headers:
    """Length and digest of a part that is cut."""
    whole = content or b""
    digest = hashlib.sha256(whole).hexdigest().encode()
    return [(f"{HEADER}{name}.bytes", b"%d" % len(whole)), (f"{HEADER}{name}.sha256", digest)]


def _size(key: bytes | None, value: bytes | None, headers: Headers) -> int:
    """An upper bound of a record's size."""
    inside = sum(_HEADER_BYTES + len(name.encode()) + len(text or b"") for name, text in headers)
    return _RECORD_BYTES + len(key or b"") + len(value or b"") + inside
