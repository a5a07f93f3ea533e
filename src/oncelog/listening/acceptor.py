"""Accepts a server's connections without using up the file descriptors that the process needs for other things.

asyncio's own servers accept up to a thousand queued connections at a time, before any limit can count them. Here each
connection is checked as it is accepted:

1. Its descriptor is one of the last ``SPARE`` below ``bound()``: data files may be closed, so that the next connections
   get their numbers; if none are, ``make_room`` may close another connection.
2. It is ``bound()`` or above, and no data files were closed: the connection is closed.
3. The system has no descriptor for it: accepting pauses for a second.

A TLS connection is handed over after its handshake. (A broker's own listeners have ``runtime.tls``.)
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import ssl
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from oncelog.base.disk_errors import OUT_OF_DESCRIPTORS
from oncelog.listening.descriptors import connection_bound, give_way, limit
from oncelog.listening.limited_lines import LimitedLines
from oncelog.listening.waiting import Waiting, source_of

_LOG: Final = logging.getLogger("oncelog.listening")
SPARE: Final = 16
"""Connections accepted per turn of the loop, and descriptors below the bound from which others are closed: a connection
closed in one turn is gone in the next."""
MOST_ENTERING: Final = 64
"""TLS handshakes in progress at a time; above it the oldest of the address that has most is closed."""
PAUSE_S: Final = 1.0
HANDSHAKE_S: Final = 10.0
SHUTDOWN_S: Final = 2.0
# Errors of a connection that ended in the queue, or that a firewall refuses.
_GONE: Final = frozenset({errno.ECONNABORTED, errno.EPROTO, errno.EPERM, errno.ENETDOWN, errno.EHOSTUNREACH})
_BURST_S: Final = 1.0


class Acceptor:
    def __init__(
        self,
        name: str,
        sockets: Sequence[socket.socket],
        make: Callable[[], asyncio.BaseProtocol],
        *,
        bound: Callable[[], int] = connection_bound,
        make_room: Callable[[], object] = lambda: None,
        tls: ssl.SSLContext | None = None,
        most_a_second: int | None = None,
        on_refused: Callable[[], object] = lambda: None,
    ) -> None:
        """``name`` is the server's, for the log; ``make`` makes each connection's protocol; ``on_refused`` counts a
        connection closed for want of descriptors."""
        self._loop = asyncio.get_running_loop()
        self.sockets = sockets
        self._make = make
        self._bound = bound
        self._make_room = make_room
        self._tls = tls
        self._interval_s = 0.0 if most_a_second is None else 1.0 / most_a_second
        # Time from which the next connection is accepted, less a burst of ``_BURST_S``.
        self._due_s = 0.0
        # TLS handshakes in progress, and this turn's connections.
        self._entering: Waiting[asyncio.Task[None]] = Waiting()
        self._resume: asyncio.TimerHandle | None = None
        self._is_open = True
        self._name = name
        self._trouble = LimitedLines(_LOG, logging.WARNING)
        self._on_refused = on_refused

    def listen(self, backlog: int) -> None:
        """Let clients connect; they wait until they are accepted."""
        for listener in self.sockets:
            listener.listen(backlog)

    def start(self) -> None:
        for listener in self.sockets:
            self._loop.add_reader(listener.fileno(), self._accept, listener)

    def close(self) -> None:
        """Stop accepting, and close the connections that are being made. May be called again."""
        if not self._is_open:
            return
        self._is_open = False
        self._stop_reading()
        if self._resume is not None:
            self._resume.cancel()
        while self._tls is not None and (task := self._entering.next_to_displace()) is not None:
            self._entering.discard(task)
            task.cancel()
        for listener in self.sockets:
            listener.close()

    def _accept(self, listener: socket.socket) -> None:
        for _ in range(SPARE):
            if not self._is_open or not self._is_due():
                return
            try:
                accepted, peer = listener.accept()
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                if error.errno in _GONE:
                    continue
                # Without the pause the reader would be called again at once, for ever.
                self._pause(PAUSE_S)
                self._trouble.log(f"{self._name}: new connections wait because {self._reason(error)}")
                return
            self._due_s = max(self._due_s, self._loop.time() - _BURST_S) + self._interval_s
            self._take(accepted, str(peer[0]))

    def _reason(self, error: OSError) -> str:
        if error.errno in OUT_OF_DESCRIPTORS:
            return f"there are no file descriptors left (ulimit -n is {limit()})"
        return f"accepting fails: {error.strerror or error}"

    def _is_due(self) -> bool:
        """False if connections come too quickly; accepting then pauses until the next is due."""
        early_s = self._due_s - self._loop.time() if self._interval_s else 0.0
        if early_s > 0:
            self._pause(early_s)
        return early_s <= 0

    def _take(self, accepted: socket.socket, host: str) -> None:
        # The lowest free number is assigned, so the number tells how many are in use.
        over = accepted.fileno() - self._bound()
        is_short = over >= -SPARE and not give_way()
        if is_short:
            self._make_room()
        if is_short and over >= 0:
            accepted.close()
            self._on_refused()
            self._trouble.log(
                f"{self._name}: a connection is refused because connections have taken their share of the file "
                f"descriptors (ulimit -n is {limit()}); raise the limit"
            )
            return
        accepted.setblocking(False)
        task = self._loop.create_task(self._enter(accepted))
        task.add_done_callback(partial(self._entered, accepted))
        if self._tls is None:
            self._entering.add(task, "")  # done in the next turn
            return
        if len(self._entering) >= MOST_ENTERING:
            oldest = self._entering.next_to_displace()
            assert oldest is not None
            self._entering.discard(oldest)
            oldest.cancel()
        self._entering.add(task, source_of(host))

    async def _enter(self, accepted: socket.socket) -> None:
        in_time = None if self._tls is None else HANDSHAKE_S
        at_end = None if self._tls is None else SHUTDOWN_S
        transport, _ = await self._loop.connect_accepted_socket(
            self._make, accepted, ssl=self._tls, ssl_handshake_timeout=in_time, ssl_shutdown_timeout=at_end
        )
        # A cancelled task cannot do this: uvloop then closes the socket, and its protocol is never told.
        if not self._is_open:
            transport.abort()

    def _entered(self, accepted: socket.socket, task: asyncio.Task[None]) -> None:
        """Close a connection that failed to enter; if it was cancelled it may not have started at all."""
        self._entering.discard(task)
        if not task.cancelled():
            error = task.exception()
            if error is None:
                return
            if not isinstance(error, OSError):  # SSLError is one
                _LOG.error("%s: a connection cannot be accepted", self._name, exc_info=error)
        accepted.close()

    def _pause(self, seconds: float) -> None:
        self._stop_reading()
        if self._resume is not None:
            self._resume.cancel()
        self._resume = self._loop.call_later(seconds, self._go_on)

    def _go_on(self) -> None:
        self._resume = None
        self.start()

    def _stop_reading(self) -> None:
        for listener in self.sockets:
            if listener.fileno() >= 0:
                self._loop.remove_reader(listener.fileno())
