"""Turns frames into responses: finds the API, decodes, runs the handler, waits, encodes, in order per connection.

An unknown API or version, or an undecodable body, closes the peer's connection and has no other effect; only
ApiVersions answers an unknown version (KIP-511). An unexpected exception of a handler is a bug of ours, reported, and
costs that connection but not the broker. A broken invariant is fatal.
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
from oncelog.handlers.broker.waits import Answer
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
_FETCH_KEYS: Final = (FETCH_KEY, 78)
"""Fetch and ShareFetch."""
# The handlers whose responses are file ranges; those of old versions are in memory.
_FETCHES_OF_RANGES: Final = ("fetch.handler", "share.fetch")
API_VERSIONS_KEY: Final = 18
AUTHENTICATE_KEY: Final = 36
MAX_TRACE: Final = 4096
"""Characters of a traceback that are reported: it may contain data of a peer."""
LARGE_BYTES: Final = 64 * KIB
"""Size above which requests are handled in slices. Produce is exempt: its bytes are records, and it names few
partitions."""
LARGE_WHILE_CREATING_BYTES: Final = KIB
"""The same while logs are being created: a request for a hundred new partitions would create all their logs at once."""
MAX_ANSWERED_TASKS: Final = 1000
"""Handlers that work on after their answer: more hold their connections, so that clients cannot pile them up."""
IMPORT_RETRY_MS: Final = SECOND_MS
"""Pause before the import of a handler is retried."""
_API_KEY_BYTES: Final = 2
_API_VERSIONS: Final = (18).to_bytes(_API_KEY_BYTES, "big")
RESUMES_PER_SLICE: Final = 500
"""Resumptions of a handler before others have their turn; it may ask coordinators about one item after another."""


# Keeps a task that waits, by the type of its wait.
ParkingTable = Mapping[type, Callable[[Task, Any], None]]


def _range_size(chunk: Chunk) -> int:
    """Bytes of records in a chunk; buffers are the response around them."""
    return 0 if isinstance(chunk, (bytes, bytearray, memoryview)) else chunk.size_bytes


def _needs_no_metadata(connection: Connection, frame: Buffer) -> bool:
    """True for ApiVersions on a new connection: other brokers ask it to learn whether this process runs."""
    return not connection.backlog and bytes(frame[:_API_KEY_BYTES]) == _API_VERSIONS


class Requests:
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
        end_sessions: Callable[[int], None],
    ) -> None:
        """``end_sessions(connection_id)`` ends the fetch sessions of a closed connection."""
        self._ports = ports
        self._access = access
        self._parking = parking
        self._deadlines = deadlines
        self._runnable = runnable
        self._outbox = outbox
        self._logins = logins
        self._end_sessions = end_sessions
        self.throttling = throttling
        self._quotas = throttling.quotas
        self.apis = LoadedApis(ports.cluster)
        self.traffic = Traffic()
        self.closed = ClosedConnections()
        self.mutes = Mutes(deadlines, outbox, self._unmuted)
        self._next_report_ms = 0
        self._answered_tasks = 0
        # Connections with requests since :meth:`postpone`; None while requests are decided at once.
        self._postponed: dict[Connection, None] | None = None

    def receive(self, connection: Connection, frame: Buffer) -> None:
        """Decide a frame, or keep it until the connection is no longer held."""
        if connection.refused:
            return
        if self._postponed is not None and not _needs_no_metadata(connection, frame):
            self._postponed[connection] = None
            connection.postpone(frame)
        elif connection.is_held():
            connection.postpone(frame)
            connection.yield_to_postponed()
        else:
            self._decide(connection, frame)
        if not connection.paused and connection.is_full():
            connection.paused = True
            self._outbox.effects.append(Pause(connection.id))

    def half_close(self, connection: Connection) -> None:
        """Answer what has arrived, then close."""
        if not connection.open:
            return
        connection.half_closed = True
        # A client that is not logged in is closed at once; so is one that waits for its group, which may take minutes.
        if not connection.is_logged_in:
            connection.shut()
            self._outbox.effects.append(Close(connection.id, None))
            return
        if connection.holder is not None:
            connection.holder.client_closed(may_read=True)
        self._decide_postponed(connection)

    def close(self, connection: Connection) -> None:
        """Carry out what has arrived, without answers."""
        if not connection.open:
            return
        if not connection.is_logged_in:
            connection.shut()
            return
        connection.lose()
        self._flush(connection)
        self._decide_postponed(connection)

    def serve_closed(self) -> None:
        connection = self.closed.take_ready()
        if connection is not None:
            self._decide_postponed(connection)

    def postpone(self) -> None:
        """Keep all frames undecided until :meth:`go_on`."""
        if self._postponed is None:
            self._postponed = {}

    def go_on(self) -> None:
        """Decide the postponed frames, in the order of each connection."""
        postponed, self._postponed = self._postponed, None
        for connection in postponed or ():
            self._decide_postponed(connection)
            connection.yield_to_postponed()

    def run_woken(self) -> None:
        while (entry := self._runnable.take()) is not None:
            task, value, error = entry
            if task.alarm is not None:
                self._deadlines.cancel(task.alarm)
                task.alarm = None
            # Breaks reference cycles, which would keep a request of a megabyte until the garbage is collected.
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
                break  # reading was never paused for this client, so it may have sent much: others have their turn
        if not connection.open:
            self.closed.update(connection, is_ready=bool(connection.backlog) and not connection.is_held())
            # A fetch decided just now may have begun a session, which nothing else would end.
            self._end_sessions(connection.id)
            return
        if connection.half_closed:
            self._flush(connection)  # the last request may have had no answer
        if connection.paused and connection.open and connection.muting is None and not connection.is_full():
            connection.paused = False
            self._outbox.effects.append(Resume(connection.id))

    def _decide(self, connection: Connection, frame: Buffer) -> None:
        try:
            if connection.login is not None and not self._is_admitted(connection, connection.login, frame):
                return
            header, position = decode_request_header(frame)
            loaded = self.apis.find(header.api_key, header.api_version)
            if loaded is None:
                self._answer_unsupported(connection, header)
                return
            self.traffic.received(loaded.api.key, len(frame))
            # The bound on decoded elements grows with the request (``oncelog.request.max.bytes``).
            max_elements = 0 if header.api_key == PRODUCE_KEY else len(frame) // ELEMENT_BYTES
            request = loaded.request_type.decode(memoryview(frame)[position:], header.api_version, max_elements)
            in_slices = self._slicing() if header.api_key != PRODUCE_KEY and self._is_large(len(frame)) else None
        except Exception as error:  # noqa: BLE001 - whatever a frame causes costs one connection, see _failed
            if isinstance(error, OSError) and error.errno in OUT_OF_DESCRIPTORS:  # raised by an import
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
        from oncelog.handlers.large_requests import in_slices  # most brokers never get so large a request

        return in_slices

    def _try_again_later(self, connection: Connection, frame: Buffer, error: OSError) -> None:
        """Keep a request whose handler cannot be imported now, for want of a file descriptor."""
        if self.mutes.have_ended:
            self._refuse(connection, None, "the broker is stopping and cannot load the request's handler")
            return
        now_ms = self._deadlines.now_ms
        if now_ms >= self._next_report_ms:
            self._next_report_ms = now_ms + MINUTE_MS
            self._outbox.effects.append(
                Report("error", f"requests wait because their handler cannot be loaded: {error}")
            )
        connection.postpone_first(frame)
        self.mutes.mute(connection, IMPORT_RETRY_MS)

    def _is_admitted(self, connection: Connection, login: LoginState, frame: Buffer) -> bool:
        """True if a frame on a SASL listener is decided like any other; otherwise it is answered here. Raises
        PeerError."""
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
        """Decide nothing more of the connection until a worker has verified the login."""
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
        # The delay slows down password guessing; nothing is read meanwhile.
        connection.refuse(None, verdict.reason)
        connection.paused = True
        self._outbox.effects.append(Pause(connection.id))
        self._deadlines.at(
            self._deadlines.now_ms + verdict.delay_ms, partial(self._answer_refused, connection, slot, verdict.chunks)
        )

    def _answer_refused(self, connection: Connection, slot: Slot, chunks: Sequence[Chunk], _now_ms: int) -> None:
        if connection.open:
            slot.chunks = chunks
            self._flush(connection)

    def _is_large(self, frame_bytes: int) -> bool:
        return frame_bytes > LARGE_BYTES or (
            frame_bytes > LARGE_WHILE_CREATING_BYTES and self._ports.partitions.is_creating_logs()
        )

    def _answer_unsupported(self, connection: Connection, header: RequestHeader) -> None:
        """Answer an unsupported version of ApiVersions (KIP-511). Raises PeerError for other APIs."""
        if header.api_key != API_VERSIONS_KEY:
            name, version = registry.BY_KEY[header.api_key].name, header.api_version
            raise PeerError(f"request for {name} version {version}, which this broker does not support")
        from oncelog.handlers.cluster.versions import unsupported_version

        slot = connection.reserve()
        slot.chunks = encode_response(header.correlation_id, API_VERSIONS_KEY, 0, unsupported_version())
        self._flush(connection)

    def _context(self, connection: Connection, header: RequestHeader) -> Context:
        ports, access = self._ports, self._access
        # By position: one is made for each request, and keywords would take three times as long.
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
            self._answered_tasks -= task.is_answered
            self._failed(task.connection, task.slot, task.api.name, failure)
            return
        if isinstance(wait, Answer):
            self._answer_first(task, wait.response)
        else:
            self._park(task, wait)

    def _answer_first(self, task: RequestTask[Connection], response: Message) -> None:
        """Finish a task, and let another do the rest of its handler; with many of those, answer at the end."""
        if self._answered_tasks >= MAX_ANSWERED_TASKS:
            task.response = response
            self._advance(task, None, None)
            return
        self._answered_tasks += 1
        api, connection = task.api, task.connection
        rest = RequestTask(task.steps, api, task.correlation_id, task.context, connection, Slot(), task.started_ms)
        rest.is_answered = True
        self._finish(task, response)
        self._advance(rest, None, None)

    def _park(self, task: RequestTask[Connection], wait: Any) -> None:
        connection = task.connection
        task.waiting, task.wait = True, wait
        task.slot.held = wait.holds_connection
        if wait.holds_connection and connection.is_newest(task.slot):
            connection.holder = task
        try:
            self._parking[type(wait)](task, wait)
            if not connection.open or connection.half_closed:
                task.client_closed(may_read=connection.open)
            connection.yield_to_postponed()
        except Exception as failure:  # noqa: BLE001 - as in _decide
            task.waiting = False
            self._answered_tasks -= task.is_answered
            self._failed(task.connection, task.slot, task.api.name, failure)

    def _finish(self, task: RequestTask[Connection], response: Message | LoginAnswer | LoginEnded | None) -> None:
        if task.is_answered:
            self._answered_tasks -= 1
            return
        response = task.response or response
        if isinstance(response, (LoginAnswer, LoginEnded)):
            self._conclude_login(task.connection, task.slot, response)
            return
        if response is not None and task.connection.open and is_large(response):
            task.steps = encoded_in_slices(response, task.context.version)
            self._advance(task, None, None)
            return
        self._answer(task, response)

    def _answer(self, task: RequestTask[Connection], response: Message | None) -> None:
        """Fill a task's slot. None: the request has no response (Produce with acks=0)."""
        api, context, connection = task.api, task.context, task.connection
        try:
            throttle_ms = self.throttling.answered(api.key, context, response) if self._quotas.enabled else 0
            if response is None or not connection.open:
                task.slot.chunks = ()
            else:
                chunks = encode_response(task.correlation_id, api.key, context.version, response)
                task.slot.chunks = chunks
                if api.key in _FETCH_KEYS:
                    size_of = _range_size if api.handler in _FETCHES_OF_RANGES else chunk_size
                    self.traffic.record_bytes_out += sum(map(size_of, chunks))
            if throttle_ms:
                self.mutes.mute(connection, throttle_ms)
            self._flush(connection)
        except Exception as failure:  # noqa: BLE001 - as in _decide; its version may be unable to encode the response
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

    def _failed(self, connection: Connection, slot: Slot | None, description: str, error: Exception) -> None:
        if isinstance(error, InvariantViolation):
            self._outbox.effects.append(Fatal(str(error)))
        elif isinstance(error, PeerError):
            self._refuse(connection, slot, str(error))
        else:
            trace = "".join(traceback.format_exception(error, chain=False))[-MAX_TRACE:]
            self._outbox.effects.append(Report("error", f"{description} failed; its connection is closed", trace))
            self._refuse(connection, slot, None)

    def _refuse(self, connection: Connection, slot: Slot | None, reason: str | None) -> None:
        """Close a connection after answering earlier requests, as Apache Kafka does."""
        connection.refuse(slot, reason)
        self._flush(connection)
