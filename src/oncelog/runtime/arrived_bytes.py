"""Reads the bytes that arrived on a broken connection and are still in its socket."""

from __future__ import annotations

import asyncio
import os
from typing import Final

from oncelog.base.units import MIB

MAX_BYTES: Final = MIB
"""Limit on the bytes read, as for undecided requests of a live connection; the rest is lost with the connection."""


def read_arrived(transport: asyncio.BaseTransport) -> bytes:
    """The unread bytes of a transport's socket. Call it before the transport closes the socket."""
    sock = transport.get_extra_info("socket")
    arrived = bytearray()
    if sock is None:
        return b""
    try:
        while len(arrived) < MAX_BYTES and (data := os.read(sock.fileno(), MAX_BYTES - len(arrived))):
            arrived += data
    except OSError:
        pass  # the socket is empty, or the system has discarded its bytes
    return bytes(arrived)
