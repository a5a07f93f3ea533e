"""The low-water mark of a socket (SO_RCVLOWAT): a wait for the socket ends when so many bytes are there.

The rule: a mark is at most the number of bytes that are certain to come. The end of a connection ends every wait.
"""

from __future__ import annotations

import os
import re
import socket
import sys
from typing import Any, Final


def _is_heeded(platform: str, release: str) -> bool:
    """True where a wait also ends when the system has no room for more. Linux before 5.12 lets both sides wait for each
    other if small packets fill the buffer before the mark is reached; elsewhere poll does not heed the mark."""
    version = re.match(r"(\d+)\.(\d+)", release)
    return platform == "linux" and version is not None and tuple(map(int, version.groups())) >= (5, 12)


HAS_LOW_WATER_MARK: Final = _is_heeded(sys.platform, os.uname().release if hasattr(os, "uname") else "")


def set_low_water_mark(sock: Any, size_bytes: int) -> bool:
    """Let a wait for ``sock`` end from ``size_bytes`` on. Returns False, having done nothing, where that cannot be."""
    if not HAS_LOW_WATER_MARK:
        return False
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, size_bytes)
    except OSError:  # the connection has ended, which reading will say
        return False
    return True
