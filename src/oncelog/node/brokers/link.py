"""A link: the connection to one broker for one purpose, made on demand, and made again when it has broken.

State            what a request does      next
---------------  -----------------------  ----------------------------------------------------------------------
``IDLE``         connects, waits          connect                                     → ``CONNECTING``
``CONNECTING``   waits                    connected                                   → ``NEGOTIATING``
``NEGOTIATING``  waits                    versions agreed: what waits is sent         → ``READY``
``NEGOTIATING``  waits                    versions agreed, over SASL                  → ``LOGGING_IN``
``LOGGING_IN``   waits                    the other is satisfied: what waits is sent  → ``READY``
``READY``        is sent                  ended, was up for a while: connect again    → ``CONNECTING``
``READY``        waits                    the session ends soon, and all is answered  → ``LOGGING_IN``
any of these     –                        failed, or ended: answer None to all        → ``BACKING_OFF``
``BACKING_OFF``  waits                    50 ms, twice as long each time, up to 1 s   → ``IDLE`` or ``CONNECTING``
any              –                        dropped: answer None to all                 → ``DROPPED``

Rules:

1. A request is answered once, never before ``request`` returns: with its response, or with None. None says nothing of
   whether it was carried out.
2. Responses come in the order of the requests. One that is late ends the connection, and with it all that was sent
   there: its answer would still come.
3. A refused connection answers all that waits at once, and is told (``LinkEvent.REFUSED``): nobody listens there, so the
   broker's process is dead. A connection that was up and ended is therefore tried again at once, asked or not. One that
   ended before its requests were answered is told too (``LinkEvent.BROKEN``): the process may have died a moment ago.
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
    from oncelog.base.security import Endpoint
    from oncelog.client.machine.sasl.exchange import SaslMachine
    from oncelog.core.controller.image.model import BrokerImage
    from oncelog.node.brokers.connections import LinkConnections
    from oncelog.node.kernel.deadlines import Alarm, Deadlines

RECONNECT_BACKOFF_MS: Final = 50
RECONNECT_BACKOFF_MAX_MS: Final = 1000
RENEW_AFTER_PERCENT: Final = 85
"""The share of a session's life after which the next request is sent behind a new login."""
MAX_BYTES_OF_STRANGERS: Final = MIB
"""Largest answer to ApiVersions."""

OnAnswer = Callable[[Any], None]
"""Takes the response, or None."""


class LinkState(Enum):
    """States of a connection; the table of the module has the transitions."""

    IDLE = "idle"
    CONNECTING = "connecting"
    NEGOTIATING = "negotiating"
    LOGGING_IN = "logging in"
    READY = "ready"
    BACKING_OFF = "backing off"
    DROPPED = "dropped"


@dataclass(frozen=True, slots=True)
class LinkSettings:
    """Limits of a link."""

    client_id: str
    setup_timeout_ms: int
    """Time to connect and to agree on versions (``socket.connection.setup.timeout.ms``), twice as long after each
    failure."""
    setup_timeout_max_ms: int
    """``socket.connection.setup.timeout.max.ms``."""
    max_response_bytes: int
    new_login: Callable[[], SaslMachine] | None = None
    """Begins to authenticate, where brokers reach each other over SASL."""


@dataclass(slots=True, eq=False)
class LinkRequest:
    """A request that is not answered yet; ``answered`` is None once nobody waits for the answer."""

    message: Request[Any]
    answered: OnAnswer | None
    alarm: Alarm
    is_sent: bool = False

    def answer(self, response: Response | None) -> None:
        """Tell whoever waits."""
        answered, self.answered = self.answered, None
        if answered is not None:
            answered(response)


class Link:
    """The connection to one broker for one purpose. ``tell`` is called with every sign of life or death."""

    def __init__(
        self,
        broker: BrokerImage,
        endpoint: Endpoint,
        settings: LinkSettings,
        connections: LinkConnections,
        deadlines: Deadlines,
        tell: Callable[[LinkEvent], None],
    ) -> None:
        self.broker = broker
        self._endpoint = endpoint
        self.state = LinkState.IDLE
        self._settings = settings
        self._connections = connections
        self._deadlines = deadlines
        self._tell = tell
        self._link_id = 0
        self._machine: Connection | None = None
        self._sent: deque[LinkRequest] = deque()
        self._waiting: deque[LinkRequest] = deque()
        self._alarm: Alarm | None = None
        """End of the set-up, or of the back-off."""
        self._failures = 0
        self._setup_ms = 0
        self._ready_since_ms = 0
        self._login: SaslMachine | None = None
        self._renew_ms: int | None = None
        """Time from which nothing is sent before this broker has authenticated again (KIP-368)."""

    @property
    def is_logging_in(self) -> bool:
        """True while what comes is part of this broker's login at the other end."""
        return self.state is LinkState.LOGGING_IN

    def request(self, message: Request[Any], answered: OnAnswer, timeout_ms: int) -> Callable[[], None]:
        """Send a request, connecting first where that is necessary; the result forgets it."""
        alarm = self._deadlines.at(self._deadlines.now_ms + timeout_ms, lambda _now_ms: self._timed_out(request))
        request = LinkRequest(message, answered, alarm)
        self._waiting.append(request)
        if self.state is LinkState.READY:
            self._send_waiting()
        else:
            self.connect()
        return partial(self._forget, request)

    def _forget(self, request: LinkRequest) -> None:
        """Forget the answer: what was sent is still answered, or its connection is dropped."""
        request.answered = None
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
            self._fail(f"no answer to {type(request.message).__name__} in time")
        elif request in self._waiting:
            self._waiting.remove(request)
            request.answer(None)

    def connect(self) -> None:
        """Connect, unless it is connected, connecting, or has failed a moment ago."""
        if self.state is not LinkState.IDLE:
            return
        self.state = LinkState.CONNECTING
        self._link_id = self._connections.connect(self, self._endpoint)
        settings = self._settings
        self._setup_ms = min(settings.setup_timeout_ms << min(self._failures, 10), settings.setup_timeout_max_ms)
        self._set_alarm(self._setup_ms, self._set_up_timed_out)

    def connected(self) -> None:
        """The connection is there: agree on versions."""
        self.state = LinkState.NEGOTIATING
        self._machine = Connection(self._settings.client_id, max_response_bytes=MAX_BYTES_OF_STRANGERS)
        self._connections.send(self._link_id, self._machine.start())

    def received(self, data: Buffer) -> None:
        """Take in bytes, and answer the requests whose responses are complete."""
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
                    self._go_on_logging_in(machine, self._login, decoded)
                    continue
                request = self._sent.popleft()
                self._deadlines.cancel(request.alarm)
                request.answer(decoded)
            if self.state is LinkState.READY and self._waiting and self._machine is machine:
                self._send_waiting()  # what has waited for the answers before a new login
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

    def _go_on_logging_in(self, machine: Connection, login: SaslMachine, response: Response) -> None:
        """Take in an answer to the login. Raises AuthenticationFailed."""
        login.answered(response)
        if not login.done:
            self._send_login(machine, login)
            return
        self._login = None
        lifetime_ms = login.session_lifetime_ms
        self._renew_ms = self._deadlines.now_ms + lifetime_ms * RENEW_AFTER_PERCENT // 100 if lifetime_ms else None
        self._ready(machine)

    def _ready(self, machine: Connection) -> None:
        machine.limit(self._settings.max_response_bytes)
        self.state = LinkState.READY
        self._ready_since_ms = self._deadlines.now_ms
        self._failures = 0
        self._cancel_alarm()
        self._tell(LinkEvent.REACHED)
        self._send_waiting()

    def disconnected(self, *, refused: bool) -> None:
        """The connection has ended by itself, or could not be made."""
        was_up = self.state is LinkState.READY
        was_busy = was_up and bool(self._sent)
        up_ms = self._deadlines.now_ms - self._ready_since_ms
        self._connections.ended(self._link_id)
        lost = self._break()
        if was_up and up_ms >= RECONNECT_BACKOFF_MS:
            self.state = LinkState.IDLE
            self.connect()
        else:
            self._back_off()
        _answer_none(lost)
        if refused or was_busy:
            self._tell(LinkEvent.REFUSED if refused else LinkEvent.BROKEN)

    def drop(self) -> None:
        """Give the link up for good: the broker is gone, or another process by now."""
        self._connections.disconnect(self._link_id)
        lost = self._break()
        self.state = LinkState.DROPPED
        _answer_none(lost)

    def _set_up_timed_out(self, _now_ms: int) -> None:
        self._fail(f"no connection within {self._setup_ms} ms")

    def _fail(self, reason: str) -> None:
        """End the connection from this side, and try again after a while."""
        self._connections.report(f"{self}: {reason}")
        self._connections.disconnect(self._link_id)
        lost = self._break()
        self._back_off()
        _answer_none(lost)

    def _break(self) -> list[LinkRequest]:
        """Forget the connection; the requests that are lost with it."""
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


def _answer_none(lost: list[LinkRequest]) -> None:
    for request in lost:
        request.answer(None)
