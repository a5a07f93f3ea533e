"""A client connection: bytes in, frames to the node, chunks out.

All connections of a loop receive into one buffer, from which bytes are copied once, into their frame. Only bytes that
arrived take memory: 500 peers that announce 90 MB each and stall cost nothing. Unfinished frames and unsent responses
count against a bound for the whole broker; above it reading pauses.

Requests that arrived whole are always handed in. The node learns of the end of the stream after the last one, answers
what it can, and closes. When the connection breaks, the bytes left in the system are read first: a peer that closes
with unread responses resets the connection after its last requests.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, cast

from oncelog.base.errors import PeerError
from oncelog.base.security import ANONYMOUS, SecurityProtocol
from oncelog.base.units import KIB
from oncelog.node.kernel.events import ConnectionClosed, ConnectionHalfClosed, ConnectionOpened
from oncelog.ports import Buffer
from oncelog.runtime.arrived_bytes import read_arrived
from oncelog.runtime.connections.connection_quotas import ConnectionQuotas
from oncelog.runtime.connections.send_queue import SendQueue
from oncelog.runtime.effects.effect_runner import EffectRunner
from oncelog.wire.framing import FrameLimit, FrameSplitter

RECEIVE_BUFFER_SIZE: Final = 256 * KIB
TURN_S: Final = 0.01
"""Time spent on requests that one peer sent at once before other connections are served."""
GATHER_S: Final = 0.001
"""Time for which responses to requests that arrived together wait for each other: one system call sends them."""

LEAST_PROGRESS_BYTES: Final = 64 * KIB
LEAST_PROGRESS_SHARE: Final = 64
"""Progress that an unfinished request must make within the stall time-out: this many bytes, or this part of its
size."""


class Listener(NamedTuple):
    """The listener of a connection. ``advertised`` maps the address a client connected to onto the one to advertise."""

    name: str
    security_protocol: SecurityProtocol
    advertised: Callable[[str, int], tuple[str, int]]
    limit: FrameLimit
    """The size limit of requests."""
    login_limit: FrameLimit
    """The size limit of requests before the client has authenticated."""


class ClientConnection(asyncio.BufferedProtocol):
    def __init__(
        self,
        connection_id: int,
        effect_runner: EffectRunner,
        quotas: ConnectionQuotas,
        receive_buffer: memoryview,
        listener: Listener,
    ) -> None:
        self.id = connection_id
        self.peer = "?"
        self.last_active_s = 0.0
        self._effect_runner = effect_runner
        self._quotas = quotas
        self._needs_login = listener.security_protocol.has_sasl
        self._is_identified = False
        self._splitter = FrameSplitter(listener.login_limit if self._needs_login else listener.limit)
        self._receive_buffer = receive_buffer
        self._listener = listener
        self._transport: asyncio.Transport | None = None
        self._sending: SendQueue | None = None
        self._paused_by: set[str] = set()
        self._undecided: deque[memoryview] = deque()
        self._undecrypted_bytes = 0
        self._accounted = 0
        self._spent_ns = 0
        # Time of the unfinished request's last sufficient progress: see ``_progress``.
        self._unfinished_since_s: float | None = None
        self._unfinished_bytes = 0
        self._unsent_since_s: float | None = None
        # The event for the node once all requests are handed in.
        self._end: ConnectionHalfClosed | ConnectionClosed | None = None
        self._is_lost = self._is_cut_off = False
        self._loop = asyncio.get_running_loop()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are not declared as asyncio.Transport.
        self.accept(cast("asyncio.Transport", transport), lambda: self.open(ANONYMOUS))

    def accept(self, transport: asyncio.Transport, admitted: Callable[[], None]) -> None:
        """Count the connection; refuse it, or call ``admitted``, at once or after its delay."""
        self._transport = transport
        self.last_active_s = self._loop.time()
        peer = transport.get_extra_info("peername")
        self.peer = f"{peer[0]}:{peer[1]}" if peer else "?"
        is_ending = self._effect_runner.stopped.done()  # the server no longer closes connections accepted this late
        ip = peer[0] if peer else "?"
        delay_s = None if is_ending else self._quotas.admit(self, ip, self._listener.name, self.last_active_s)
        if delay_s is None:
            transport.abort()
            return
        sock = transport.get_extra_info("socket")
        if sock is not None:
            # Responses are complete when written; waiting for more would only delay them.
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        closes_after_s = self._quotas.address_delay_s(ip)
        if not delay_s and not closes_after_s:
            admitted()
            return
        transport.pause_reading()
        if closes_after_s:
            self._loop.call_later(closes_after_s, transport.abort)
        else:
            self._loop.call_later(delay_s, self._wait_is_over, transport, admitted)

    def _wait_is_over(self, transport: asyncio.Transport, admitted: Callable[[], None]) -> None:
        if not transport.is_closing() and not self._effect_runner.stopped.done():
            transport.resume_reading()
            admitted()

    def open(self, principal: str, transport: asyncio.Transport | None = None) -> None:
        """``principal`` comes from the transport's certificate; ``transport`` replaces the accepted one."""
        self._transport = transport = transport or self._transport
        assert transport is not None
        self._sending = SendQueue(transport, self._effect_runner.disk, self._lost_file)
        self._effect_runner.connections[self.id] = self
        local, peer = transport.get_extra_info("sockname"), transport.get_extra_info("peername")
        listener = self._listener
        host = f"/{peer[0]}" if peer else "/?"
        advertised = listener.advertised(local[0], local[1])
        self._effect_runner.dispatch(
            ConnectionOpened(self.id, host, advertised, principal, listener.name, listener.security_protocol)
        )

    def garbage(self, reason: str) -> None:
        self._quotas.garbage(self, reason)

    def connection_lost(self, exc: Exception | None) -> None:
        self._quotas.leave(self, self._accounted)
        self._accounted = 0
        self._is_lost = True
        if self._sending is not None:
            self._sending.drop()
        if self._effect_runner.connections.pop(self.id, None) is not None:
            # Over TLS the transport has already read and decrypted the socket's bytes.
            if exc is not None and self._transport is not None and not self._listener.security_protocol.has_tls:
                self._take(read_arrived(self._transport))
            self._end = ConnectionClosed(self.id)
            self._hand_in()

    def get_buffer(self, sizehint: int) -> memoryview:
        """asyncio: the buffer for the next bytes; consumed before another connection's turn."""
        return self._receive_buffer

    def buffer_updated(self, nbytes: int) -> None:
        self.last_active_s = self._loop.time()
        is_begun = self._take(self._receive_buffer[:nbytes])
        if is_begun and not self._is_identified and not self._needs_login:
            self._identified()
        self._progress(self._splitter.held_bytes, begun=is_begun)
        self._hand_in()

    def _take(self, data: Buffer) -> bool:
        """Split ``data`` into requests; True if some are complete now."""
        try:
            frames = self._splitter.feed(data)
        except PeerError:
            return False
        self._undecided.extend(frames)
        return bool(frames)

    def _progress(self, held: int, *, begun: bool) -> None:
        if not held:
            self._unfinished_since_s = None
            return
        # A large request over a slow link is fine while bytes arrive; but the more memory it takes, the more it has to
        # send within ``oncelog.connection.stalled.ms``.
        min_progress = max(LEAST_PROGRESS_BYTES, self._unfinished_bytes // LEAST_PROGRESS_SHARE)
        if begun or self._unfinished_since_s is None or held - self._unfinished_bytes >= min_progress:
            self._unfinished_since_s = self.last_active_s
            self._unfinished_bytes = held

    def _hand_in(self) -> None:
        """Hand requests to the node while the peer reads its responses. (A lost peer gets none.)"""
        undecided, sending = self._undecided, self._sending
        if undecided and sending is not None:
            self._hand_in_each(undecided, sending)
        if undecided:
            self._account()
            return
        if self._end is not None:
            end, self._end = self._end, None
            self._effect_runner.dispatch(end)
        refusal = self._splitter.refusal
        if refusal is not None and self._transport is not None and not (self._is_lost or self._is_cut_off):
            self._is_cut_off = True
            self._quotas.garbage(self, str(refusal))
            self.close_after_sending()
        self._account()

    def _hand_in_each(self, undecided: deque[memoryview], sending: SendQueue) -> None:
        sent_s = time.monotonic()
        turn_ends_s = sent_s + TURN_S
        if len(undecided) > 1:
            sending.gather()
        # A thousand small requests with large responses in one packet must not all be answered into memory.
        while undecided and (self._is_lost or not sending.is_full):
            self._spent_ns = self._effect_runner.receive(self.id, undecided.popleft(), self._spent_ns)
            if not undecided:
                break
            now_s = time.monotonic()
            if now_s > turn_ends_s:
                self.pause_reading("turn")
                self._loop.call_soon(self._next_turn)
                break
            if now_s - sent_s > GATHER_S:
                sending.send_gathered()
                sending.gather()
                sent_s = now_s
        sending.send_gathered()

    def _next_turn(self) -> None:
        self.resume_reading("turn")
        self._hand_in()

    def _account(self) -> None:
        if self._is_lost:
            return
        held = self._splitter.held_bytes + sum(map(len, self._undecided)) + self._effect_runner.backlog_bytes(self.id)
        held += self._undecrypted_bytes
        if self._sending is not None:
            held += self._sending.unsent_bytes
        if held != self._accounted:
            change, self._accounted = held - self._accounted, held
            self._quotas.account(self, change)

    def undecrypted(self, size: int) -> None:
        """Note the size of received TLS bytes that wait until this connection reads on."""
        self._undecrypted_bytes = size
        self._account()

    def eof_received(self) -> bool:
        """asyncio: the peer has stopped sending. True: responses may still be sent."""
        if self.id not in self._effect_runner.connections or self._transport is None or self._transport.is_closing():
            return False
        self.end_reading()
        return not self._transport.is_closing()

    def end_reading(self) -> None:
        if "ended" in self._paused_by:
            return
        self.pause_reading("ended")
        self._unfinished_since_s = None
        self._end = ConnectionHalfClosed(self.id)
        self._hand_in()

    def pause_writing(self) -> None:
        """asyncio: the peer reads slowly. Stop reading its requests, or their responses would pile up."""
        self._unsent_since_s = self._loop.time()
        if self._sending is not None:
            self._sending.pause()
        self.pause_reading("slow reader")
        self._account()

    def resume_writing(self) -> None:
        self.last_active_s = self._loop.time()
        self._unsent_since_s = None
        if self._sending is None:
            return
        self._sending.resume()
        self._hand_in()
        if not self._undecided and not self._sending.is_full:
            self.resume_reading("slow reader")

    def send(self, chunks: Sequence[object]) -> None:
        self.last_active_s = self._loop.time()
        if self._sending is not None:
            self._sending.add(chunks)
            if not self._sending.is_gathering and (self._sending.held_bytes or self._accounted):
                self._account()

    def authenticated(self) -> None:
        self._splitter.set_limit(self._listener.limit)
        self._identified()

    def _identified(self) -> None:
        self._is_identified = True
        self._quotas.identified(self)

    def close_after_sending(self) -> None:
        self.pause_reading("closing")
        if self._sending is not None:
            self._sending.close_when_empty()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def stalled_since_s(self) -> float | None:
        unfinished_s = self._unfinished_since_s
        if self._paused_by & {"node", "slow reader"}:
            unfinished_s = None  # the rest cannot arrive while reading is paused
        return min((since_s for since_s in (unfinished_s, self._unsent_since_s) if since_s is not None), default=None)

    def pause_reading(self, reason: str) -> None:
        """Stop reading until every reason is removed."""
        if not self._paused_by and self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()
        self._paused_by.add(reason)

    def resume_reading(self, reason: str) -> None:
        """Remove a reason for the pause; reading resumes after the last."""
        if reason not in self._paused_by:
            return
        self._paused_by.discard(reason)
        if self._unfinished_since_s is not None:
            self._unfinished_since_s = self._loop.time()
        if not self._paused_by and self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    def _lost_file(self, error: Exception) -> None:
        self._quotas.garbage(self, f"cannot read a log for {self.peer}: {error}")
        self.abort()
