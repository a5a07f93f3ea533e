"""From the host and port of a listener to bound sockets, and the names that it answers to.

No host, and ``::``, mean all addresses of the machine, IPv4 and IPv6, as Apache Kafka's ``[::]`` does where the
kernel's ``bindv6only`` is 0. That takes two sockets: one socket for both would show IPv4 peers as ``::ffff:…``, which
no ACL, quota or limit by address matches.
"""

from __future__ import annotations

import errno
import re
import socket
from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack
from ipaddress import IPv6Address, ip_address
from typing import Final

IPV4_EVERYWHERE: Final = "0.0.0.0"
IPV6_EVERYWHERE: Final = "::"
_NO_IPV6: Final = frozenset({errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL, errno.EPROTONOSUPPORT})
"""Errors of a socket for IPv6 on a machine, or in a container, that has none."""
_ATTEMPTS: Final = 10
"""Free ports that are tried until one is free for IPv4 and for IPv6."""

Address = tuple[int, str, int, int]
"""Family and host; flow information and scope of IPv6."""


def unbracketed(host: str) -> str:
    """A host as the system takes it: IPv6 addresses stand in brackets before a port."""
    return host[1:-1] if host.startswith("[") and host.endswith("]") else host


def is_ipv4(host: str) -> bool:
    """True for an IPv4 address."""
    try:
        return ip_address(host).version == 4
    except ValueError:
        return False


def unmapped(host: str) -> str:
    """The IPv4 address that an IPv6 one stands for (``::ffff:192.0.2.1``); any other host as it is."""
    try:
        address = ip_address(host)
    except ValueError:
        return host
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return host if mapped is None else str(mapped)


def bind(host: str, port: int, *, ipv6_only: bool = False) -> list[socket.socket]:
    """Non-blocking sockets bound to a host and port, which do not listen yet. Port 0 is one free port for all of them;
    ``ipv6_only`` leaves IPv4 out of ``::``, for another listener that has it. Raises OSError; then none stays open."""
    for attempts_left in reversed(range(_ATTEMPTS)):
        try:
            return _bind(unmapped(host), port, ipv6_only=ipv6_only)
        except OSError as error:
            if port or error.errno != errno.EADDRINUSE or not attempts_left:
                raise
    raise AssertionError("unreachable")


def _bind(host: str, port: int, *, ipv6_only: bool) -> list[socket.socket]:
    everywhere = host == "" or (host == IPV6_EVERYWHERE and not ipv6_only)
    with ExitStack() as undo:
        sockets: list[socket.socket] = []
        for address in _everywhere() if everywhere else _resolved(host):
            try:
                bound = _bound(address, port if not sockets else sockets[0].getsockname()[1])
            except OSError as error:
                # "::" alone insists on IPv6; no host takes what there is.
                if host == "" and sockets and error.errno in _NO_IPV6:
                    continue
                raise
            undo.callback(bound.close)
            sockets.append(bound)
        undo.pop_all()
        return sockets


def _everywhere() -> Sequence[Address]:
    return (
        (socket.AF_INET, IPV4_EVERYWHERE, 0, 0),
        (socket.AF_INET6, IPV6_EVERYWHERE, 0, 0),
    )


def _resolved(host: str) -> Iterator[Address]:
    """The addresses of a host, each once."""
    found = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    for family, address in dict.fromkeys((family, address) for family, *_, address in found):
        if family == socket.AF_INET6:
            yield family, str(address[0]), int(address[2]), int(address[3])  # type: ignore[misc]  # of IPv6
        elif family == socket.AF_INET:
            yield family, str(address[0]), 0, 0


def _bound(address: Address, port: int) -> socket.socket:
    family, host, flow, scope = address
    made = socket.socket(family, socket.SOCK_STREAM)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            made.bind((host, port, flow, scope))
        else:
            made.bind((host, port))
        made.setblocking(False)
    except BaseException:
        made.close()
        raise
    return made


LOCAL_NAMES: Final = frozenset({"localhost", "127.0.0.1", "::1"})
HOST_NAME: Final = re.compile(r"[a-z0-9_]([a-z0-9_.-]*[a-z0-9_])?")


def is_addressed_to(host_header: str, names: Collection[str]) -> bool:
    """True if a Host header of HTTP has an IP address, a name of loopback, or one of ``names`` (in lower case).

    Any page may make a name of its own point at this machine (DNS rebinding) and read what its browser is answered
    there. It cannot do that with an IP address, nor with ``localhost``; every other name has to be told to the server.
    """
    host, colon, port = host_header.rpartition(":")
    name = (host if colon and port.isdigit() else host_header).strip("[]").lower().rstrip(".")
    if name in LOCAL_NAMES or name in names:
        return bool(name)
    try:
        ip_address(name)
    except ValueError:
        return False
    return True
