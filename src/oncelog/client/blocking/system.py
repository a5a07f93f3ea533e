"""The blocking client's interface to its machine: connections, clocks, sleep, random numbers.

Code that uses a client (``admin``) takes time from here, so the simulator can run it in virtual time.
"""

from __future__ import annotations

import random
import select
import time
from collections.abc import Sequence
from typing import Final, Protocol

from oncelog.client.blocking.stream import Stream, connect
from oncelog.client.config import Address, ClientConfig


def now_ms() -> int:
    """Milliseconds of the monotonic clock, for time-outs."""
    return time.monotonic_ns() // 1_000_000


class HasFileno(Protocol):
    """A stream or a link."""

    def fileno(self) -> int:
        """The descriptor to poll."""


class System(Protocol):
    """Connections, clocks, sleep and random numbers; the simulator has its own."""

    def connect(self, address: Address, config: ClientConfig, timeout_ms: int) -> Stream:
        """A stream to ``address``. Raises NoBrokerReachable, AuthenticationFailed, ConfigError."""

    def now_ms(self) -> int:
        """Milliseconds of the monotonic clock, for time-outs."""

    def now_us(self) -> int:
        """Microseconds of the same clock."""

    def wall_ms(self) -> int:
        """Milliseconds since the epoch."""

    def sleep(self, milliseconds: float) -> None:
        """Block the caller for so long."""

    def wait(self, streams: Sequence[Stream], wait_ms: float) -> bool:
        """Block until bytes have come on one of the streams. Returns False if none have within ``wait_ms``."""

    def jitter(self, least: int, most: int) -> int:
        """A random number in [least, most]."""


class ThisMachine:
    """The real machine: sockets, the system's clocks, ``random``."""

    def connect(self, address: Address, config: ClientConfig, timeout_ms: int) -> Stream:
        return connect(address, config, timeout_ms)

    def now_ms(self) -> int:
        return now_ms()

    def now_us(self) -> int:
        return time.monotonic_ns() // 1000

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def sleep(self, milliseconds: float) -> None:
        time.sleep(milliseconds / 1000)

    def wait(self, streams: Sequence[HasFileno], wait_ms: float) -> bool:
        poll = select.poll()
        for stream in streams:
            poll.register(stream.fileno(), select.POLLIN)
        return bool(poll.poll(wait_ms))

    def jitter(self, least: int, most: int) -> int:
        """A random number, not reproducible on purpose: clients that fail together must not return together."""
        return random.randint(least, most)


THIS_MACHINE: Final = ThisMachine()
