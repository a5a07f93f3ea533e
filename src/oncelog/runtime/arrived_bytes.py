"""Bytes that have arrived on a broken connection and were not read yet."""

from __future__ import annotations

import asyncio
import os
from typing import Final

from oncelog.base.units import MIB

MAX_BYTES: Final = MIB
"""Requests that a connection may have waiting undecided while it lives. More is dropped with it."""


def read_arrived(transport: asyncio.BaseTransport) -> bytes:
    """The bytes that wait in a transport's socket. To be called before the transport closes the socket."""
    sock = transport.get_extra_info("socket")
    arrived = bytearray()
    if sock is None:
        return b""
    try:
        while len(arrived) < MAX_BYTES and (data := os.read(sock.fileno(), MAX_BYTES - len(arrived))):
            arrived += data
    except OSError:
        pass  # nothing more is there, or the system has dropped it
    return bytes(arrived)
