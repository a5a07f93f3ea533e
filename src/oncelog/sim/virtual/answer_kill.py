"""Kills a broker's process in the instant in which its answer to a request of one kind leaves.

The answer is on the network and arrives; whatever the broker meant to do after it does not happen.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator

from oncelog.sim.virtual.files import ProcessKilled

_KEY_AND_CORRELATION = struct.Struct(">hxxi")
_SIZE_AND_CORRELATION = struct.Struct(">ii")
_SIZE_BYTES = 4


class KilledAtAnswer(ProcessKilled):
    """The process was killed when an answer left; the kernel of its machine still sends what was written."""


class AnswerKill:
    """Armed for one answer to ``api_key``; ``killed`` is called when it has struck. ``spares``: nobody is killed, and
    ``killed`` is called all the same."""

    def __init__(self, api_key: int, killed: Callable[[], object], *, spares: bool = False) -> None:
        self.api_key = api_key
        self.spares = spares
        self.killed = killed
        self._asked: set[tuple[int, int]] = set()
        """(connection, correlation id) of requests of this kind."""

    def received(self, connection: int, frame: bytes | memoryview) -> None:
        """A request arrived at the broker."""
        api_key, correlation_id = _KEY_AND_CORRELATION.unpack_from(frame)
        if api_key == self.api_key:
            self._asked.add((connection, correlation_id))

    def strikes(self, connection: int, data: bytes) -> bool:
        """True when one of the responses in ``data``, which leave now, is the answer that was waited for."""
        return any((connection, correlation_id) in self._asked for correlation_id in _correlation_ids(data))


def _correlation_ids(data: bytes) -> Iterator[int]:
    position = 0
    while position < len(data):
        size, correlation_id = _SIZE_AND_CORRELATION.unpack_from(data, position)
        yield correlation_id
        position += _SIZE_BYTES + size
