"""One life of a simulated broker process: passes events to ``Node.handle`` and executes the effects.

It does the work of ``runtime``, each effect in its own virtual time. A process may also die within an event.
Completions are bound to their process: nothing of a dead one happens later.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from typing import Any, Final

from oncelog.base.security import ANONYMOUS, Endpoint
from oncelog.node.assembly import Assembled
from oncelog.node.kernel.events import (
    AccessLogged,
    Audit,
    Authenticated,
    Close,
    ConnectionClosed,
    ConnectionHalfClosed,
    ConnectionOpened,
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
from oncelog.ports import OpenFile
from oncelog.sim.virtual.broker_connections import OutboundLinks, ServerConnection
from oncelog.sim.virtual.broker_records import BrokerRecords, KilledAtAnswer, ResponseTrigger
from oncelog.sim.virtual.files import PowerLost
from oncelog.sim.virtual.kernel import ScheduledCall
from oncelog.sim.virtual.machine import Machine
from oncelog.sim.virtual.network.connection import Address, Connection
from oncelog.sim.virtual.network.network import Network
from oncelog.sim.virtual.tree_accesses import TreeAccess, TreeAccesses
from oncelog.sim.virtual.tree_session import TreeSession
from oncelog.storage.file_range import FileRange
from oncelog.wire.framing import FrameLimit


class BrokerProcess:
    """One life of a broker's process. ``ended`` is called when it dies by itself, with the exception of its files or
    None.
    """

    def __init__(
        self,
        machine: Machine,
        network: Network,
        assembled: Assembled,
        session: TreeSession,
        address: Address,
        endpoint: Endpoint,
        limit: FrameLimit,
        records: BrokerRecords,
        ended: Callable[[PowerLost | None], None],
    ) -> None:
        self.machine = machine
        self.node = assembled.node
        self.session = session
        self.address = address
        # The listener of all clients.
        self.endpoint = endpoint
        # The largest request, by API key and version.
        self.limit = limit
        self.records = records
        self.alive = True
        self.stopping = False
        # Clients by connection number.
        self.peers: dict[int, ServerConnection] = {}
        self._ended = ended
        self._kernel = machine.kernel
        self._alarm: ScheduledCall | None = None
        self._alarm_ms: int | None = None
        self._assembled = assembled
        self._tree = TreeAccesses(session, assembled.registration, machine.now_ms, self.dispatch)
        self._wires = OutboundLinks(network, machine.name, self.dispatch)
        # Events that arrived while the machine was frozen.
        self._backlog: list[Event] = []

    def start(self) -> None:
        self.carry_out([*self._assembled.reports, *self.node.start(self.machine.now_ms())])
        self._tree.follow(self.node.cluster.position)

    def dispatch(self, event: Event) -> None:
        """Handle an event and execute its effects; after the thaw if the machine is frozen, never if the process is
        dead.
        """
        if not self.alive:
            return
        if self.machine.frozen:
            self._backlog.append(event)
            return
        try:
            self.carry_out(self.node.handle(event, self.machine.now_ms()))
        except PowerLost as end:
            self._ended(end)

    def thaw(self, frozen_ms: int) -> None:
        backlog, self._backlog = self._backlog, []
        # The node learns of a long freeze first, as from `runtime`.
        session_us = self.session.timeout_us
        if session_us is not None and frozen_ms > self.node.liveness.longest_pause_ms(session_us // 1_000):
            self.dispatch(StoodStill(frozen_ms))
        for event in backlog:
            self.dispatch(event)

    def end(self, disconnect: Callable[[Connection], None]) -> None:
        """The process is gone. ``disconnect`` breaks each of its connections."""
        if self._alarm is not None:
            self._alarm.cancel()
        self._wires.end()
        if self.stopping:
            self.session.close()
        else:
            self.session.abandon()
        for peer in list(self.peers.values()):
            disconnect(peer.connection)

    def accept(self, connection: Connection) -> ServerConnection:
        peer = self.peers[connection.number] = ServerConnection(self, connection, self.limit)
        name, protocol = self.endpoint.listener_name, self.endpoint.protocol
        self.dispatch(
            ConnectionOpened(connection.number, f"/{connection.client}", self.address, ANONYMOUS, name, protocol)
        )
        return peer

    def frame_received(self, peer: ServerConnection, frame: memoryview | bytes) -> None:
        # The process may have died in an earlier frame of the same bytes.
        if not self.alive:
            return
        if self.records.response_trigger is not None:
            self.records.response_trigger.received(peer.connection.number, frame)
        self.records.tap.received(peer.connection, frame)
        self.dispatch(RequestReceived(peer.connection.number, frame))

    def client_closed(self, peer: ServerConnection) -> None:
        if self.peers.pop(peer.connection.number, None) is not None:
            self.records.tap.disconnected(peer.connection)
            self.dispatch(ConnectionClosed(peer.connection.number))

    def clock_moved(self) -> None:
        # Reset the alarm: the machine's clock was set.
        self._alarm_ms = None
        self._set_alarm()

    def _set_alarm(self) -> None:
        at_ms = self.node.next_deadline_ms()
        if at_ms == self._alarm_ms:
            return
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        self._alarm_ms = at_ms
        if at_ms is not None:
            delay_us = max(0, at_ms - self.machine.now_ms()) * 1000
            self._alarm = self._kernel.after(delay_us, self._deadline_reached)

    def _deadline_reached(self) -> None:
        self._alarm = self._alarm_ms = None
        self.dispatch(DeadlineReached())

    def carry_out(self, effects: list[Effect]) -> None:
        for effect in effects:
            if not self.alive:
                return
            _EXECUTORS[type(effect)](self, effect)
        if self.alive:
            self._set_alarm()

    def _send(self, effect: Send) -> None:
        peer = self.peers.get(effect.connection_id)
        if peer is None:
            return
        later = bool(peer.queue) or any(isinstance(chunk, FileRange) for chunk in effect.chunks)
        peer.queue.append(effect.chunks)
        if not later:
            self._flush(peer)
        elif len(peer.queue) == 1:  # file ranges are read when the socket has room, perhaps later
            self._kernel.after(self.machine.takes(self.machine.latencies.read_us), self._flush, peer)

    def _flush(self, peer: ServerConnection) -> None:
        while peer.queue and self.alive:
            try:
                data = b"".join(map(_bytes_of, peer.queue.popleft()))
            except OSError:
                peer.drop()
                return
            self.records.tap.sent(peer.connection, data)
            peer.connection.send(data)
            if self.records.response_trigger is not None:
                self._trigger_at_response(self.records.response_trigger, peer.connection, data)

    def _trigger_at_response(self, trigger: ResponseTrigger, connection: Connection, data: bytes) -> None:
        if trigger.is_triggered_by(connection.number, data):
            self.records.response_trigger = None
            if not trigger.only_calls:
                self._ended(KilledAtAnswer("at an answer"))
            trigger.killed()

    def _close(self, effect: Close) -> None:
        peer = self.peers.get(effect.connection_id)
        if peer is not None:
            self._flush(peer)
            peer.drop()

    def _authenticated(self, _effect: Authenticated) -> None:
        pass  # here frames have the same limit before and after

    def _pause(self, effect: Pause) -> None:
        if effect.connection_id in self.peers:
            self.peers[effect.connection_id].pause()

    def _resume(self, effect: Resume) -> None:
        if effect.connection_id in self.peers:
            self._kernel.soon(self.peers[effect.connection_id].resume)

    def _sync(self, effect: Sync) -> None:
        self._kernel.after(self.machine.takes(self.machine.latencies.sync_us), self._synced, effect)

    def _synced(self, effect: Sync) -> None:
        if not self.alive:
            return
        failure: Exception | None = None
        try:
            for file in effect.files:
                self._sync_file(file)
        except PowerLost as end:
            self._ended(end)
            return
        except OSError as error:
            failure = error
        self._kernel.trace(f"synced {effect.token} {failure!r}" if failure else f"synced {effect.token}")
        self.dispatch(Synced(effect.token, failure))

    @staticmethod
    def _sync_file(file: OpenFile) -> None:
        file.sync()

    def _run_job(self, effect: RunJob) -> None:
        self._later_slice(effect.token, effect.slices)

    def _later_slice(self, token: int, slices: Iterator[None]) -> None:
        self._kernel.after(self.machine.takes(self.machine.latencies.slice_us), self._slice, token, slices)

    def _slice(self, token: int, slices: Iterator[None]) -> None:
        if not self.alive:
            return
        try:
            next(slices)
        except StopIteration:
            self.dispatch(JobFinished(token))
        except PowerLost as end:
            self._ended(end)
        except Exception as error:  # noqa: BLE001 - the node handles a failed job, as in the runtime
            self.dispatch(JobFinished(token, error))
        else:
            self._later_slice(token, slices)

    def _access_tree(self, effect: TreeAccess) -> None:
        self._tree.add(effect)

    def _connect_to_broker(self, effect: ConnectToBroker) -> None:
        self._wires.connect(effect)

    def _send_to_broker(self, effect: SendToBroker) -> None:
        self._wires.send(effect)

    def _disconnect_from_broker(self, effect: DisconnectFromBroker) -> None:
        self._wires.disconnect(effect)

    def _continue(self, _effect: Continue) -> None:
        self._kernel.soon(self.dispatch, Continued())

    def _report(self, effect: Report) -> None:
        self.records.reports.append(f"{effect.level}: {effect.message}")
        self._kernel.trace(f"report {effect.level}: {effect.message}")

    def _audit(self, effect: Audit) -> None:
        self.records.audits.append(effect.record)
        self._kernel.trace(f"audit {effect.record.action} {effect.record.outcome}")

    def _access_logged(self, effect: AccessLogged) -> None:
        self._kernel.trace(f"access {effect.line}")

    def _fatal(self, effect: Fatal) -> None:
        self._kernel.trace(f"broker {self.records.broker_id} stops: {effect.message.splitlines()[-1]}")
        self.records.deaths.append(effect.message)
        self._ended(None)

    def _stop_listening(self, _effect: StopListening) -> None:
        # Stop reading. Clients may still connect until the process has ended, but get no response.
        for peer in self.peers.values():
            peer.pause()
            self._kernel.soon(self.dispatch, ConnectionHalfClosed(peer.connection.number))

    def _stop(self, _effect: Stopped) -> None:
        try:
            self.node.logs.close(self.node.cluster.broker_epoch)
        except PowerLost as end:
            self._ended(end)
            return
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EIO):
                raise
            self.records.deaths.append(f"at the end: {error}")
        self._kernel.trace(f"broker {self.records.broker_id} stopped")
        self._ended(None)


def _bytes_of(chunk: Any) -> bytes:
    return chunk.file.read(chunk.position, chunk.size_bytes) if isinstance(chunk, FileRange) else bytes(chunk)


_EXECUTORS: Final[dict[type, Callable[[BrokerProcess, Any], None]]] = {
    Send: BrokerProcess._send,
    Close: BrokerProcess._close,
    Authenticated: BrokerProcess._authenticated,
    Pause: BrokerProcess._pause,
    Resume: BrokerProcess._resume,
    Sync: BrokerProcess._sync,
    RunJob: BrokerProcess._run_job,
    WriteMetadata: BrokerProcess._access_tree,
    SettleMetadata: BrokerProcess._access_tree,
    ReadTree: BrokerProcess._access_tree,
    LoadMetadata: BrokerProcess._access_tree,
    ConnectToBroker: BrokerProcess._connect_to_broker,
    SendToBroker: BrokerProcess._send_to_broker,
    DisconnectFromBroker: BrokerProcess._disconnect_from_broker,
    Continue: BrokerProcess._continue,
    Report: BrokerProcess._report,
    Audit: BrokerProcess._audit,
    AccessLogged: BrokerProcess._access_logged,
    Fatal: BrokerProcess._fatal,
    StopListening: BrokerProcess._stop_listening,
    Stopped: BrokerProcess._stop,
}
