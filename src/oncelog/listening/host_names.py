"""Host headers of HTTP: which names a server answers to.

Any page may make a name of its own point at this machine (DNS rebinding) and read what its browser is answered there.
It cannot do that with an IP address, nor with ``localhost``; every other name has to be told to the server.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Collection
from typing import Final

LOCAL_NAMES: Final = frozenset({"localhost", "127.0.0.1", "::1"})
HOST_NAME: Final = re.compile(r"[a-z0-9_]([a-z0-9_.-]*[a-z0-9_])?")


def is_addressed_to(host_header: str, names: Collection[str]) -> bool:
    """True if a Host header has an IP address, a name of loopback, or one of ``names`` (in lower case)."""
    host, colon, port = host_header.rpartition(":")
    name = (host if colon and port.isdigit() else host_header).strip("[]").lower().rstrip(".")
    if name in LOCAL_NAMES or name in names:
        return bool(name)
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
