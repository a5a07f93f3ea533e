"""Notifications to systemd, and sockets from it."""

# The protocol of sd_notify: NOTIFY_SOCKET names the manager's datagram socket; without it nothing here does anything.
# A datagram is never waited for: a manager that does not read loses messages, and the process goes on.

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Mapping
from contextlib import ExitStack
from typing import Final

_SECOND_US: Final = 1_000_000
_PINGS_PER_TIMEOUT: Final = 3
_FIRST_DESCRIPTOR: Final = 3
_MOST_SOCKETS: Final = 16


class UnusableSockets(Exception):
    """The socket unit's sockets cannot be taken over; the message says why."""


def notify_ready(status: str) -> None:
    # The status is a line of `systemctl status`.
    _send("READY=1", f"STATUS={_in_one_line(status)}")


def notify_stopping() -> None:
    _send("STOPPING=1", "STATUS=stopping")


def keep_watchdog_fed(loop: asyncio.AbstractEventLoop) -> None:
    timeout_s = watchdog_timeout_s(os.environ, os.getpid())
    if timeout_s is not None:
        _feed(loop, timeout_s / _PINGS_PER_TIMEOUT)


def watchdog_timeout_s(environ: Mapping[str, str], pid: int) -> float | None:
    timeout = environ.get("WATCHDOG_USEC", "")
    if not timeout.isascii() or not timeout.isdigit() or int(timeout) == 0:
        return None
    if environ.get("WATCHDOG_PID", str(pid)) != str(pid):
        return None  # set for the parent
    return int(timeout) / _SECOND_US


def handed_sockets(environ: Mapping[str, str], pid: int) -> list[socket.socket]:
    """The listening sockets of a socket unit (the protocol of sd_listen_fds), non-blocking; none without one. Raises
    UnusableSockets."""
    count = environ.get("LISTEN_FDS", "")
    if environ.get("LISTEN_PID") != str(pid) or not count.isascii() or not count.isdigit():
        return []
    # int() refuses to parse thousands of digits.
    if len(count) > len(str(_MOST_SOCKETS)) or int(count) > _MOST_SOCKETS:
        raise UnusableSockets(f"the socket unit hands over more than {_MOST_SOCKETS} sockets (LISTEN_FDS)")
    with ExitStack() as opened:
        sockets = [
            opened.enter_context(_handed(descriptor))
            for descriptor in range(_FIRST_DESCRIPTOR, _FIRST_DESCRIPTOR + int(count))
        ]
        opened.pop_all()
    return sockets


def _handed(descriptor: int) -> socket.socket:
    try:
        handed = socket.socket(fileno=descriptor)
    except OSError as error:
        raise UnusableSockets(
            f"descriptor {descriptor} of the socket unit is no socket: {error.strerror} (LISTEN_FDS)"
        ) from None
    handed.setblocking(False)
    handed.set_inheritable(False)
    return handed


def _feed(loop: asyncio.AbstractEventLoop, every_s: float) -> None:
    _send("WATCHDOG=1")
    loop.call_later(every_s, _feed, loop, every_s)


def _send(*assignments: str) -> None:
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):
        return  # none, or a kind that only virtual machines have
    if address.startswith("@"):
        address = "\0" + address[1:]  # Linux's abstract sockets
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
            manager.setblocking(False)
            manager.sendto("\n".join(assignments).encode(), address)
    except OSError:
        return  # a manager that is gone or does not read must not end the process


def _in_one_line(text: str) -> str:
    # A line end would begin another assignment.
    return " ".join(text.split())
