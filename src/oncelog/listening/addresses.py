"""Binds sockets for a listener's host and port, and checks the Host headers of HTTP requests.

An empty host and ``::`` mean all addresses, IPv4 and IPv6, as Apache Kafka's ``[::]`` does where the kernel's
``bindv6only`` is 0.
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
# Errors of an IPv6 socket where IPv6 is missing.
_NO_IPV6: Final = frozenset({errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL, errno.EPROTONOSUPPORT})
# Ports tried to find one that is free for both IPv4 and IPv6.
_ATTEMPTS: Final = 10

# Family and host; for IPv6 also flow information and scope.
Address = tuple[int, str, int, int]


def unbracketed(host: str) -> str:
    return host[1:-1] if host.startswith("[") and host.endswith("]") else host


def is_ipv4(host: str) -> bool:
    try:
        return ip_address(host).version == 4
    except ValueError:
        return False


def unmapped(host: str) -> str:
    """The IPv4 address that an IPv6 address maps (``::ffff:192.0.2.1``); other hosts unchanged."""
    try:
        address = ip_address(host)
    except ValueError:
        return host
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return host if mapped is None else str(mapped)


def bind(host: str, port: int, *, ipv6_only: bool = False) -> list[socket.socket]:
    """Non-blocking sockets bound to a host and port, not listening yet. Port 0 is one free port for all of them;
    ``ipv6_only`` excludes IPv4 from ``::``, if another listener uses it. Raises OSError; then none stays open."""
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
                # "::" requires IPv6; an empty host takes whichever exists.
                if host == "" and sockets and error.errno in _NO_IPV6:
                    continue
                raise
            undo.callback(bound.close)
            sockets.append(bound)
        undo.pop_all()
        return sockets


# Two sockets: a single one would show IPv4 peers as ``::ffff:…``, which matches no ACL, quota or limit by address.
def _everywhere() -> Sequence[Address]:
    return (
        (socket.AF_INET, IPV4_EVERYWHERE, 0, 0),
        (socket.AF_INET6, IPV6_EVERYWHERE, 0, 0),
    )


def _resolved(host: str) -> Iterator[Address]:
    results = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    for family, address in dict.fromkeys((family, address) for family, *_, address in results):
        if family == socket.AF_INET6:
            yield family, str(address[0]), int(address[2]), int(address[3])  # type: ignore[misc]  # of IPv6
        elif family == socket.AF_INET:
            yield family, str(address[0]), 0, 0


def _bound(address: Address, port: int) -> socket.socket:
    family, host, flow, scope = address
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            sock.bind((host, port, flow, scope))
        else:
            sock.bind((host, port))
        sock.setblocking(False)
    except BaseException:
        sock.close()
        raise
    return sock


LOCAL_NAMES: Final = frozenset({"localhost", "127.0.0.1", "::1"})
HOST_NAME: Final = re.compile(r"[a-z0-9_]([a-z0-9_.-]*[a-z0-9_])?")


def is_loopback(host: str) -> bool:
    """True for a host that only this machine reaches."""
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def is_addressed_to(host_header: str, names: Collection[str]) -> bool:
    """True if an HTTP Host header has an IP address, a loopback name, or one of ``names`` (in lower case).

    A web page can resolve a name of its own to this machine (DNS rebinding) and read the responses, but not with an IP
    address or ``localhost``; every other name must be configured.
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
