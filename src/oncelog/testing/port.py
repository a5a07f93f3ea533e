"""A port that stays reserved for a broker while the broker is down.

A second socket, bound but never listening, keeps the system from assigning the port to others, and refuses clients.
"""

from __future__ import annotations

import socket
import sys
from typing import Final

LOOPBACK: Final = "127.0.0.1"


class ReservedPort:
    """A port of the loopback interface, reserved until :meth:`release`. Raises OSError if it is taken."""

    def __init__(self, port: int = 0) -> None:
        self._holder = _bound(port)
        self.number: int = self._holder.getsockname()[1]

    def socket(self) -> socket.socket:
        return _bound(self.number)

    def release(self) -> None:
        self._holder.close()


def _bound(port: int) -> socket.socket:
    bound = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if sys.platform == "darwin":  # SO_REUSEADDR alone does not allow two sockets on one port
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        bound.bind((LOOPBACK, port))
        bound.setblocking(False)
    except BaseException:
        bound.close()
        raise
    return bound
