"""Drives a Node by hand: virtual time, memory files, a memory tree; syncs and fact writes happen when the test says.

No sockets, no threads: bytes go in as frames, what comes out is decoded with the request's version.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Mapping
from typing import Any

from oncelog.base.ids import BrokerId, uuid_text
from oncelog.base.security import ANONYMOUS, SecurityProtocol
from oncelog.coordination.memory import MemoryTree
from oncelog.core.configs.broker import BrokerConfig
from oncelog.core.configs.topic import TopicConfigs
from oncelog.core.controller.brokers.registration import Registration, register
from oncelog.core.controller.image.cluster_image import load_image
from oncelog.handlers.broker.audit import AuditRecord
from oncelog.node.assembly import set_strays_aside
from oncelog.node.cluster import tree_access
from oncelog.node.kernel.events import (
    AccessLogged,
    Audit,
    BrokerDisconnected,
    Close,
    ConnectionClosed,
    ConnectionHalfClosed,
    ConnectionOpened,
    ConnectToBroker,
    Continue,
    Continued,
    DeadlineReached,
    DisconnectFromBroker,
    Fatal,
    JobFinished,
    LoadMetadata,
    MetadataChanged,
    NodesRead,
    Pause,
    ReadTree,
    Report,
    RequestReceived,
    Resume,
    RunJob,
    Send,
    SendToBroker,
    SettleMetadata,
    Shutdown,
    StopListening,
    Stopped,
    Sync,
    Synced,
    WriteMetadata,
)
from oncelog.node.node import Node
from oncelog.node.replication.partitions import log_config
from oncelog.sim.virtual.files import MemoryFiles
from oncelog.storage.file_range import FileRange
from oncelog.storage.log_directory import LogDirectory
from oncelog.wire.header import RequestHeader, decode_response_header, encode_request

START_MS = 1_700_000_000_000
CLUSTER_ID = uuid_text(bytes(15) + b"\7")


class CountingEntropy:
    """Ids that count up from ``first``: the same in every run."""

    def __init__(self, first: int = 1) -> None:
        self._next = itertools.count(first)

    def token(self, size: int) -> bytes:
        return next(self._next).to_bytes(16, "big")[-size:].rjust(size, b"\1")


class Peer:
    """A client's end of a connection."""

    def __init__(self, driver: Driver, connection_id: int) -> None:
        self.driver = driver
        self.id = connection_id
        self.client_id = "driver"
        self.closed = False
        self.paused = False
        self.responses: deque[Any] = deque()
        self.raw = False
        """True: bytes that come are kept as a frame each, for a client that speaks without headers."""
        self._asked: dict[int, tuple[Any, int]] = {}
        self._next = itertools.count(1)

    def send(self, request, version: int) -> None:
        """Send a request and let the node do what it can."""
        correlation_id = next(self._next)
        self._asked[correlation_id] = (request, version)
        header = RequestHeader(request.API_KEY, version, correlation_id, self.client_id)
        frame = b"".join(bytes(chunk) for chunk in encode_request(header, request))[4:]
        self.send_frame(frame)

    def send_frame(self, frame: bytes) -> None:
        """Send raw bytes as one frame."""
        self.driver.dispatch(RequestReceived(self.id, memoryview(bytearray(frame))))

    def ask(self, request, version: int):
        """Send and return the response, which must have come."""
        self.send(request, version)
        assert self.responses, f"no response to {request}"
        return self.responses.popleft()

    def received(self, chunks) -> None:
        data = b"".join(
            chunk.file.read(chunk.position, chunk.size_bytes) if isinstance(chunk, FileRange) else bytes(chunk)
            for chunk in chunks
        )
        while data:
            size = int.from_bytes(data[:4], "big")
            frame, data = data[4 : 4 + size], data[4 + size :]
            if self.raw:
                self.responses.append(frame)
                continue
            correlation_id = int.from_bytes(frame[:4], "big")
            request, version = self._asked.pop(correlation_id)
            _, position = decode_response_header(frame, request.API_KEY, version)
            self.responses.append(request.response_class().decode(memoryview(frame)[position:], version))


class Driver:
    """One node and its outside world."""

    def __init__(
        self,
        config: Mapping[str, str] | None = None,
        *,
        broker_id: int = 1,
        address: tuple[str, int] = ("localhost", 9092),
        tree: MemoryTree | None = None,
    ) -> None:
        self.broker_id = BrokerId(broker_id)
        self.address = address
        self.config = BrokerConfig({"log.sync.policy": "commit", "node.id": str(broker_id), **(config or {})})
        self.files = MemoryFiles(now_ms=lambda: self.now_ms)
        self.directory_id = f"directory-{broker_id}"
        self.tree = MemoryTree() if tree is None else tree
        self.now_ms = START_MS
        self.entropy = CountingEntropy((broker_id - 1 << 32) + 1)
        self.others_are_silent = False
        """Another registered broker cannot be reached, rather than refuses connections as a dead one does."""
        self.hold_syncs = False
        self.hold_metadata = False
        self.hold_loads = False
        self.hold_changes = False
        """Changes of the tree do not arrive."""
        self.reads_fail = False
        self.tree_is_near = False
        """Nodes of the tree cannot be read."""
        self.hold_jobs = False
        self.hold_slices = False
        """The slices of long requests wait: a test lets each go on with ``Continued()``."""
        self.held: list[object] = []
        self.reports: list[str] = []
        self.audited: list[AuditRecord] = []
        self.access_lines: list[str] = []
        self.fatal: str | None = None
        self.stopped = False
        self._connection_ids = itertools.count(1)
        self.start()

    def start(self) -> None:
        """Join and start a node over what is in the files and the tree."""
        self.peers: dict[int, Peer] = {}
        self.fatal, self.stopped = None, False
        self.session = self.tree.session()
        image = load_image(self.session.subtree("/"))
        configs = TopicConfigs(self.config)

        def config_of(partition):
            topic = image.topics.get(partition.topic)
            return log_config(configs.of({} if topic is None else topic.configs))

        logs = LogDirectory.open(self.files, config_of=config_of, now_ms=self.now_ms)
        who = Registration(
            self.broker_id,
            *self.address,
            self.config.get("broker.rack"),
            CLUSTER_ID,
            directory_id=self.directory_id,
            was_clean=logs.was_clean,
            lost=logs.lost(),
            sync_policy=self.config.get("log.sync.policy"),
            last_epoch=logs.broker_epoch,
        )
        self.registration = who.again()
        self.session.commit(register(image, who, self.now_ms))
        if logs.lost_from:
            logs.checkpoints()
        position = self.session.position()
        self._changes: deque[MetadataChanged] = deque()
        self._follow(position)
        image = load_image(self.session.subtree("/"))
        self.reports += [report.message for report in set_strays_aside(image, logs, self.broker_id, self.entropy)]
        self.node = Node(self.broker_id, self.config, image, position, logs, self.entropy)
        self.node.tree_reads.position_at_once = self._position_at_once
        self._carry_out(self.node.start(self.now_ms))

    def _position_at_once(self) -> int | None:
        return self.session.position_at_once() if self.tree_is_near else None

    def crash_and_restart(self, seed: int) -> None:
        """Power cut: what was not synced may be lost or torn."""
        self.held.clear()
        self.session.close()
        self.files.crash(seed)
        self.start()

    def lose_disk(self) -> None:
        """Go on with an empty disk at the next start."""
        self.files = MemoryFiles(now_ms=lambda: self.now_ms)
        self.directory_id += "-anew"

    def connect(self, listener_name: str = "PLAINTEXT", principal: str = ANONYMOUS, host: str = "/127.0.0.1") -> Peer:
        """A new client connection, by a listener that is named after its protocol."""
        peer = Peer(self, next(self._connection_ids))
        self.peers[peer.id] = peer
        protocol = SecurityProtocol(listener_name)
        self.dispatch(ConnectionOpened(peer.id, host, self.address, principal, listener_name, protocol))
        return peer

    def disconnect(self, peer: Peer) -> None:
        """The client is gone."""
        del self.peers[peer.id]
        self.dispatch(ConnectionClosed(peer.id))

    def half_close(self, peer: Peer) -> None:
        """The client sends nothing more, and reads on."""
        self.dispatch(ConnectionHalfClosed(peer.id))

    def advance(self, milliseconds: int) -> None:
        """Move time on, stopping at every deadline."""
        target_ms = self.now_ms + milliseconds
        while (at_ms := self.node.next_deadline_ms()) is not None and at_ms <= target_ms:
            self.now_ms = max(self.now_ms, at_ms)
            self.dispatch(DeadlineReached())
        self.now_ms = target_ms
        self.dispatch_changes()

    def release(self) -> None:
        """Carry out the syncs, fact writes and jobs that were held, in order."""
        held, self.held = self.held, []
        hold = self.hold_syncs, self.hold_metadata, self.hold_jobs
        self.hold_syncs = self.hold_metadata = self.hold_jobs = self.hold_loads = False
        self._carry_out(held)
        self.hold_syncs, self.hold_metadata, self.hold_jobs = hold

    def shutdown(self, within_ms: int = 1000) -> None:
        """Ask for a clean end."""
        self.dispatch(Shutdown(self.now_ms + within_ms))

    def dispatch(self, event) -> None:
        """One event and all that follows from it."""
        self._carry_out(self.node.handle(event, self.now_ms))
        self.dispatch_changes()

    def dispatch_changes(self) -> None:
        """Changes of the tree that other sessions have committed."""
        while self._changes and not self.hold_changes:
            self._carry_out(self.node.handle(self._changes.popleft(), self.now_ms))

    def _carry_out(self, effects) -> None:
        queue = deque(effects)
        while queue:
            effect = queue.popleft()
            event = self._event_of(effect)
            while self._changes and not self.hold_changes:
                queue.extend(self.node.handle(self._changes.popleft(), self.now_ms))
            if event is not None:
                queue.extend(self.node.handle(event, self.now_ms))

    def _event_of(self, effect):
        match effect:
            case Send():
                if effect.connection_id in self.peers:
                    self.peers[effect.connection_id].received(effect.chunks)
            case Sync() if self.hold_syncs:
                self.held.append(effect)
            case Sync():
                return self._sync(effect)
            case WriteMetadata() if self.hold_metadata:
                self.held.append(effect)
            case WriteMetadata():
                return tree_access.write(self.session, effect)
            case SettleMetadata():
                return tree_access.settle(self.session, effect)
            case ReadTree() if self.reads_fail:
                return NodesRead(effect.token, None)
            case ReadTree():
                return tree_access.read_nodes(self.session, effect)
            case LoadMetadata() if self.hold_loads:
                self.held.append(effect)
            case LoadMetadata():
                self._load_metadata(effect)
            case ConnectToBroker():
                return self._connect_to_broker(effect)
            case SendToBroker():
                self._send_to_broker(effect)
            case DisconnectFromBroker():
                self._disconnect_from_broker(effect)
            case RunJob() if self.hold_jobs:
                self.held.append(effect)
            case RunJob():
                for _ in effect.slices:
                    pass
                return JobFinished(effect.token)
            case Continue() if not self.hold_slices:
                return Continued()
            case Close():
                if effect.connection_id in self.peers:
                    self.peers[effect.connection_id].closed = True
            case Pause() | Resume() if effect.connection_id in self.peers:
                self.peers[effect.connection_id].paused = isinstance(effect, Pause)
            case Report():
                self.reports.append(effect.message)
            case Audit():
                self.audited.append(effect.record)
            case AccessLogged():
                self.access_lines.append(effect.line)
            case Fatal():
                self.fatal = effect.message
            case StopListening():
                for peer in self.peers.values():
                    self._carry_out(self.node.handle(ConnectionHalfClosed(peer.id), self.now_ms))
            case Stopped():
                self.stopped = True
        return None

    def _connect_to_broker(self, effect: ConnectToBroker) -> BrokerDisconnected | None:
        """There is no other broker here; a cluster's drivers have (``tests.scenario.cluster``)."""
        return BrokerDisconnected(effect.link_id, refused=not self.others_are_silent)

    def _send_to_broker(self, effect: SendToBroker) -> None:
        raise AssertionError("there is no other broker")

    def _disconnect_from_broker(self, effect: DisconnectFromBroker) -> None:
        pass

    def _sync(self, effect: Sync) -> Synced:
        try:
            for file in effect.files:
                file.sync()
        except OSError as error:
            return Synced(effect.token, error)
        return Synced(effect.token)

    def _follow(self, after: int) -> None:
        def changed(change) -> None:
            self._changes.append(MetadataChanged(change.position, change.token, change.changes))

        self.session.follow(after, changed, lambda: self._changes.append(tree_access.SESSION_LOST))

    def _load_metadata(self, effect: LoadMetadata) -> None:
        loaded = tree_access.load(self.session, effect, self.registration, self.now_ms)
        self.dispatch(loaded)
        if loaded.nodes is not None:
            self._follow(loaded.position)
