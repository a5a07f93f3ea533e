"""A link: the connection to one broker for one purpose, made on demand and made again after a failure.

Rules:

1. A request is answered once, never before ``request`` returns. After None, it may or may not have been carried out.
2. A late response ends the connection and all requests sent on it: it could still arrive and be taken for another's.
3. A refused connection answers all waiting requests and notifies ``LinkEvent.REFUSED``: a closed port means a dead
   process. So a connection that was up and ended is retried at once, even without requests. If requests were
   unanswered, ``LinkEvent.BROKEN`` is notified: the process may just have died.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from oncelog.base.errors import PeerError
from oncelog.base.units import MIB
from oncelog.client.errors import AuthenticationFailed, UnsupportedRequest
from oncelog.client.machine.connection import Connection, Phase
from oncelog.node.brokers.connections import LinkEvent
from oncelog.wire.chunks import Buffer
from oncelog.wire.message import Request, Response

if TYPE_CHECKING:
    from oncelog.base.ids import BrokerId
    from oncelog.base.security import Endpoint
    from oncelog.client.machine.sasl.exchange import SaslMachine
    from oncelog.core.controller.image.model import BrokerImage
    from oncelog.node.brokers.connections import LinkConnections
    from oncelog.node.kernel.deadlines import Alarm, Deadlines

RECONNECT_BACKOFF_MS: Final = 50
RECONNECT_BACKOFF_MAX_MS: Final = 1000
RENEW_AFTER_PERCENT: Final = 85
"""Part of a session's lifetime after which the next request waits for a new login."""
MAX_VERSIONS_RESPONSE_BYTES: Final = MIB
"""Largest response to ApiVersions."""

# Called with the response, or with None.
OnAnswer = Callable[[Any], None]


class LinkState(Enum):
    # Requests wait in every state but READY. A failure or the end of the connection answers all of them with None, and
    # leads to BACKING_OFF.

    # A request connects: CONNECTING.
    IDLE = "idle"
    # Connected: NEGOTIATING.
    CONNECTING = "connecting"
    # Versions are agreed: LOGGING_IN if SASL is configured. Otherwise waiting requests are sent: READY.
    NEGOTIATING = "negotiating"
    # Logged in, waiting requests are sent: READY.
    LOGGING_IN = "logging in"
    # Ended after it was up for a while, it reconnects: CONNECTING. The session expires soon and all is answered:
    # LOGGING_IN.
    READY = "ready"
    # 50 ms, doubling up to 1 s, have passed: IDLE or CONNECTING.
    BACKING_OFF = "backing off"
    # From any state; all requests are answered None.
    DROPPED = "dropped"


@dataclass(frozen=True, slots=True)
class LinkSettings:
    client_id: str
    setup_timeout_ms: int
    """Time to connect and to agree on versions (``socket.connection.setup.timeout.ms``); doubles after each failure."""
    setup_timeout_max_ms: int
    """``socket.connection.setup.timeout.max.ms``."""
    max_response_bytes: int
    new_login: Callable[[], SaslMachine] | None = None
    """Makes a SASL login; None where brokers do not use SASL."""


@dataclass(slots=True, eq=False)
class LinkRequest:
    """A pending request. ``on_answer`` is None once the request was answered or cancelled."""

    message: Request[Any]
    on_answer: OnAnswer | None
    alarm: Alarm
    is_sent: bool = False

    def answer(self, response: Response | None) -> None:
        on_answer, self.on_answer = self.on_answer, None
        if on_answer is not None:
            on_answer(response)


class Link:
    """The connection to one broker for one purpose; ``notify`` is called with each change of its reachability."""

    def __init__(
        self,
        broker: BrokerImage,
        endpoint: Endpoint,
        settings: LinkSettings,
        connections: LinkConnections,
        deadlines: Deadlines,
        notify: Callable[[LinkEvent], None],
    ) -> None:
        self.broker = broker
        self._endpoint = endpoint
        self.state = LinkState.IDLE
        self._settings = settings
        self._connections = connections
        self._deadlines = deadlines
        self._notify = notify
        self._link_id = 0
        self._machine: Connection | None = None
        self._sent: deque[LinkRequest] = deque()
        self._waiting: deque[LinkRequest] = deque()
        # End of the set-up time, or of the back-off.
        self._alarm: Alarm | None = None
        self._failures = 0
        self._setup_ms = 0
        self._ready_since_ms = 0
        self._login: SaslMachine | None = None
        # Time from which nothing is sent before this broker has authenticated again (KIP-368).
        self._renew_ms: int | None = None

    @property
    def broker_id(self) -> BrokerId:
        return self.broker.broker_id

    @property
    def is_logging_in(self) -> bool:
        return self.state is LinkState.LOGGING_IN

    def request(self, message: Request[Any], on_answer: OnAnswer, timeout_ms: int) -> Callable[[], None]:
        """Send a request, connecting first if necessary; the result cancels it."""
        alarm = self._deadlines.at(self._deadlines.now_ms + timeout_ms, lambda _now_ms: self._timed_out(request))
        request = LinkRequest(message, on_answer, alarm)
        self._waiting.append(request)
        if self.state is LinkState.READY:
            self._send_waiting()
        else:
            self.connect()
        return partial(self._forget, request)

    def _forget(self, request: LinkRequest) -> None:
        request.on_answer = None
        # A request that was sent keeps its place: responses come in order.
        if not request.is_sent and request in self._waiting:
            self._waiting.remove(request)
            self._deadlines.cancel(request.alarm)

    def _send_waiting(self) -> None:
        machine = self._machine
        assert machine is not None
        if self._renew_ms is not None and self._deadlines.now_ms >= self._renew_ms:
            if not self._sent:
                self._begin_login(machine)
            return
        while self._waiting:
            request = self._waiting.popleft()
            try:
                _, chunks = machine.send(request.message)
            except UnsupportedRequest as error:
                self._connections.report(f"{self}: {error}")
                self._answer_later(request)
                continue
            request.is_sent = True
            self._sent.append(request)
            self._connections.send(self._link_id, chunks)

    def _answer_later(self, request: LinkRequest) -> None:
        self._deadlines.cancel(request.alarm)
        self._deadlines.at(self._deadlines.now_ms, lambda _now_ms: request.answer(None))

    def _timed_out(self, request: LinkRequest) -> None:
        if request.is_sent:
            self._fail(f"no response to {type(request.message).__name__} before its time-out")
        elif request in self._waiting:
            self._waiting.remove(request)
            request.answer(None)

    def connect(self) -> None:
        if self.state is not LinkState.IDLE:
            return
        self.state = LinkState.CONNECTING
        self._link_id = self._connections.connect(self, self._endpoint)
        settings = self._settings
        self._setup_ms = min(settings.setup_timeout_ms << min(self._failures, 10), settings.setup_timeout_max_ms)
        self._set_alarm(self._setup_ms, self._set_up_timed_out)

    def connected(self) -> None:
        self.state = LinkState.NEGOTIATING
        self._machine = Connection(self._settings.client_id, max_response_bytes=MAX_VERSIONS_RESPONSE_BYTES)
        self._connections.send(self._link_id, self._machine.start())

    def received(self, data: Buffer) -> None:
        """Feed bytes, and answer the requests whose responses are complete."""
        machine = self._machine
        if machine is None:
            return
        try:
            self._connections.send(self._link_id, machine.feed(data))
            if self.state is LinkState.NEGOTIATING and machine.phase is Phase.READY:
                self._negotiated(machine)
            while self._machine is machine and (response := machine.next_response()) is not None:
                decoded = response.decode()
                if self._login is not None:
                    self._continue_login(machine, self._login, decoded)
                    continue
                request = self._sent.popleft()
                self._deadlines.cancel(request.alarm)
                request.answer(decoded)
            if self.state is LinkState.READY and self._waiting and self._machine is machine:
                self._send_waiting()  # requests that waited because a login is due
        except PeerError as error:
            self._fail(f"does not speak the Kafka protocol: {error}")
        except AuthenticationFailed as error:
            self._fail(str(error))

    def _negotiated(self, machine: Connection) -> None:
        if self._settings.new_login is None:
            self._ready(machine)
        else:
            self._begin_login(machine)

    def _begin_login(self, machine: Connection) -> None:
        assert self._settings.new_login is not None
        self.state = LinkState.LOGGING_IN
        self._login = self._settings.new_login()
        self._set_alarm(self._setup_ms, self._set_up_timed_out)
        self._send_login(machine, self._login)

    def _send_login(self, machine: Connection, login: SaslMachine) -> None:
        try:
            _, chunks = machine.send(login.next_request())
        except UnsupportedRequest as error:
            raise AuthenticationFailed(str(error)) from None
        self._connections.send(self._link_id, chunks)

    def _continue_login(self, machine: Connection, login: SaslMachine, response: Response) -> None:
        """Continue the login with an answer. Raises AuthenticationFailed."""
        login.answered(response)
        if not login.done:
            self._send_login(machine, login)
            return
        self._login = None
        lifetime_ms = login.session_lifetime_ms
        self._renew_ms = self._deadlines.now_ms + lifetime_ms * RENEW_AFTER_PERCENT // 100 if lifetime_ms else None
        self._ready(machine)

    def _ready(self, machine: Connection) -> None:
        # Only now: before the login the other end is not trusted with large responses.
        machine.limit(self._settings.max_response_bytes)
        self.state = LinkState.READY
        self._ready_since_ms = self._deadlines.now_ms
        self._failures = 0
        self._cancel_alarm()
        self._notify(LinkEvent.REACHED)
        self._send_waiting()

    def disconnected(self, *, refused: bool) -> None:
        was_up = self.state is LinkState.READY
        # Before the state is reset.
        was_busy = was_up and bool(self._sent)
        up_ms = self._deadlines.now_ms - self._ready_since_ms
        self._connections.ended(self._link_id)
        lost = self._break()
        # A connection that breaks right after it was made would be retried in a tight loop.
        if was_up and up_ms >= RECONNECT_BACKOFF_MS:
            self.state = LinkState.IDLE
            self.connect()
        else:
            self._back_off()
        _answer_none(lost)
        if refused or was_busy:
            self._notify(LinkEvent.REFUSED if refused else LinkEvent.BROKEN)

    def drop(self) -> None:
        """Close the link for good: the broker has left or registered again."""
        self._connections.disconnect(self._link_id)
        lost = self._break()
        self.state = LinkState.DROPPED
        _answer_none(lost)

    def _set_up_timed_out(self, _now_ms: int) -> None:
        self._fail(f"no connection within {self._setup_ms} ms")

    def _fail(self, reason: str) -> None:
        self._connections.report(f"{self}: {reason}")
        self._connections.disconnect(self._link_id)
        lost = self._break()
        self._back_off()
        _answer_none(lost)

    def _break(self) -> list[LinkRequest]:
        """Forget the connection; returns the requests that are lost with it."""
        self._cancel_alarm()
        self._machine = self._login = self._renew_ms = None
        lost = [*self._sent, *self._waiting]
        self._sent.clear()
        self._waiting.clear()
        for request in lost:
            self._deadlines.cancel(request.alarm)
        return lost

    def _back_off(self) -> None:
        self.state = LinkState.BACKING_OFF
        delay_ms = min(RECONNECT_BACKOFF_MS << min(self._failures, 10), RECONNECT_BACKOFF_MAX_MS)
        self._failures += 1
        self._set_alarm(delay_ms, self._backed_off)

    def _backed_off(self, _now_ms: int) -> None:
        self.state = LinkState.IDLE
        if self._waiting:
            self.connect()

    def _set_alarm(self, delay_ms: int, callback: Callable[[int], None]) -> None:
        self._cancel_alarm()
        self._alarm = self._deadlines.at(self._deadlines.now_ms + delay_ms, callback)

    def _cancel_alarm(self) -> None:
        if self._alarm is not None:
            self._deadlines.cancel(self._alarm)
            self._alarm = None

    def __str__(self) -> str:
        return f"broker {self.broker.broker_id} at {self._endpoint.host}:{self._endpoint.port}"


def _answer_none(requests: list[LinkRequest]) -> None:
    for request in requests:
        request.answer(None)
