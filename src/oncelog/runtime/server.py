"""A broker on an asyncio loop: its start, its serving, and its orderly shutdown.

Start: lock and open the data directory (recovering it), listen, join the cluster, start the node. Stop: hand
leaderships over, stop listening, finish requests in flight, sync, write checkpoints and the clean-shutdown marker.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from oncelog.base.units import SECOND_MS
from oncelog.listening.addresses import unbracketed
from oncelog.node.assembly import Outside, StartRefused, assemble
from oncelog.node.kernel.events import DeadlineReached, Shutdown
from oncelog.node.listeners.broker_settings import Address, is_loopback
from oncelog.node.listeners.broker_settings import Settings as Settings
from oncelog.node.listeners.broker_settings import read_settings as read_settings
from oncelog.ports import Clock, Coordination
from oncelog.runtime.clock import JumpingClock, WallClock
from oncelog.runtime.connections.acceptors import Acceptors, cannot_listen
from oncelog.runtime.connections.connection_quotas import ConnectionLimits, ConnectionQuotas
from oncelog.runtime.data.broker_hold import VERSION, HeldState, HoldServer
from oncelog.runtime.data.data_directory import TREE_FILE, DataDirectory, open_data_directory
from oncelog.runtime.data.disk_files import LOCK_FILE
from oncelog.runtime.effects.broker_sockets import BrokerSockets, MakeSockets
from oncelog.runtime.effects.effect_runner import AUTHORIZER_LOG, EffectRunner
from oncelog.runtime.loop_health import LoopHealth

if TYPE_CHECKING:
    from oncelog.node.node import Node
    from oncelog.node.observation.flight_recorder import RecordedNode
    from oncelog.runtime.data.flight_recording import FlightRecording
    from oncelog.runtime.metrics.http import HttpEndpoint
    from oncelog.runtime.security.oauth_keys import OAuthKeys

_LOG: Final = logging.getLogger("oncelog.broker")
# Part of the shutdown time given to the node; the rest is for closing the logs.
_NODE_SHARE: Final = 0.9


class Server:
    """One broker, from ``start`` to ``stop`` or ``abandon``."""

    def __init__(
        self,
        settings: Settings,
        clock: Clock | None = None,
        *,
        bound: socket.socket | Mapping[str, socket.socket] | None = None,
        assembled: Callable[[Node], None] | None = None,
        coordination: Coordination | None = None,
        sockets: MakeSockets = BrokerSockets,
    ) -> None:
        """``bound``: a socket to listen on instead of the configured address, or one per listener. ``assembled`` gets
        the node before any connection is accepted. ``coordination``: a session that replaces the directory's tree; it
        ends with the broker. ``sockets`` makes the connections to other brokers.
        """
        # DescribeLogDirs returns the path to clients, which do not know this process's working directory.
        self.settings = settings._replace(data_directory=str(Path(settings.data_directory).absolute()))
        self.clock = clock or WallClock()
        first = settings.listeners.endpoints[0].listener_name
        self._bound = bound if isinstance(bound, Mapping) else {} if bound is None else {first: bound}
        self._assembled = assembled
        self._coordination = coordination
        self._sockets = sockets
        self._data_directory: DataDirectory | None = None
        self._flight_recording: FlightRecording | None = None
        self._node: Node | None = None
        self._effect_runner: EffectRunner | None = None
        self._acceptors: Acceptors | None = None
        self._quotas: ConnectionQuotas | None = None
        self._http: HttpEndpoint | None = None
        self._oauth_keys: OAuthKeys | None = None
        self._hold = HoldServer(self._held_state)
        self.address = ""
        """``host:port`` of the first listener."""

    @property
    def node(self) -> Node:
        if self._node is None:
            raise RuntimeError("the broker is not running")
        return self._node

    @property
    def effect_runner(self) -> EffectRunner:
        assert self._effect_runner is not None
        return self._effect_runner

    @property
    def stopped(self) -> asyncio.Future[str | None]:
        """Done when the node has stopped by itself, with the reason."""
        assert self._effect_runner is not None
        return self._effect_runner.stopped

    async def start(self) -> None:
        """Open, recover, join, listen. Raises StartRefused; then nothing stays open."""
        loop = asyncio.get_running_loop()
        for warning in self.settings.warnings:
            _LOG.warning("%s", warning)
        self._data_directory = opened = open_data_directory(self.settings, self._coordination)
        try:
            await self._listen(loop, opened)
        except BaseException:
            self._release()
            raise

    async def _listen(self, loop: asyncio.AbstractEventLoop, opened: DataDirectory) -> None:
        config = self.settings.config
        limits = ConnectionLimits(lambda: self.node.cluster.config, self.settings.listeners)
        self._quotas = ConnectionQuotas(
            limits=limits,
            max_held_bytes=int(config.get("oncelog.buffered.max.bytes")),
            max_idle_s=int(config.get("connections.max.idle.ms")) / SECOND_MS,
            max_stalled_s=int(config.get("oncelog.connection.stalled.ms")) / SECOND_MS,
        )
        self._quotas.address_delay_s = self._address_delay_s
        self._acceptors = acceptors = Acceptors(self.settings, self._quotas, self._bound)
        await acceptors.bind()
        host, port = next(iter(acceptors.addresses.values()))
        self.address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        now_ms = self.clock.now_ms()
        outside = self._begin_recording(opened.outside, acceptors.addresses, now_ms)
        assembled = assemble(outside, self.settings, acceptors.addresses, now_ms, acceptors.listen)
        self._node = node = assembled.node
        # Formatting lines that no handler wants would cost every request.
        if node.access.log is not None:
            node.access.log.logs_allowed = logging.getLogger(AUTHORIZER_LOG).isEnabledFor(logging.DEBUG)
        node.directory.measure = self._disk(opened.files.space)
        node.tree_reads.position_at_once = self._position(opened.outside.coordination.position_at_once)
        if self._assembled is not None:
            self._assembled(node)
        driven = self._recorded(node)
        self._effect_runner = EffectRunner(
            driven, loop, self.clock, opened.outside, assembled.registration, self._sockets
        )
        self._effect_runner.stop_listening = acceptors.close
        if acceptors.tls is not None:
            self._effect_runner.brokers.tls = acceptors.tls.client_context
        self._effect_runner.carry_out([*assembled.reports, *driven.start(now_ms)])
        self._effect_runner.follow_metadata(node.cluster.position)
        self._quotas.start_sweeping(loop)
        self._effect_runner.pause_watch.start()
        self._health = LoopHealth(loop)
        self._health.start()
        if node.cluster.config.get("max.connections.per.ip.overrides"):
            await loop.run_in_executor(None, limits.resolve)  # resolves host names
        await self._read_keys(loop, node)
        await acceptors.serve(self._effect_runner, lambda: node.cluster.config)
        await self._hold.start(loop, Path(self.settings.data_directory) / LOCK_FILE)

    def _held_state(self) -> HeldState:
        config, own = self.settings.config, Path(self.settings.data_directory) / TREE_FILE
        has_file = self._coordination is None and config.get("zookeeper.connect") is None
        tree = str(Path(config.get("oncelog.tree.path") or own).absolute()) if has_file else None
        return HeldState(VERSION, tree, self.node.logs.truncations)

    async def _read_keys(self, loop: asyncio.AbstractEventLoop, node: Node) -> None:
        if not any(endpoint.protocol.has_sasl for endpoint in self.settings.listeners.endpoints):
            return
        from oncelog.node.listeners.token_keys import key_set_places

        places = key_set_places(self.settings)
        if not places:
            return
        from oncelog.runtime.security.oauth_keys import OAuthKeys, SecurityExtraMissing

        try:
            self._oauth_keys = OAuthKeys(loop, places)
        except SecurityExtraMissing as missing:
            raise StartRefused(str(missing)) from None
        node.logins.credentials.key_sets.update(self._oauth_keys.key_sets)
        await self._oauth_keys.start()

    def _begin_recording(self, outside: Outside, bound: Mapping[str, Address], now_ms: int) -> Outside:
        max_bytes = int(self.settings.config.get("oncelog.flight.recorder.max.bytes"))
        if not max_bytes:
            return outside
        from oncelog.runtime.data.flight_recording import FlightRecording

        self._flight_recording = FlightRecording(Path(self.settings.data_directory), max_bytes)
        return self._flight_recording.begin(outside, self.settings, bound, now_ms)

    def _recorded(self, node: Node) -> Node | RecordedNode:
        if self._flight_recording is None:
            return node
        from oncelog.node.observation.flight_recorder import RecordedNode

        return RecordedNode(node, self._flight_recording.recorder)

    def _disk(self, measure: Callable[[], tuple[int, int]]) -> Callable[[], tuple[int, int]]:
        return measure if self._flight_recording is None else self._flight_recording.recorder.disk(measure)

    def _position(self, read: Callable[[], int | None]) -> Callable[[], int | None]:
        return read if self._flight_recording is None else self._flight_recording.recorder.position(read)

    def _address_delay_s(self, address: str) -> float:
        """Time after which a new connection of an address over its rate is closed (KIP-612); 0: it is not."""
        return self.node.cluster.quotas.connections.admit(address, self.clock.now_ms()) / SECOND_MS

    async def start_http(self, address: str) -> str:
        """Serve /metrics and /health on ``HOST:PORT``; returns the bound address. Raises StartRefused."""
        from oncelog.runtime.metrics.broker_metrics import Metrics
        from oncelog.runtime.metrics.http import HttpEndpoint
        from oncelog.runtime.metrics.http_tls import http_context

        host, separator, port = address.rpartition(":")
        host = unbracketed(host)
        if not separator or not port.isdigit():
            raise StartRefused(f"--http {address} is not an address: write HOST:PORT")
        assert self._quotas is not None
        assert self._acceptors is not None
        config = self.settings.config
        token = config.get("oncelog.http.token")
        if token is None:
            self._warn_of_open_http(host, address)
        metrics = Metrics(self.node, self._quotas, self._health, self.clock, self._acceptors.tls)
        self._http = HttpEndpoint(
            {"/metrics": metrics.page, "/health": metrics.health},
            names=self._http_names(host),
            tls=http_context(config),
            token=token,
            open_to_all=("/health",),
        )
        try:
            bound = await self._http.start(host, int(port))
        except OSError as error:
            raise cannot_listen(address, error) from None
        return f"[{bound[0]}]:{bound[1]}" if ":" in bound[0] else f"{bound[0]}:{bound[1]}"

    def _http_names(self, host: str) -> Collection[str]:
        advertised = (endpoint.host for endpoint in self.settings.listeners.advertised.values())
        configured = self.settings.config.get("oncelog.http.names") or ()
        return {name.lower().rstrip(".") for name in (host, *advertised, socket.gethostname(), *configured) if name}

    def _warn_of_open_http(self, host: str, address: str) -> None:
        if is_loopback(host):
            return
        sentence = f"the HTTP port {address} is reachable from other hosts without a token (set oncelog.http.token)"
        if self.settings.config.get("oncelog.require.security"):
            raise StartRefused(f"oncelog.require.security=true: {sentence}")
        _LOG.warning("%s", sentence)

    async def stop(self, timeout_s: float) -> str | None:
        """Shut down cleanly, within about ``timeout_s``; returns None, or why it was not clean."""
        effect_runner = self._effect_runner
        assert effect_runner is not None
        effect_runner.dispatch(Shutdown(self.clock.now_ms() + int(timeout_s * _NODE_SHARE * SECOND_MS)))
        try:
            async with asyncio.timeout(timeout_s):
                reason = await asyncio.shield(effect_runner.stopped)
        except TimeoutError:
            if not effect_runner.stopped.done():
                effect_runner.stopped.set_result(f"did not come to rest within {timeout_s:.0f} s")
            reason = effect_runner.stopped.result()
        await self._stop_listening()
        try:
            await self._drain_connections(effect_runner)
            effect_runner.shut()
            if reason is None:
                self.node.logs.close(self.node.cluster.broker_epoch)
        finally:
            self._release()
        return reason

    def reload_certificates(self) -> None:
        """Load changed certificates now, instead of at the next check."""
        if self._acceptors is not None and self._acceptors.tls is not None:
            self._acceptors.tls.reload()

    def halt(self) -> None:
        """Stop handling events at once: the first step of :meth:`abandon`, also allowed in the middle of an event."""
        effect_runner = self.effect_runner
        if not effect_runner.stopped.done():
            effect_runner.stopped.set_result("abandoned")
        if self._acceptors is not None:
            self._acceptors.close()
        effect_runner.brokers.abort()
        connections = list(effect_runner.connections.values())
        effect_runner.connections.clear()
        for connection in connections:
            connection.abort()

    async def abandon(self) -> None:
        """Release everything at once, as a kill would: no sync, no checkpoint, no marker."""
        self.halt()
        await self._stop_listening()
        self.effect_runner.shut()
        self._release()

    def _release(self) -> None:
        self._hold.close()
        if self._oauth_keys is not None:
            self._oauth_keys.stop()
            self._oauth_keys = None
        if self._flight_recording is not None:
            self._flight_recording.close()
            self._flight_recording = None
        if self._acceptors is not None:
            self._acceptors.close()
            self._acceptors.close_tls()
        if self._data_directory is not None:
            self._data_directory.release()
        self._data_directory = None

    async def advance(self, clock: JumpingClock, milliseconds: int) -> None:
        """Move the clock ahead, stopping at each deadline of the node."""
        effect_runner = self._effect_runner
        assert effect_runner is not None
        target_ms = clock.now_ms() + milliseconds
        while True:
            at_ms = self.node.next_deadline_ms()
            if at_ms is None or at_ms > target_ms or effect_runner.stopped.done():
                break
            clock.move_to(at_ms)
            effect_runner.dispatch(DeadlineReached())
            await effect_runner.settle()
        clock.move_to(target_ms)
        effect_runner.dispatch(DeadlineReached())
        effect_runner.clock_jumped()
        await effect_runner.settle()

    async def _stop_listening(self) -> None:
        if self._acceptors is not None:
            self._acceptors.close()
            self._acceptors.close_tls()
        if self._quotas is not None:
            self._quotas.stop_sweeping()
        self._health.stop()
        if self._http is not None:
            await self._http.stop()

    async def _drain_connections(self, effect_runner: EffectRunner) -> None:
        """Let peers read their queued responses for a moment, then close all connections."""
        for connection in list(effect_runner.connections.values()):
            connection.close_after_sending()
        for _ in range(20):
            if not effect_runner.connections:
                return
            await asyncio.sleep(0.01)
        for connection in list(effect_runner.connections.values()):
            connection.abort()
