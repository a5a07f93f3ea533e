"""The low-water mark of a socket (SO_RCVLOWAT): a wait for input ends when that many bytes have arrived.

The rule: a mark is at most the number of bytes certain to come. The end of a connection ends every wait.
"""

from __future__ import annotations

import os
import re
import socket
import sys
from typing import Any, Final


def _is_heeded(platform: str, release: str) -> bool:
    """True where a wait also ends when the receive buffer is full."""
    version = re.match(r"(\d+)\.(\d+)", release)
    # Before Linux 5.12 both sides wait for each other if small packets fill the buffer below the mark. Other systems'
    # poll ignores the mark.
    return platform == "linux" and version is not None and tuple(map(int, version.groups())) >= (5, 12)


HAS_LOW_WATER_MARK: Final = _is_heeded(sys.platform, os.uname().release if hasattr(os, "uname") else "")


def set_low_water_mark(sock: Any, size_bytes: int) -> bool:
    """Returns False, without effect, where the system does not support it."""
    if not HAS_LOW_WATER_MARK:
        return False
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, size_bytes)
    except OSError:  # the connection has ended; the next read reports it
        return False
    return True
