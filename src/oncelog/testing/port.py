"""A port that stays a broker's own while the broker is down.

A second socket, bound to it and never listening, keeps others from being given the port; clients that connect while
the broker is down are refused, as they are by a dead one. (Sharing the listening socket itself would let them in.)
"""

from __future__ import annotations

import socket
import sys
from typing import Final

LOOPBACK: Final = "127.0.0.1"


class ReservedPort:
    """One port of the loopback interface, held until :meth:`release`. Raises OSError when it is taken."""

    def __init__(self, port: int = 0) -> None:
        self._holder = _bound(port)
        self.number: int = self._holder.getsockname()[1]

    def socket(self) -> socket.socket:
        """A new socket bound to it, for a server to listen on."""
        return _bound(self.number)

    def release(self) -> None:
        """Anybody may have it."""
        self._holder.close()


def _bound(port: int) -> socket.socket:
    bound = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if sys.platform == "darwin":  # where SO_REUSEADDR alone does not let two sockets be bound to one port
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        bound.bind((LOOPBACK, port))
        bound.setblocking(False)
    except BaseException:
        bound.close()
        raise
    return bound
