"""Records from a stream of bytes: cut at a delimiter, without waiting for a full buffer.

The rule: records are passed on as soon as they arrive, and ``None`` when the stream pauses, so that the caller can send
a batch that is not full. A record is bounded; the last one needs no delimiter.
"""

from __future__ import annotations

import os
import select
from collections.abc import Iterator
from typing import Final

from oncelog.base.units import KIB, MIB
from oncelog.client.errors import ClientError

MAX_RECORD_BYTES: Final = 256 * MIB
_CHUNK_BYTES: Final = 256 * KIB


def split_stream(descriptor: int, delimiter: bytes, idle_ms: int) -> Iterator[bytes | None]:
    """Records of a file descriptor; None each time nothing arrives for ``idle_ms``, once until more does."""
    record = bytearray()
    """The record that has begun, without the bytes that may belong to a delimiter."""
    tail = b""
    paused = False
    while True:
        if not paused and not select.select([descriptor], [], [], idle_ms / 1000)[0]:
            paused = True
            yield None
            continue
        paused = False
        chunk = os.read(descriptor, _CHUNK_BYTES)
        if not chunk:
            break
        *ends, rest = (tail + chunk).split(delimiter)
        for end in ends:
            yield bytes(record + end) if record else end
            record.clear()
        cut = max(0, len(rest) - len(delimiter) + 1)
        record += rest[:cut]
        tail = rest[cut:]
        if len(record) > MAX_RECORD_BYTES:
            raise ClientError(
                f"no delimiter within {MAX_RECORD_BYTES} bytes of input; set the right one by --delimiter"
            )
    if record or tail:
        yield bytes(record) + tail
