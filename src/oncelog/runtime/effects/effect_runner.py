"""Drives a node: carries out its effects, and hands their completions back as events. Alone calls ``Node.handle``.

Three groups of workers, so that none delays another: syncs and cold reads in parallel, jobs (compaction, deletes) one
at a time, and commits to the coordination tree one at a time, in order.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
import traceback
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from oncelog.base.notation.log_lines import log_with_trace
from oncelog.node.cluster import tree_access
from oncelog.node.kernel.events import (
    AccessLogged,
    Audit,
    Authenticated,
    Close,
    ConnectToBroker,
    Continue,
    Continued,
    DeadlineReached,
    DisconnectFromBroker,
    Effect,
    Event,
    Fatal,
    JobFinished,
    LoadMetadata,
    MetadataChanged,
    MetadataLoaded,
    Pause,
    ReadTree,
    Report,
    RequestReceived,
    Resume,
    RunJob,
    Send,
    SendToBroker,
    SettleMetadata,
    StoodStill,
    StopListening,
    Stopped,
    Sync,
    Synced,
    WriteMetadata,
)
from oncelog.ports import Buffer, Clock, CommittedChange
from oncelog.runtime.effects.broker_sockets import BrokerSockets, MakeSockets
from oncelog.runtime.effects.pause_detection import PauseWatch
from oncelog.runtime.effects.peer import Peer
from oncelog.runtime.workers import Workers

if TYPE_CHECKING:
    from oncelog.node.assembly import Outside, Registration
    from oncelog.node.node import Node
    from oncelog.node.observation.flight_recorder import RecordedNode
    from oncelog.runtime.data.audit_log import AuditLog

SYNC_WORKERS: Final = 8
_LOG: Final = logging.getLogger("oncelog.broker")
AUTHORIZER_LOG: Final = "oncelog.authorizer"
_ACCESS_LOG: Final = logging.getLogger(AUTHORIZER_LOG)
# The clock may be moved ahead during a sleep; deadlines are then late by at most this.
_LONGEST_SLEEP_S: Final = 1.0


def _log_access(effect: AccessLogged) -> None:
    _ACCESS_LOG.log(logging.DEBUG if effect.level == "debug" else logging.INFO, "%s", effect.line)


class EffectRunner:
    def __init__(
        self,
        node: Node | RecordedNode,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        outside: Outside,
        registration: Registration,
        sockets: MakeSockets = BrokerSockets,
    ) -> None:
        self._node = node
        self._quotas = node.cluster.quotas
        self._loop = loop
        self._clock = clock
        self._coordination = outside.coordination
        self._registration = registration
        self._alarm: asyncio.TimerHandle | None = None
        self._alarm_ms: int | None = None
        self._ending = False
        self._continues = 0
        self.connections: dict[int, Peer] = {}
        self.before_sync: Callable[[], None] = lambda: None
        """Called on the worker before each sync; tests of slow disks block or raise here."""
        self.stop_listening: Callable[[], None] = lambda: None
        """Stops accepting connections; set by the server."""
        self.stopped: asyncio.Future[str | None] = loop.create_future()
        """Done when the node has stopped: None after a clean shutdown, otherwise the reason."""
        self.brokers = sockets(loop, self.dispatch)
        self.disk = Workers(loop, SYNC_WORKERS, "disk")
        # One at a time, so that maintenance takes at most one core.
        self._jobs = Workers(loop, 1, "jobs")
        # One thread keeps the commits in order.
        self._metadata = Workers(loop, 1, "metadata")
        session_ms = int(node.cluster.config.get("zookeeper.session.timeout.ms"))
        longest_ms = partial(node.liveness.longest_pause_ms, session_ms)
        self.pause_watch = PauseWatch(loop, longest_ms, lambda ms: self.dispatch(StoodStill(ms)))
        self._files = outside.files
        self._audit: AuditLog | None = None
        self._carry_out: dict[type, Callable[[Any], None]] = {
            Send: self._send,
            Close: self._close,
            Authenticated: self._authenticated,
            Pause: self._pause,
            Resume: self._resume,
            Sync: self._sync,
            RunJob: self._run_job,
            WriteMetadata: self._write_metadata,
            SettleMetadata: self._settle_metadata,
            ReadTree: self._read_tree,
            LoadMetadata: self._load_metadata,
            ConnectToBroker: self.brokers.connect,
            SendToBroker: self.brokers.send,
            DisconnectFromBroker: self.brokers.disconnect,
            Continue: self._continue,
            Report: self._report,
            Audit: self._write_audit,
            AccessLogged: _log_access,
            Fatal: self._fatal,
            StopListening: self._stop_listening,
            Stopped: self._stop,
        }

    def dispatch(self, event: Event) -> None:
        """Hand an event to the node and carry out its effects. No effect once the node has stopped."""
        if self.stopped.done():
            return
        # First: the events that were due during a pause come in any order.
        self.pause_watch.check()
        self.carry_out(self._node.handle(event, self._clock.now_ms()))

    def receive(self, connection_id: int, frame: Buffer, spent_ns: int) -> int:
        """Hand in a request, with the time that earlier requests took; returns the time of this one, 0 without a time
        quota."""
        if not self._quotas.measures_time:
            self.dispatch(RequestReceived(connection_id, frame))
            return 0
        started_ns = time.perf_counter_ns()
        self.dispatch(RequestReceived(connection_id, frame, spent_ns))
        return time.perf_counter_ns() - started_ns

    def carry_out(self, effects: list[Effect]) -> None:
        carry_out = self._carry_out
        try:
            for effect in effects:
                carry_out[type(effect)](effect)
            self._set_alarm()
        except Exception:  # noqa: BLE001 - the remaining effects, syncs among them, are lost: the node must not go on
            self._fatal(Fatal(traceback.format_exc()))

    def backlog_bytes(self, connection_id: int) -> int:
        return self._node.connections.backlog_bytes(connection_id)

    async def settle(self) -> None:
        """Wait until the workers are idle and their results are handled."""
        while self._continues or any(workers.is_busy() for workers in (self.disk, self._jobs, self._metadata)):
            await asyncio.sleep(0 if self._continues else 0.0005)
            if self.stopped.done():
                return
        await asyncio.sleep(0)

    def shut(self) -> None:
        """Stop the workers once their queues are empty; a running job ends after its present slice."""
        self._ending = True
        self.brokers.close()
        self.pause_watch.stop()
        if self._alarm is not None:
            self._alarm.cancel()
        if self._audit is not None:
            self._audit.write_repeats()
        for workers in (self.disk, self._jobs, self._metadata):
            workers.stop()

    def _set_alarm(self) -> None:
        # An earlier alarm is kept: most deadlines are cancelled long before they come, and resetting the alarm for each
        # would be costly.
        at_ms, alarm_ms = self._node.next_deadline_ms(), self._alarm_ms
        if at_ms is None or (alarm_ms is not None and alarm_ms <= at_ms):
            return
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm_ms = at_ms
        delay_s = min(max(0, at_ms - self._clock.now_ms()) / 1000, _LONGEST_SLEEP_S)
        self._alarm = self._loop.call_later(delay_s, self._deadline_reached)

    def clock_jumped(self) -> None:
        """Reset the alarm after the clock was moved ahead."""
        self._alarm_ms = None
        self._set_alarm()

    def _deadline_reached(self) -> None:
        self._alarm = None
        self._alarm_ms = None
        self.dispatch(DeadlineReached())

    def _send(self, effect: Send) -> None:
        connection = self.connections.get(effect.connection_id)
        if connection is not None:
            connection.send(effect.chunks)

    def _close(self, effect: Close) -> None:
        connection = self.connections.get(effect.connection_id)
        if connection is not None:
            if effect.reason:
                _LOG.info("closing connection from %s: %s", connection.peer, effect.reason)
            connection.close_after_sending()

    def _authenticated(self, effect: Authenticated) -> None:
        connection = self.connections.get(effect.connection_id)
        if connection is not None:
            connection.authenticated()

    def _pause(self, effect: Pause) -> None:
        connection = self.connections.get(effect.connection_id)
        if connection is not None:
            connection.pause_reading("node")

    def _resume(self, effect: Resume) -> None:
        connection = self.connections.get(effect.connection_id)
        if connection is not None:
            connection.resume_reading("node")

    def _sync(self, effect: Sync) -> None:
        def work() -> Callable[[], None]:
            failure: Exception | None = None
            try:
                self.before_sync()
                for file in effect.files:
                    file.sync()
            except Exception as error:  # noqa: BLE001 - any failure of a sync is reported to the node
                failure = error
            return lambda: self.dispatch(Synced(effect.token, failure))

        self.disk.submit(work)

    def _run_job(self, effect: RunJob) -> None:
        def work() -> Callable[[], None]:
            failure = self._drain(effect.slices)
            return lambda: self.dispatch(JobFinished(effect.token, failure))

        (self.disk if effect.waited_for else self._jobs).submit(work)

    def follow_metadata(self, after: int) -> None:
        """Deliver committed changes after a position to the node, in order, and the end of the session."""
        self._coordination.follow(after, self._metadata_changed, self._session_ended)

    def _metadata_changed(self, change: CommittedChange) -> None:
        """Called on any thread."""
        self._dispatch_soon(MetadataChanged(change.position, change.token, change.changes))

    def _session_ended(self) -> None:
        """Called on any thread."""
        self._dispatch_soon(tree_access.SESSION_LOST)

    def _dispatch_soon(self, event: Event) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self.dispatch, event)

    def _write_metadata(self, effect: WriteMetadata) -> None:
        self._access_tree(lambda: tree_access.write(self._coordination, effect))

    def _settle_metadata(self, effect: SettleMetadata) -> None:
        self._access_tree(lambda: tree_access.settle(self._coordination, effect))

    def _read_tree(self, effect: ReadTree) -> None:
        self._access_tree(lambda: tree_access.read_nodes(self._coordination, effect))

    def _load_metadata(self, effect: LoadMetadata) -> None:
        def work() -> Callable[[], None]:
            loaded = tree_access.load(self._coordination, effect, self._registration, self._clock.now_ms())
            return lambda: self._metadata_loaded(loaded)

        self._metadata.submit(work)

    def _metadata_loaded(self, event: MetadataLoaded) -> None:
        self.dispatch(event)
        if event.nodes is not None:
            self.follow_metadata(event.position)

    def _access_tree(self, access: Callable[[], Event]) -> None:
        def work() -> Callable[[], None]:
            event = access()
            return lambda: self.dispatch(event)

        self._metadata.submit(work)

    def _continue(self, _effect: Continue) -> None:
        self._continues += 1
        # Scheduled twice, so that events which arrived meanwhile come first.
        self._loop.call_soon(self._loop.call_soon, self._continued)

    def _continued(self) -> None:
        self._continues -= 1
        self.dispatch(Continued())

    def _write_audit(self, effect: Audit) -> None:
        if self._audit is None:
            from oncelog.runtime.data.audit_log import AuditLog  # most brokers write no audit records

            self._audit = AuditLog(self._files, self.disk, self._audit_max_bytes, self._loop.call_later)
        self._audit.write(effect)

    def _audit_max_bytes(self) -> int:
        return int(self._node.cluster.config.get("oncelog.audit.max.bytes"))

    def _report(self, effect: Report) -> None:
        log_with_trace(_LOG, logging.getLevelName(effect.level.upper()), effect.message, effect.trace)

    def _stop_listening(self, _effect: StopListening) -> None:
        self.stop_listening()
        self._loop.call_soon(self._end_reading)  # the other effects of this event come first

    def _end_reading(self) -> None:
        for connection in list(self.connections.values()):
            connection.end_reading()

    def _fatal(self, effect: Fatal) -> None:
        trace, _, reason = effect.message.rstrip("\n").rpartition("\n")
        log_with_trace(_LOG, logging.CRITICAL, f"stopping: {reason}", trace)
        if not self.stopped.done():
            self.stopped.set_result(effect.message)

    def _stop(self, _effect: Stopped) -> None:
        if not self.stopped.done():
            self.stopped.set_result(None)

    def _drain(self, slices: Iterator[None]) -> Exception | None:
        """Run a job to its end or, while the broker stops, to the end of a slice; the next start removes leftovers."""
        try:
            for _ in slices:
                if self._ending:
                    break
        except Exception as error:  # noqa: BLE001 - a failed job is reported to the node
            return error
        return None
