"""From a frame to its response: find the API, decode, decide, wait, encode, in order.

What a peer gets for what it should not have sent: an unknown API or version, or a body that does not decode, closes
its connection and nothing else happens (ApiVersions alone answers an unknown version, KIP-511). A handler that raises
what it should not is our bug: it is reported and costs that connection, not the broker; a broken invariant is fatal.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from oncelog.base.disk_errors import OUT_OF_DESCRIPTORS
from oncelog.base.errors import PeerError
from oncelog.base.invariant import InvariantViolation
from oncelog.base.units import KIB, MINUTE_MS, SECOND_MS
from oncelog.handlers import registry
from oncelog.handlers.broker.context import Context
from oncelog.handlers.broker.ports import Ports
from oncelog.node.access.authoriser import AccessControl
from oncelog.node.kernel.deadlines import Deadlines
from oncelog.node.kernel.events import Authenticated, Close, Fatal, Outbox, Pause, Report, Resume, Send
from oncelog.node.kernel.tasks import RequestTask, Runnable, Slot, Task
from oncelog.node.requests.connections import MAX_UNANSWERED, ClosedConnections, Connection
from oncelog.node.requests.large_responses import encoded_in_slices, is_large
from oncelog.node.requests.lazy_apis import Handle, LoadedApis
from oncelog.node.requests.login_state import LoginAnswer, LoginEnded, LoginState, LoginVerification
from oncelog.node.requests.request_counters import Traffic
from oncelog.node.requests.throttling import Mutes, Throttling
from oncelog.ports import Buffer
from oncelog.wire.chunks import chunk_size
from oncelog.wire.header import RequestHeader, decode_request_header, encode_response
from oncelog.wire.message import ELEMENT_BYTES

if TYPE_CHECKING:
    from oncelog.handlers.broker.waits import Steps
    from oncelog.node.requests.logins import Logins
    from oncelog.wire.chunks import Chunk
    from oncelog.wire.message import Message

PRODUCE_KEY: Final = 0
FETCH_KEY: Final = 1
_FETCH_OF_RANGES: Final = "fetch"
"""The handler whose answers are ranges of files; those of old versions are in memory."""
API_VERSIONS_KEY: Final = 18
AUTHENTICATE_KEY: Final = 36
MAX_TRACE: Final = 4096
"""Characters of a trace that are reported: what a peer sent may be in it."""
LARGE_BYTES: Final = 64 * KIB
"""A request from which on it is worked on in turns with others'. Produce is not: its bytes are records, its partitions
few."""
LARGE_WHILE_CREATING_BYTES: Final = KIB
"""The same while logs of new partitions are created: asking for a hundred of them would create them all at once."""
LOAD_AGAIN_MS: Final = SECOND_MS
"""Pause until a handler is imported again that could not be."""
RESUMES_PER_SLICE: Final = 500
"""Times that a handler asking coordinators about one item after the other goes on before others have their turn."""


ParkingTable = Mapping[type, Callable[[Task, Any], None]]
"""Keeps a task that waits, by the type of what it waits for."""


def _range_size(chunk: Chunk) -> int:
    """Bytes of records in a chunk: a buffer is the response around them."""
    return 0 if isinstance(chunk, (bytes, bytearray, memoryview)) else chunk.size_bytes


class Requests:
    """Decides requests and drives the handlers that wait."""

    def __init__(
        self,
        ports: Ports,
        access: AccessControl,
        parking: ParkingTable,
        deadlines: Deadlines,
        runnable: Runnable,
        outbox: Outbox,
        logins: Callable[[], Logins],
        throttling: Throttling,
    ) -> None:
        self._ports = ports
        self._access = access
        self._parking = parking
        self._deadlines = deadlines
        self._runnable = runnable
        self._outbox = outbox
        self._logins = logins
        self.throttling = throttling
        self._quotas = throttling.quotas
        self.apis = LoadedApis(ports.cluster)
        self.traffic = Traffic()
        self.closed = ClosedConnections()
        self.mutes = Mutes(deadlines, outbox, self._unmuted)
        self._next_report_ms = 0
        self._postponed: dict[Connection, None] | None = None
        """Connections with requests that arrived since :meth:`postpone`; None when they are decided at once."""

    def receive(self, connection: Connection, frame: Buffer) -> None:
        """A frame arrived: decide it, or keep it until the connection is no longer held."""
        if connection.refused:
            return
        if self._postponed is not None:
            self._postponed[connection] = None
            connection.postpone(frame)
        elif connection.is_held():
            connection.postpone(frame)
            connection.let_postponed_pass()
        else:
            self._decide(connection, frame)
        if not connection.paused and connection.is_full():
            connection.paused = True
            self._outbox.effects.append(Pause(connection.id))

    def half_close(self, connection: Connection) -> None:
        """The client sends nothing more: answer what has arrived, then close. One that has not logged in is closed at
        once, and so is one that waits for its group: such an answer may be minutes away."""
        if not connection.open:
            return
        connection.half_closed = True
        if not connection.is_logged_in:
            connection.shut()
            self._outbox.effects.append(Close(connection.id, None))
            return
        if connection.holder is not None:
            connection.holder.client_closed(may_read=True)
        self._decide_postponed(connection)

    def close(self, connection: Connection) -> None:
        """The connection is gone: answer nothing more, but carry out what has arrived."""
        if not connection.open:
            return
        if not connection.is_logged_in:
            connection.shut()
            return
        connection.lose()
        self._flush(connection)
        self._decide_postponed(connection)

    def go_on_with_closed(self) -> None:
        """Decide the next requests of one closed connection, after others have had their turn."""
        connection = self.closed.take_ready()
        if connection is not None:
            self._decide_postponed(connection)

    def postpone(self) -> None:
        """Decide nothing that arrives until :meth:`go_on`."""
        if self._postponed is None:
            self._postponed = {}

    def go_on(self) -> None:
        """Decide what was postponed, in the order of each connection."""
        postponed, self._postponed = self._postponed, None
        for connection in postponed or ():
            self._decide_postponed(connection)
            connection.let_postponed_pass()

    def run_woken(self) -> None:
        """Let every task that was woken go on."""
        while (entry := self._runnable.take()) is not None:
            task, value, error = entry
            if task.alarm is not None:
                self._deadlines.cancel(task.alarm)
                task.alarm = None
            # What it waited in refers to it: a ring that would keep a megabyte of request until garbage is collected.
            task.nudge = task.finish = task.forget = None
            task.resumes += 1
            if task.resumes > RESUMES_PER_SLICE:
                self._runnable.wait_for_slice(task, value, error)
                continue
            task.slot.held = False
            task.context.now_ms = self._deadlines.now_ms
            self._advance(task, value, error)
            self._decide_postponed(task.connection)

    def _decide_postponed(self, connection: Connection) -> None:
        if self._postponed is not None:
            self._postponed[connection] = None
            if not connection.open:
                self.closed.update(connection, is_ready=False)
            return
        decided = 0
        while not connection.refused and (frame := connection.next_postponed()) is not None:
            self._decide(connection, frame)
            decided += 1
            if decided == MAX_UNANSWERED and not connection.open:
                break  # nothing has slowed this client down while it sent: others have their turn in between
        if not connection.open:
            self.closed.update(connection, is_ready=bool(connection.backlog) and not connection.is_held())
            # A Fetch that was decided just now may have begun a session, which nothing else would end.
            self._ports.partitions.fetch_sessions.cache.close(connection.id)
            return
        if connection.half_closed:
            self._flush(connection)  # the last request may have ended without an answer
        if connection.paused and connection.open and connection.muting is None and not connection.is_full():
            connection.paused = False
            self._outbox.effects.append(Resume(connection.id))

    def _decide(self, connection: Connection, frame: Buffer) -> None:
        try:
            if connection.login is not None and not self._is_let_in(connection, connection.login, frame):
                return
            header, position = decode_request_header(frame)
            loaded = self.apis.find(header.api_key, header.api_version)
            if loaded is None:
                self._answer_unsupported(connection, header)
                return
            self.traffic.received(loaded.api.key, len(frame))
            # Who is allowed larger requests (``oncelog.request.max.bytes``) may say more in them.
            most = 0 if header.api_key == PRODUCE_KEY else len(frame) // ELEMENT_BYTES
            request = loaded.request_type.decode(memoryview(frame)[position:], header.api_version, most)
            in_slices = self._slicing() if header.api_key != PRODUCE_KEY and self._is_large(len(frame)) else None
        except Exception as error:  # noqa: BLE001 - whatever a frame does to us costs one connection, see _failed
            if isinstance(error, OSError) and error.errno in OUT_OF_DESCRIPTORS:  # of an import
                self._try_again_later(connection, frame, error)
            else:
                self._failed(connection, None, "a request that cannot be decoded", error)
            return
        context = self._context(connection, header)
        context.request_bytes = len(frame)
        if self._quotas.enabled:
            context.spent_ns, connection.spent_ns = connection.spent_ns, 0
        slot = connection.reserve()
        if in_slices is not None:
            steps = in_slices(loaded.api.name, loaded.handle, request, context)
        else:
            steps = loaded.handle(request, context)
        task = RequestTask(steps, loaded.api, header.correlation_id, context, connection, slot, self._deadlines.now_ms)
        self._advance(task, None, None)

    def _slicing(self) -> Callable[[str, Handle, Any, Context], Steps[Any]]:
        from oncelog.handlers.large_requests import in_slices  # most brokers never get a request so large

        return in_slices

    def _try_again_later(self, connection: Connection, frame: Buffer, error: OSError) -> None:
        """Keep a request whose handler cannot be imported now: the process has no file descriptor left."""
        if self.mutes.have_ended:
            self._refuse(connection, None, "the broker stops before a handler could be loaded")
            return
        now_ms = self._deadlines.now_ms
        if now_ms >= self._next_report_ms:
            self._next_report_ms = now_ms + MINUTE_MS
            self._outbox.effects.append(Report("error", f"requests wait, for a handler cannot be loaded: {error}"))
        connection.postpone_first(frame)
        self.mutes.mute(connection, LOAD_AGAIN_MS)

    def _is_let_in(self, connection: Connection, login: LoginState, frame: Buffer) -> bool:
        """True if a frame of a SASL listener is decided as any other; else it is answered here. Raises PeerError."""
        verdict = self._logins().judge(login, frame)
        if verdict is None:
            return True
        slot = connection.reserve()
        if isinstance(verdict, LoginVerification):
            self._wait_for_verdict(connection, slot, verdict)
        else:
            self._conclude_login(connection, slot, verdict)
        return False

    def _wait_for_verdict(self, connection: Connection, slot: Slot, verification: LoginVerification) -> None:
        """A worker computes; until it is done, nothing more of the connection is decided."""
        header = verification.header or RequestHeader(AUTHENTICATE_KEY, 0, 0, None)
        api, steps = registry.BY_KEY[AUTHENTICATE_KEY], verification.steps
        context = self._context(connection, header)
        task = RequestTask(steps, api, header.correlation_id, context, connection, slot, self._deadlines.now_ms)
        self._advance(task, None, None)

    def _conclude_login(self, connection: Connection, slot: Slot, verdict: LoginAnswer | LoginEnded) -> None:
        if isinstance(verdict, LoginAnswer):
            slot.chunks = verdict.chunks
            if verdict.principal is not None:
                connection.principal = verdict.principal
                self._outbox.effects.append(Authenticated(connection.id))
            self._flush(connection)
            return
        if not verdict.delay_ms:
            slot.chunks = verdict.chunks
            self._refuse(connection, None, verdict.reason)
            return
        connection.refuse(None, verdict.reason)
        connection.paused = True
        self._outbox.effects.append(Pause(connection.id))
        self._deadlines.at(
            self._deadlines.now_ms + verdict.delay_ms, partial(self._answer_refused, connection, slot, verdict.chunks)
        )

    def _answer_refused(self, connection: Connection, slot: Slot, chunks: Sequence[Chunk], _now_ms: int) -> None:
        """The delay after a refused login is over: the client learns of it, and the connection is closed."""
        if connection.open:
            slot.chunks = chunks
            self._flush(connection)

    def _is_large(self, frame_bytes: int) -> bool:
        return frame_bytes > LARGE_BYTES or (
            frame_bytes > LARGE_WHILE_CREATING_BYTES and self._ports.partitions.is_creating_logs()
        )

    def _answer_unsupported(self, connection: Connection, header: RequestHeader) -> None:
        """Answer a version that is not served: of ApiVersions only (KIP-511). Raises PeerError for others."""
        if header.api_key != API_VERSIONS_KEY:
            name, version = registry.BY_KEY[header.api_key].name, header.api_version
            raise PeerError(f"request for {name} version {version}, which this broker does not have")
        from oncelog.handlers.cluster.versions import unsupported_version

        slot = connection.reserve()
        slot.chunks = encode_response(header.correlation_id, API_VERSIONS_KEY, 0, unsupported_version())
        self._flush(connection)

    def _context(self, connection: Connection, header: RequestHeader) -> Context:
        """The circumstances of a request. By position, as one is made for each: by name takes three times as long."""
        ports, access = self._ports, self._access
        return Context(
            ports.partitions,
            ports.groups,
            ports.transactions,
            ports.cluster,
            access.authoriser,
            header.api_key,
            header.api_version,
            connection.id,
            header.client_id,
            connection.host,
            connection.principal,
            connection.listener,
            self._deadlines.now_ms,
            access.log,
            connection.listener_name,
            connection.security_protocol,
        )

    def _advance(self, task: RequestTask[Connection], value: object, error: Exception | None) -> None:
        """Run a handler to its next wait, or to its response."""
        try:
            wait = task.steps.throw(error) if error is not None else task.steps.send(value)
        except StopIteration as stop:
            self._finish(task, stop.value)
            return
        except Exception as failure:  # noqa: BLE001 - as in _decide
            self._failed(task.connection, task.slot, task.api.name, failure)
            return
        self._park(task, wait)

    def _park(self, task: RequestTask[Connection], wait: Any) -> None:
        """Keep a task with the part of the node that will wake it."""
        connection = task.connection
        task.waiting, task.wait = True, wait
        task.slot.held = wait.holds_connection
        if wait.holds_connection and connection.is_newest(task.slot):
            connection.holder = task
        try:
            self._parking[type(wait)](task, wait)
            if not connection.open or connection.half_closed:
                task.client_closed(may_read=connection.open)
            connection.let_postponed_pass()
        except Exception as failure:  # noqa: BLE001 - as in _decide
            task.waiting = False
            self._failed(task.connection, task.slot, task.api.name, failure)

    def _finish(self, task: RequestTask[Connection], response: Message | LoginAnswer | LoginEnded | None) -> None:
        if isinstance(response, (LoginAnswer, LoginEnded)):
            self._conclude_login(task.connection, task.slot, response)
            return
        if response is not None and task.connection.open and is_large(response):
            task.steps = encoded_in_slices(response, task.context.version)
            self._advance(task, None, None)
            return
        self._answer(task, response)

    def _answer(self, task: RequestTask[Connection], response: Message | None) -> None:
        """Fill a task's slot; None means that the protocol has no response here (Produce with acks=0)."""
        api, context, connection = task.api, task.context, task.connection
        try:
            throttle_ms = self.throttling.answered(api.key, context, response) if self._quotas.enabled else 0
            if response is None or not connection.open:
                task.slot.chunks = ()
            else:
                chunks = encode_response(task.correlation_id, api.key, context.version, response)
                task.slot.chunks = chunks
                if api.key == FETCH_KEY:
                    size_of = _range_size if api.handler == _FETCH_OF_RANGES else chunk_size
                    self.traffic.record_bytes_out += sum(map(size_of, chunks))
            if throttle_ms:
                self.mutes.mute(connection, throttle_ms)
            self._flush(connection)
        except Exception as failure:  # noqa: BLE001 - as in _decide; a response may be more than its version can say
            self._failed(connection, task.slot, api.name, failure)
            return
        self.traffic.answered(api.key, self._deadlines.now_ms - task.started_ms)

    def _flush(self, connection: Connection) -> None:
        chunks = connection.take_ready()
        if not connection.open:
            return
        if chunks:
            self._outbox.effects.append(Send(connection.id, chunks))
        if not connection.slots and (connection.refused or (connection.half_closed and not connection.backlog)):
            connection.shut()
            self._outbox.effects.append(Close(connection.id, connection.refusal))
            return
        if connection.paused and not connection.is_held() and not connection.is_full():
            connection.paused = False
            self._outbox.effects.append(Resume(connection.id))

    def _unmuted(self, connection: Connection) -> None:
        self._flush(connection)
        self._decide_postponed(connection)

    def _failed(self, connection: Connection, slot: Slot | None, what: str, error: Exception) -> None:
        if isinstance(error, InvariantViolation):
            self._outbox.effects.append(Fatal(str(error)))
        elif isinstance(error, PeerError):
            self._refuse(connection, slot, str(error))
        else:
            trace = "".join(traceback.format_exception(error, chain=False))[-MAX_TRACE:]
            self._outbox.effects.append(Report("error", f"{what} failed, its connection is closed", trace))
            self._refuse(connection, slot, None)

    def _refuse(self, connection: Connection, slot: Slot | None, reason: str | None) -> None:
        """Close a connection, after the answers to what was asked before (as Apache Kafka does)."""
        connection.refuse(slot, reason)
        self._flush(connection)
