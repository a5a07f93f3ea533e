"""The addresses at which a listener is reached, by the host that it was given."""

from __future__ import annotations

import errno
import socket
from collections.abc import Iterable
from contextlib import closing
from typing import Any

import pytest

from oncelog.listening import addresses
from oncelog.listening.addresses import bind, is_ipv4, unbracketed, unmapped


def has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


needs_ipv6 = pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6")


def reached(sockets: Iterable[socket.socket], host: str) -> bool:
    """True if a client reaches the sockets by an address."""
    port = 0
    for listening in sockets:
        listening.listen()
        port = listening.getsockname()[1]
    try:
        socket.create_connection((host, port)).close()
    except ConnectionRefusedError:
        return False
    finally:
        for listening in sockets:
            listening.close()
    return True


@needs_ipv6
@pytest.mark.parametrize("host", ["::", ""])
@pytest.mark.parametrize("client", ["127.0.0.1", "::1"])
def test_everywhere_is_ipv4_and_ipv6_at_one_port(host: str, client: str) -> None:
    assert reached(bind(host, 0), client)


@pytest.mark.parametrize(
    ("host", "client", "expected"),
    [
        ("0.0.0.0", "127.0.0.1", True),
        ("127.0.0.1", "127.0.0.1", True),
        ("::ffff:127.0.0.1", "127.0.0.1", True),
        pytest.param("0.0.0.0", "::1", False, marks=needs_ipv6),
        pytest.param("::1", "::1", True, marks=needs_ipv6),
        pytest.param("::1", "127.0.0.1", False, marks=needs_ipv6),
    ],
)
def test_one_address_is_that_address_alone(host: str, client: str, expected: bool) -> None:
    assert reached(bind(host, 0), client) == expected


@needs_ipv6
def test_two_listeners_share_a_port_one_for_each_kind_of_address() -> None:
    (ipv4,) = bind("0.0.0.0", 0)
    with closing(ipv4):
        (ipv6,) = bind("::", ipv4.getsockname()[1], ipv6_only=True)
        ipv6.close()


@needs_ipv6
@pytest.mark.parametrize("host", ["::", ""])
def test_a_port_that_another_program_has_for_ipv4_is_refused(host: str) -> None:
    """It would get the clients that come by IPv4."""
    (taken,) = bind("127.0.0.1", 0)
    taken.listen()
    with closing(taken), pytest.raises(OSError, match=r".") as refused:
        bind(host, taken.getsockname()[1])
    assert refused.value.errno == errno.EADDRINUSE


def test_without_ipv6_everywhere_is_ipv4_and_an_ipv6_address_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    class Ipv4Only(socket.socket):
        def __init__(self, family: int, *more: Any) -> None:
            if family == socket.AF_INET6:
                raise OSError(errno.EAFNOSUPPORT, "Address family not supported by protocol")
            super().__init__(family, *more)

    monkeypatch.setattr(addresses.socket, "socket", Ipv4Only)
    (only,) = bind("", 0)
    assert only.family == socket.AF_INET
    only.close()
    with pytest.raises(OSError, match="family not supported"):
        bind("::", 0)


def test_hosts_as_they_are_written() -> None:
    assert [unbracketed(host) for host in ("[::]", "::", "example", "")] == ["::", "::", "example", ""]
    assert [unmapped(host) for host in ("::ffff:192.0.2.1", "::1", "example")] == ["192.0.2.1", "::1", "example"]
    assert [is_ipv4(host) for host in ("0.0.0.0", "::", "example", "")] == [True, False, False, False]
