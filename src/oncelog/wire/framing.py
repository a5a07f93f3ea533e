"""Splits a stream of bytes into frames: a 32-bit size, then that many bytes.

Memory follows the bytes received, never a size that a peer announces. The first 8 bytes of a request (size, API key,
version) decide how large it may be: only Produce carries data, so only Produce may be large.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import Final

from oncelog.base.errors import PeerError
from oncelog.base.units import MIB
from oncelog.wire.chunks import Buffer

SMALL_REQUEST_MAX_BYTES: Final = MIB
"""Default limit of every request but Produce. A million one-letter topics fit in 9 MB and cost a decoder hundreds."""

PRODUCE_KEY: Final = 0

_SIZE_BYTES: Final = 4
_PREFIX_BYTES: Final = 8
_SIZE_KEY_VERSION = Struct(">ihh")
_TLS: Final = (b"\x15\x03", b"\x16\x03")
"""The beginnings of an alert, a broker's answer to a client without TLS, and of a handshake."""
_HTTP: Final = (b"GET ", b"HEAD", b"POST", b"PUT ", b"HTTP")

FrameLimit = Callable[[int, int], int]
"""(API key, version) → the largest size that a frame may announce."""


def request_limit(max_request_bytes: int, max_small_request_bytes: int = SMALL_REQUEST_MAX_BYTES) -> FrameLimit:
    """The limit of requests: ``max_request_bytes`` for Produce, the smaller of the two for all others."""
    small = min(max_request_bytes, max_small_request_bytes)
    return lambda api_key, version: max_request_bytes if api_key == PRODUCE_KEY else small


def response_limit(max_response_bytes: int) -> FrameLimit:
    # The first bytes of a response do not identify its API.
    return lambda _first, _second: max_response_bytes


class FrameSplitter:
    """Keeps an unfinished frame between two calls of ``feed``."""

    __slots__ = ("_frame", "_limit", "_missing", "_prefix", "refusal")

    def __init__(self, limit: FrameLimit) -> None:
        self._limit = limit
        self.refusal: PeerError | None = None
        """The reason why this peer's bytes are no longer accepted; None while its frames are sound."""
        self._prefix = bytearray()
        """The start of a frame with an unchecked size: fewer than 8 bytes."""
        self._frame: bytearray | None = None
        """The frame being received, without its size."""
        self._missing = 0

    @property
    def held_bytes(self) -> int:
        """Bytes of an unfinished frame, for the runtime's bound on all connections."""
        return len(self._prefix) + (0 if self._frame is None else len(self._frame))

    def set_limit(self, limit: FrameLimit) -> None:
        """Set the limit of later frames (authentication raises it)."""
        self._limit = limit

    def feed(self, data: Buffer) -> list[memoryview]:
        """The frames that ``data`` completes, without their sizes: writable, owned by the caller. ``data`` is copied
        once and may be reused.

        Raises PeerError for a frame that is too large or too small. If valid frames precede it in ``data``, these are
        returned, ``refusal`` is set, and the next call raises.
        """
        frames: list[memoryview] = []
        if self.refusal is not None:
            raise self.refusal
        try:
            self._split(memoryview(data), frames)
        except PeerError as error:
            self.refusal = error
            # Requests before the garbage are still answered, as in Apache Kafka.
            if not frames:
                raise
        return frames

    def _split(self, view: memoryview, frames: list[memoryview]) -> None:
        position, end = 0, len(view)
        while position < end:
            if self._frame is None:
                position = self._begin(view, position)
                if self._frame is None:
                    break
            else:
                after = min(end, position + self._missing)
                self._frame += view[position:after]
                self._missing -= after - position
                position = after
            if self._missing == 0:
                frames.append(memoryview(self._frame))
                self._frame = None

    def _begin(self, view: memoryview, position: int) -> int:
        """Check the next frame's size and take its received part, or keep a prefix too short to be checked."""
        prefix = self._prefix
        missing = _PREFIX_BYTES - len(prefix)
        if prefix or len(view) - position < missing:
            taken = view[position : position + missing]
            prefix += taken
            position += len(taken)
            if len(prefix) < _PREFIX_BYTES:
                self._check_size_alone(prefix)
                return position
            size = self._judge(prefix)
            self._frame = prefix[_SIZE_BYTES:]
            self._prefix = bytearray()
            self._missing = size - len(self._frame)
            return position
        size = self._judge(view[position : position + _PREFIX_BYTES])
        start = position + _SIZE_BYTES
        after = min(len(view), start + size)
        self._frame = bytearray(view[start:after])
        self._missing = size - (after - start)
        return after

    def _judge(self, prefix: Buffer) -> int:
        size, api_key, version = _SIZE_KEY_VERSION.unpack(prefix)
        if size < _PREFIX_BYTES - _SIZE_BYTES:
            raise PeerError(f"a frame of {size} bytes is too small for a header")
        limit = self._limit(api_key, version)
        if size > limit:
            text = f"a frame of {size} bytes where {limit} are allowed (API key {api_key})"
            raise PeerError(text + _other_protocol(bytes(prefix[:_SIZE_BYTES])))
        return int(size)

    @staticmethod
    def _check_size_alone(prefix: bytearray) -> None:
        """Refuse an impossible size as soon as it is known."""
        # The next 4 bytes may never come.
        if len(prefix) >= _SIZE_BYTES and int.from_bytes(prefix[:_SIZE_BYTES], "big", signed=True) < _SIZE_BYTES:
            raise PeerError("a frame size below 4 bytes is too small for a header")


def _other_protocol(start: bytes) -> str:
    """A hint for the log if a peer's bytes begin like another protocol, else ""."""
    if start[:2] in _TLS:
        return "; it begins like TLS: is only one of the two sides configured for SSL?"
    if start in _HTTP:
        return "; it begins like HTTP"
    return ""
