"""A simulated machine with one broker: the production node over a faulty disk, a slow worker pool and a network.

It does what ``runtime`` does: hands events to ``Node.handle`` and carries out the effects, each taking its own virtual
time. It knows how a process dies (the page cache stays), how a machine dies (what was not synced may be lost), in the
middle of an event too, and how both start again. Nothing of a dead process happens any more: every completion is bound
to the incarnation that asked for it.
"""

from __future__ import annotations

import errno
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from oncelog.base.errors import PeerError
from oncelog.coordination.memory import MemorySession, MemoryTree
from oncelog.handlers.support.audit import AuditRecord
from oncelog.node.assembly import Outside, StartRefused, assemble
from oncelog.node.events import (
    Audit,
    Close,
    ConnectionClosed,
    ConnectionOpened,
    Continue,
    Continued,
    DeadlineReached,
    Effect,
    Event,
    Fatal,
    JobFinished,
    MetadataWritten,
    Pause,
    Report,
    RequestReceived,
    Resume,
    RunJob,
    Send,
    Shutdown,
    Stopped,
    Sync,
    Synced,
    WriteMetadata,
)
from oncelog.node.node import Node
from oncelog.node.settings import read_settings
from oncelog.ports import Conflict, OpenFile
from oncelog.sim.files import MemoryFiles, PowerLost, ProcessKilled
from oncelog.sim.kernel import Kernel, ScheduledCall
from oncelog.sim.network import Address, Connection, Network
from oncelog.sim.wire_tap import NoTap, WireTap
from oncelog.storage.file_range import FileRange
from oncelog.wire.framing import FrameSplitter, request_limit

LONGEST_SHUTDOWN_MS: Final = 5_000


@dataclass(frozen=True, slots=True)
class Latencies:
    """How long this machine takes for things, in microseconds: (least, most)."""

    sync_us: tuple[int, int] = (100, 3_000)
    metadata_us: tuple[int, int] = (200, 5_000)
    slice_us: tuple[int, int] = (50, 2_000)
    read_us: tuple[int, int] = (0, 300)


@dataclass(slots=True)
class SeededEntropy:
    """The Entropy port over a stream of chance."""

    kernel: Kernel

    def token(self, size: int) -> bytes:
        return self.kernel.entropy("tokens").randbytes(size)


@dataclass(slots=True)
class _Process:
    """One life of the broker's process: what is bound to it dies with it."""

    node: Node
    session: MemorySession
    alive: bool = True
    peers: dict[int, _Peer] = field(default_factory=dict)
    alarm: ScheduledCall | None = None
    alarm_ms: int | None = None
    facts: deque[WriteMetadata] = field(default_factory=deque)
    stopping: bool = False


class _Peer:
    """The server's end of a connection."""

    __slots__ = ("_backlog", "_host", "_paused", "_process", "_splitter", "connection", "queue")

    def __init__(self, host: BrokerHost, process: _Process, connection: Connection) -> None:
        self._host = host
        self._process = process
        self.connection = connection
        self._splitter = FrameSplitter(host.limit)
        self._paused = False
        self._backlog: list[bytes] = []
        self.queue: deque[Any] = deque()
        """Chunks that are not read and sent yet."""

    def received(self, data: bytes) -> None:
        """Bytes came: frames go to the node unless it wants no more of this peer."""
        if self._paused:
            self._backlog.append(data)
            return
        try:
            frames = self._splitter.feed(data)
        except PeerError:
            self._host.drop(self)
            return
        for frame in frames:
            self._host.tap.received(self.connection, frame)
            self._host.dispatch(self._process, RequestReceived(self.connection.number, frame))

    def closed(self) -> None:
        """The client is gone."""
        if self._process.peers.pop(self.connection.number, None) is not None:
            self._host.tap.disconnected(self.connection)
            self._host.dispatch(self._process, ConnectionClosed(self.connection.number))

    def pause(self) -> None:
        """Take nothing more for now."""
        self._paused = True

    def resume(self) -> None:
        """Go on with what has come meanwhile."""
        self._paused = False
        waiting, self._backlog = self._backlog, []
        for data in waiting:
            self.received(data)


class BrokerHost:
    """See the module. ``config`` holds Kafka's keys; the machine's clock may be wrong by ``clock_ms``."""

    def __init__(
        self,
        kernel: Kernel,
        network: Network,
        tree: MemoryTree,
        config: Mapping[str, str],
        *,
        broker_id: int = 1,
        latencies: Latencies | None = None,
    ) -> None:
        self.kernel = kernel
        self.network = network
        self.tree = tree
        self.broker_id = broker_id
        self.address: Address = (f"broker-{broker_id}", 9092)
        self.settings = read_settings({**config, "node.id": str(broker_id)}, data_directory="data", listen=self.address)
        broker_config = self.settings.config
        self.limit = request_limit(
            int(broker_config.get("socket.request.max.bytes")), int(broker_config.get("oncelog.request.max.bytes"))
        )
        self.files = MemoryFiles(now_ms=self.now_ms)
        self.usual_latencies = latencies or Latencies()
        self.latencies = self.usual_latencies
        self.on_death: Callable[[bool], None] = lambda power_lost: None
        """Told when the process is gone, and whether the power is, before it starts again."""
        self.clock_ms = 0
        """How far this machine's clock is ahead."""
        self.tap: WireTap = NoTap()
        self.reports: list[str] = []
        self.audits: list[AuditRecord] = []
        """What the broker has written into its audit log."""
        self.deaths: list[str] = []
        """Why the broker stopped by itself, each time."""
        self.stays_down = False
        """Whether somebody else will start it again; otherwise it comes up by itself after it died."""
        self._is_coming_back = False
        self._entropy = kernel.entropy(f"broker {broker_id}")
        self._process: _Process | None = None
        self._frozen: list[tuple[_Process, Event]] | None = None

    def now_ms(self) -> int:
        """This machine's wall time."""
        return self.kernel.now_ms() + self.clock_ms

    @property
    def is_up(self) -> bool:
        """Whether the broker's process runs."""
        return self._process is not None

    @property
    def node(self) -> Node:
        """The running node."""
        assert self._process is not None
        return self._process.node

    # Life and death

    def start(self) -> bool:
        """Start the process; False when it died at once (the power may fail in recovery, too)."""
        assert self._process is None
        session = self.tree.session()
        outside = Outside(self.files, session, SeededEntropy(self.kernel))
        try:
            node, reports = assemble(outside, self.settings, self.address, self.now_ms())
            self.kernel.trace(f"broker {self.broker_id} starts")
            self._process = process = _Process(node, session)
            self.network.listen(self.address, self._accept)
            self._carry_out(process, [*reports, *node.start(self.now_ms())])
        except (PowerLost, OSError, StartRefused) as error:
            self.deaths.append(f"at start: {error!r}")
            session.close()
            self._bury(silent=isinstance(error, PowerLost) and not self._was_killed(error))
            return False
        return True

    def start_until_up(self) -> None:
        """Start; when it dies at once, again after a while, as a service manager does."""
        if not self.is_up and not self.stays_down and not self.start():
            self._come_back()

    def _come_back(self) -> None:
        """Once, however many see it die: a start that fails half-way is a death and a failed start."""
        if not self._is_coming_back:
            self._is_coming_back = True
            self.kernel.after(self._entropy.randint(10_000, 1_000_000), self._return)

    def _return(self) -> None:
        self._is_coming_back = False
        self.start_until_up()

    def freeze(self) -> None:
        """Stand still: what happens meanwhile is taken in at :meth:`thaw`."""
        if self._frozen is None:
            self._frozen = []

    def thaw(self) -> None:
        """Go on."""
        waiting, self._frozen = self._frozen, None
        for process, event in waiting or ():
            self.dispatch(process, event)

    def kill(self) -> None:
        """End the process; what it wrote is in the page cache."""
        self.kernel.trace(f"broker {self.broker_id} killed")
        self._bury(silent=False)

    def lose_power(self) -> None:
        """End the machine: what was not synced may be lost, or torn."""
        self.kernel.trace(f"broker {self.broker_id} lost power")
        self._bury(silent=True)

    def _end(self, end: PowerLost) -> None:
        """What files have raised in the middle of an event."""
        if self._was_killed(end):
            self.kill()
        else:
            self.lose_power()

    def _was_killed(self, end: BaseException) -> bool:
        """Whether only the process has ended; then the next one may go on."""
        if not isinstance(end, ProcessKilled):
            return False
        self.files.let_process_die()
        return True

    def shut_down(self) -> None:
        """End the process cleanly; it takes a while (see ``is_up``)."""
        if self._process is not None and not self._process.stopping:
            self._process.stopping = True
            self.dispatch(self._process, Shutdown(self.now_ms() + LONGEST_SHUTDOWN_MS))

    def drop(self, peer: _Peer) -> None:
        """Close a connection whose client is not to be listened to any more."""
        peer.closed()
        peer.connection.close()

    def _bury(self, *, silent: bool) -> None:
        process, self._process = self._process, None
        self.network.stop_listening(self.address, silent=silent)
        self._frozen = None
        if silent:
            self.files.crash(self._entropy.getrandbits(64))
        if process is None:
            if silent:  # in the middle of a start: the kill before it may have kept what this has not
                self.tap.died(power_lost=True)
            return
        if not self.stays_down:
            self._come_back()
        process.alive = False
        self.tap.died(power_lost=silent)
        if process.alarm is not None:
            process.alarm.cancel()
        process.session.close()
        for peer in list(process.peers.values()):
            peer.connection.server_died(silent_us=self._entropy.randint(0, 2_000_000) if silent else 0)
        self.on_death(silent)

    # Events

    def dispatch(self, process: _Process, event: Event) -> None:
        """Hand in an event and carry out what follows, unless the process is gone."""
        if not process.alive:
            return
        if self._frozen is not None:
            self._frozen.append((process, event))
            return
        try:
            self._carry_out(process, process.node.handle(event, self.now_ms()))
        except PowerLost as end:
            self._end(end)

    def _accept(self, connection: Connection) -> _Peer:
        process = self._process
        assert process is not None
        peer = process.peers[connection.number] = _Peer(self, process, connection)
        self.dispatch(process, ConnectionOpened(connection.number, f"/{connection.client}", self.address))
        return peer

    def _alarm(self, process: _Process) -> None:
        process.alarm = process.alarm_ms = None
        self.dispatch(process, DeadlineReached())

    def set_alarm(self) -> None:
        """Look at the clock again: it was moved."""
        if self._process is not None:
            self._process.alarm_ms = None
            self._set_alarm(self._process)

    def _set_alarm(self, process: _Process) -> None:
        at_ms = process.node.next_deadline_ms()
        if at_ms == process.alarm_ms:
            return
        if process.alarm is not None:
            process.alarm.cancel()
            process.alarm = None
        process.alarm_ms = at_ms
        if at_ms is not None:
            delay_us = max(0, at_ms - self.now_ms()) * 1000
            process.alarm = self.kernel.after(delay_us, self._alarm, process)

    # Effects

    def _carry_out(self, process: _Process, effects: list[Effect]) -> None:
        for effect in effects:
            if not process.alive:
                return
            _CARRY_OUT[type(effect)](self, process, effect)
        if process.alive:
            self._set_alarm(process)

    def _takes(self, span_us: tuple[int, int]) -> int:
        return self._entropy.randint(*span_us)

    def _send(self, process: _Process, effect: Send) -> None:
        peer = process.peers.get(effect.connection_id)
        if peer is None:
            return
        later = bool(peer.queue) or any(isinstance(chunk, FileRange) for chunk in effect.chunks)
        peer.queue.append(effect.chunks)
        if not later:
            self._flush(process, peer)
        elif len(peer.queue) == 1:  # ranges of files are read when the socket has room, which may be later
            self.kernel.after(self._takes(self.latencies.read_us), self._flush, process, peer)

    def _flush(self, process: _Process, peer: _Peer) -> None:
        while peer.queue and process.alive:
            chunks = peer.queue.popleft()
            try:
                data = b"".join(
                    chunk.file.read(chunk.position, chunk.size_bytes) if isinstance(chunk, FileRange) else bytes(chunk)
                    for chunk in chunks
                )
            except OSError:
                self.drop(peer)
                return
            self.tap.sent(peer.connection, data)
            peer.connection.send(data)

    def _close(self, process: _Process, effect: Close) -> None:
        peer = process.peers.get(effect.connection_id)
        if peer is not None:
            self._flush(process, peer)
            self.drop(peer)

    def _pause(self, process: _Process, effect: Pause) -> None:
        if effect.connection_id in process.peers:
            process.peers[effect.connection_id].pause()

    def _resume(self, process: _Process, effect: Resume) -> None:
        if effect.connection_id in process.peers:
            self.kernel.soon(process.peers[effect.connection_id].resume)

    def _sync(self, process: _Process, effect: Sync) -> None:
        self.kernel.after(self._takes(self.latencies.sync_us), self._synced, process, effect)

    def _synced(self, process: _Process, effect: Sync) -> None:
        if not process.alive:
            return
        failure: Exception | None = None
        try:
            for file in effect.files:
                self._sync_file(file)
        except PowerLost as end:
            self._end(end)
            return
        except OSError as error:
            failure = error
        self.kernel.trace(f"synced {effect.token} {failure!r}" if failure else f"synced {effect.token}")
        self.dispatch(process, Synced(effect.token, failure))

    @staticmethod
    def _sync_file(file: OpenFile) -> None:
        file.sync()

    def _run_job(self, process: _Process, effect: RunJob) -> None:
        self.kernel.after(self._takes(self.latencies.slice_us), self._slice, process, effect.token, effect.slices)

    def _slice(self, process: _Process, token: int, slices: Iterator[None]) -> None:
        if not process.alive:
            return
        try:
            next(slices)
        except StopIteration:
            self.dispatch(process, JobFinished(token))
        except PowerLost as end:
            self._end(end)
        except Exception as error:  # noqa: BLE001 - a failed job is told to the node, as the runtime does
            self.dispatch(process, JobFinished(token, error))
        else:
            self.kernel.after(self._takes(self.latencies.slice_us), self._slice, process, token, slices)

    def _write_facts(self, process: _Process, effect: WriteMetadata) -> None:
        process.facts.append(effect)
        if len(process.facts) == 1:
            self.kernel.after(self._takes(self.latencies.metadata_us), self._facts_written, process)

    def _facts_written(self, process: _Process) -> None:
        if not process.alive:
            return
        effect = process.facts.popleft()
        outcome = MetadataWritten(effect.token)
        try:
            process.session.commit(effect.operations)
        except Conflict:
            outcome.conflict = True
        if process.facts:
            self.kernel.after(self._takes(self.latencies.metadata_us), self._facts_written, process)
        self.dispatch(process, outcome)

    def _continue(self, process: _Process, _effect: Continue) -> None:
        self.kernel.soon(self.dispatch, process, Continued())

    def _report(self, _process: _Process, effect: Report) -> None:
        self.reports.append(f"{effect.level}: {effect.message}")
        self.kernel.trace(f"report {effect.level}: {effect.message}")

    def _audit(self, _process: _Process, effect: Audit) -> None:
        self.audits.append(effect.record)
        self.kernel.trace(f"audit {effect.record.action} {effect.record.outcome}")

    def _fatal(self, _process: _Process, effect: Fatal) -> None:
        self.kernel.trace(f"broker {self.broker_id} stops: {effect.message.splitlines()[-1]}")
        self.deaths.append(effect.message)
        self._bury(silent=False)

    def _stop(self, process: _Process, _effect: Stopped) -> None:
        try:
            process.node.logs.close(process.node.cluster.broker_epoch)
        except PowerLost as end:
            self._end(end)
            return
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EIO):
                raise
            self.deaths.append(f"at the end: {error}")
        self.kernel.trace(f"broker {self.broker_id} stopped")
        self._bury(silent=False)


_CARRY_OUT: Final[dict[type, Callable[[BrokerHost, _Process, Any], None]]] = {
    Send: BrokerHost._send,
    Close: BrokerHost._close,
    Pause: BrokerHost._pause,
    Resume: BrokerHost._resume,
    Sync: BrokerHost._sync,
    RunJob: BrokerHost._run_job,
    WriteMetadata: BrokerHost._write_facts,
    Continue: BrokerHost._continue,
    Report: BrokerHost._report,
    Audit: BrokerHost._audit,
    Fatal: BrokerHost._fatal,
    Stopped: BrokerHost._stop,
}
