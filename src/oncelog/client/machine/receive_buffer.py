"""Splits a broker's bytes into frames (4-byte length, then the frame), with as little copying as possible.

Small frames are copied out of one read-ahead buffer; a large one gets its own, into which the socket writes directly.
It grows as bytes arrive, so that a frame that is only announced costs nothing, and is reused once no view of it exists:
otherwise fetching would spend much of its time on zeroed memory. A length outside 0..``max_frame_bytes`` is a PeerError
before anything else.
"""

from __future__ import annotations

import struct
from collections import deque
from typing import Final

from oncelog.base.errors import PeerError
from oncelog.base.invariant import invariant
from oncelog.base.units import KIB, MIB

READ_AHEAD_BYTES: Final = 64 * KIB
SPARE_BYTES: Final = 64
"""The least room behind a large frame in its buffer: decoders may read a little past it before they check."""
_FIRST_ALLOCATION: Final = 4 * MIB
_MOST_KEPT: Final = 2
"""Reusable buffers: while one is filled, the previous one is being decoded."""
LARGEST_KEPT: Final = 16 * MIB
_TLS_RECORDS: Final = (0x1503, 0x1603)
_LENGTH = struct.Struct(">i")


class ReceiveBuffer:
    """Frames out of received bytes: write to ``buffer()``, call ``received(count)``, get frames from ``next()``."""

    def __init__(self, max_frame_bytes: int, read_ahead_bytes: int = READ_AHEAD_BYTES) -> None:
        self.max_frame_bytes = max_frame_bytes
        self.most_kept_bytes = LARGEST_KEPT
        self._ahead = bytearray(read_ahead_bytes)
        self._filled = 0
        self._frame: bytearray | None = None
        self._frame_size = 0
        self._frame_filled = 0
        self._handed_out: list[bytearray] = []
        """The last large frames' buffers, oldest first."""
        self._ready: deque[memoryview] = deque()
        self._lent: memoryview | None = None

    def buffer(self) -> memoryview:
        """The memory to receive the next bytes into; valid until ``received`` is called."""
        self._release()
        if self._frame is not None:
            if self._frame_filled == len(self._frame):
                more = min(len(self._frame), self._frame_size + SPARE_BYTES - self._frame_filled)
                self._frame.extend(bytes(more))
            self._lent = memoryview(self._frame)[self._frame_filled : self._frame_size]
        else:
            self._lent = memoryview(self._ahead)[self._filled :]
        return self._lent

    @property
    def missing(self) -> int:
        return 0 if self._frame is None else self._frame_size - self._frame_filled

    def received(self, count: int) -> None:
        """Cut frames after ``count`` bytes came into ``buffer()``. Raises PeerError for an impossible length."""
        invariant(self._lent is not None and 0 <= count <= len(self._lent), "more received than there was room for")
        self._release()
        if self._frame is not None:
            self._frame_filled += count
            if self._frame_filled == self._frame_size:
                self._finish_frame(self._frame)
        else:
            self._filled += count
            self._cut()

    def feed(self, data: bytes | bytearray | memoryview) -> None:
        view = memoryview(data)
        while view:
            room = self.buffer()
            count = min(len(room), len(view))
            room[:count] = view[:count]
            self.received(count)
            view = view[count:]

    def next(self) -> memoryview | None:
        """The next whole frame, without its length; None until all of it has arrived."""
        return self._ready.popleft() if self._ready else None

    def _release(self) -> None:
        if self._lent is not None:
            self._lent.release()
            self._lent = None

    def _cut(self) -> None:
        start, end = 0, self._filled
        while end - start >= _LENGTH.size:
            (size,) = _LENGTH.unpack_from(self._ahead, start)
            if not 0 <= size <= self.max_frame_bytes:
                raise PeerError(_refusal(size, self.max_frame_bytes))
            body = start + _LENGTH.size
            if end - body >= size:
                self._ready.append(memoryview(bytes(self._ahead[body : body + size])))
                start = body + size
                continue
            if body + size - start > len(self._ahead):
                self._begin_frame(size, body, end)
                start = end
            break
        if start:
            self._ahead[: end - start] = self._ahead[start:end]
            self._filled = end - start

    def _begin_frame(self, size: int, body: int, end: int) -> None:
        self._frame = self._reusable_buffer(size) or bytearray(
            max(min(size + SPARE_BYTES, _FIRST_ALLOCATION), end - body)
        )
        self._frame[: end - body] = self._ahead[body:end]
        self._frame_size = size
        self._frame_filled = end - body

    def _finish_frame(self, frame: bytearray) -> None:
        self._ready.append(memoryview(frame)[: self._frame_size])
        self._frame = None
        if len(frame) <= self.most_kept_bytes:
            self._handed_out.append(frame)
            del self._handed_out[:-_MOST_KEPT]

    def _reusable_buffer(self, size: int) -> bytearray | None:
        for number, buffer in enumerate(self._handed_out):
            if len(buffer) >= size + SPARE_BYTES and not _has_views(buffer):
                return self._handed_out.pop(number)
        return None


def _has_views(buffer: bytearray) -> bool:
    """True if a view of the bytearray exists: it cannot be resized then."""
    try:
        buffer.pop()
    except BufferError:
        return True
    buffer.append(0)
    return False


def _refusal(size: int, most: int) -> str:
    """Text about an invalid length; often it is the start of a TLS alert or handshake (RFC 8446, 5.1)."""
    if size >> 16 in _TLS_RECORDS:
        return "it answers with TLS; set security.protocol to SSL or SASL_SSL"
    return f"the broker announced a response of {size} bytes; at most {most} are accepted"
