"""The broker of ``oncelog serve`` in a thread of this process, on a free port, with its own directory.

It is the real broker, but some defaults suit tests: no syncs, small internal topics, no delay before a group's first
rebalance.
"""

from __future__ import annotations

import shutil
import socket
import tempfile
import threading
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from oncelog.base.security import PLAINTEXT_LISTENER
from oncelog.base.units import SECOND_MS
from oncelog.node.assembly import StartRefused
from oncelog.node.node import Node
from oncelog.runtime.clock import JumpingClock, WallClock
from oncelog.runtime.server import Server, Settings, read_settings
from oncelog.security.properties import BROKERS, CLIENTS
from oncelog.testing.configuration import Config, texts
from oncelog.testing.faults.control import Faults
from oncelog.testing.faults.fault import Fault, Hit
from oncelog.testing.loop import LoopEnded, LoopThread
from oncelog.testing.port import LOOPBACK, ReservedPort
from oncelog.testing.registry import RegistryThread
from oncelog.testing.security.secured import Secured, make_security
from oncelog.testing.share_groups import ShareGroups

T = TypeVar("T")

DEFAULTS: Final = {
    "log.sync.policy": "none",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
    "group.share.assignment.interval.ms": "0",
}
_TIMEOUT_S: Final = 30.0
_STOP_S: Final = 5.0


class Broker(Secured):
    """An in-process broker, started by ``with`` or :meth:`start`. Several may run at once. Thread-safe.

    ``config`` overrides Apache Kafka's configuration keys. With ``virtual_time``, :meth:`advance` moves the broker's
    clock: retention, session timeouts and expiry are tested without sleeping. :attr:`faults` injects failures.
    ``security`` is ``"tls"``, ``"mtls"``, ``"scram"``, ``"plain"`` or ``"oauth"``: see :meth:`add_user`, :meth:`allow`,
    :meth:`client_config`. With ``registry`` a schema registry is at :attr:`registry_url`.
    """

    def __init__(
        self,
        config: Config | None = None,
        *,
        data_dir: Path | str | None = None,
        port: int = 0,
        virtual_time: bool = False,
        security: str | None = None,
        registry: bool = False,
    ) -> None:
        self._config = {**DEFAULTS, **texts(config)}
        self._own_directory = data_dir is None
        self._directory = Path(data_dir) if data_dir is not None else None
        self._wanted_port = port
        self._port: ReservedPort | None = None
        # The port of the listener for brokers, with security.
        self._link_port: ReservedPort | None = None
        self._clock = JumpingClock() if virtual_time else None
        # Held while the broker starts or stops.
        self._lock = threading.RLock()
        # True if the broker should be running: then the end of a fault that killed it restarts it.
        self._should_run = False
        self._loop: LoopThread | None = None
        self._server: Server | None = None
        self._down_reason = "the broker is not running"
        self.faults = Faults(self)
        """Injects failures: see :class:`oncelog.testing.faults.control.Faults`."""
        self.share = ShareGroups(self)
        """Deliveries of share groups: see :class:`oncelog.testing.share_groups.ShareGroups`."""
        self._security = None if security is None else make_security(security, self, self._now_s)
        self._owns_security = True
        self._registry = RegistryThread() if registry else None

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.stop()  # releases the port and the directory
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def bootstrap_servers(self) -> str:
        """``host:port`` for clients; constant until :meth:`stop`, also while the broker is down."""
        return f"{LOOPBACK}:{self.port}"

    @property
    def host(self) -> str:
        return LOOPBACK

    @property
    def port(self) -> int:
        """Reserved until :meth:`stop`, also during a reset, restart or kill."""
        if self._port is None:
            raise RuntimeError("the broker has not been started: call start(), or use it in a with block")
        return self._port.number

    @property
    def link_port(self) -> int:
        return self.port if self._link_port is None else self._link_port.number

    @property
    def link_servers(self) -> str:
        return f"{LOOPBACK}:{self.link_port}"

    @property
    def data_dir(self) -> Path:
        """The directory of the broker's logs, in Apache Kafka's file formats."""
        if self._directory is None:
            raise RuntimeError("the broker has not been started: call start(), or use it in a with block")
        return self._directory

    @property
    def registry_url(self) -> str:
        """The address of the schema registry, for clients; constant until :meth:`stop`."""
        if self._registry is None:
            raise RuntimeError("the broker has no schema registry: create it with Broker(registry=True)")
        return self._registry.url

    @property
    def is_running(self) -> bool:
        """True while the broker runs; False after a kill until the next start."""
        return self._server is not None and not self._server.stopped.done()

    def start(self) -> None:
        """Start the broker and wait until it serves. Raises StartRefused or ConfigError."""
        with self._lock:
            if self._server is not None:
                if self.is_running:
                    raise RuntimeError("the broker is already running")
                self._end_server()
            self._should_run = True
            self._start_server()
            if self._registry is not None:
                config = {} if self._security is None else self._security.link_config()
                self._registry.start(self.link_servers, config)

    def stop(self) -> None:
        """Shut down cleanly: end faults, release the port, and remove the directory unless it was given."""
        with self._lock:
            self._should_run = False
            self.faults.clear()
            if self._registry is not None:
                self._registry.release()
            try:
                self._stop_server()
            finally:
                self._release()

    def kill(self) -> None:
        """Kill the broker like ``kill -9``: nothing is flushed or answered. :meth:`start` recovers from the disk on the
        same port."""
        with self._lock:
            self._running()
            self._should_run = False
            self._end_server()

    def restart(self) -> None:
        with self._lock:
            self._stop_server()
            self.start()

    def reset(self) -> None:
        """Remove every topic, group, producer id, user and fault, and close all connections. The port stays."""
        with self._lock:
            self._should_run = False
            self.faults.clear()
            if self._registry is not None:
                self._registry.stop()
            self._end_server()
            shutil.rmtree(self.data_dir, ignore_errors=True)
            if self._security is not None and self._owns_security:
                self._security.forget()
            self.start()

    def advance(self, milliseconds: int) -> None:
        """Move the broker's clock forward, and handle deadlines in order. Returns early if the broker stops."""
        clock = self._clock
        if clock is None:
            raise RuntimeError("advance() works only with Broker(virtual_time=True)")
        server, loop = self._running(), self._loop
        try:
            if loop is not None:
                loop.call(server.advance(clock, milliseconds))
        except LoopEnded:
            return

    def on_loops(self, work: Callable[[Server], None]) -> None:
        """Call ``work`` on the broker's loop if it is running, and wait."""
        self.on_loop(work)

    def settle(self) -> None:
        """Does nothing: there are no other brokers."""

    def _now_s(self) -> float:
        return (WallClock() if self._clock is None else self._clock).now_ms() / SECOND_MS

    def on_loop(self, work: Callable[[Server], None]) -> bool:
        """For :attr:`faults`: call ``work`` on the loop and wait. Returns False if the broker is down."""
        server, loop = self._server, self._loop
        if server is None or loop is None or server.stopped.done():
            return False
        try:
            loop.run(lambda: work(server), _TIMEOUT_S)
        except LoopEnded:
            return False
        return True

    def die(self, fault: Fault, hit: Hit, down_s: float | None) -> None:
        """For :attr:`faults`, on the loop: kill the broker within an event."""
        server = self._running()
        server.halt()

        def end_and_report() -> None:
            with self._lock:
                if self._server is server:
                    self._down_reason = f"the broker was killed: {fault.description}"
                    self._end_server()
            fault.struck(hit)
            if down_s is not None:
                fault.until_removed(down_s)
                self.revive()

        threading.Thread(target=end_and_report, name="oncelog-burial", daemon=True).start()

    def revive(self) -> None:
        with self._lock:
            if self._should_run and not self.is_running:
                self._end_server()
                self._start_server()

    # The methods below are called with the lock held.
    def _settings(self) -> Settings:
        directory = str(self.data_dir)
        if self._security is None:
            return read_settings(self._config, data_directory=directory, listen=(LOOPBACK, self.port))
        listeners = f"{CLIENTS}://{LOOPBACK}:{self.port},{BROKERS}://{LOOPBACK}:{self.link_port}"
        keys = {"listeners": listeners, **self._security.config(), **self._config}
        return read_settings(keys, data_directory=directory)

    def _start_server(self) -> None:
        if self._port is None:
            try:
                self._port = ReservedPort(self._wanted_port)
            except OSError as error:
                raise StartRefused(f"cannot listen on {LOOPBACK}:{self._wanted_port}: {error.strerror}") from None
            if self._security is not None:
                self._link_port = ReservedPort()
        if self._directory is None:
            self._directory = Path(tempfile.mkdtemp(prefix="oncelog-"))
        self._loop = LoopThread("oncelog-broker")
        try:
            self._server = self._call(self._new_started_server())
        except BaseException:
            self._end_loop()
            raise

    def _sockets_to_listen(self) -> dict[str, socket.socket]:
        assert self._port is not None
        if self._link_port is None:
            return {PLAINTEXT_LISTENER: self._port.socket()}
        return {CLIENTS: self._port.socket(), BROKERS: self._link_port.socket()}

    def _new_server(self, bound: Mapping[str, socket.socket]) -> Server:
        return Server(self._settings(), clock=self._clock, bound=bound, assembled=self._add_hooks)

    def _add_hooks(self, node: Node) -> None:
        self.faults.interception.intercept(node)
        if self._security is not None and self._security.kind.has_sasl:
            node.logins.credentials.added_passwords = self._security.passwords

    async def _new_started_server(self) -> Server:
        bound = self._sockets_to_listen()
        try:
            server = self._new_server(bound)
            await server.start()
        except BaseException:
            for bound_socket in bound.values():
                bound_socket.close()
            raise
        server.effect_runner.before_sync = self.faults.before_sync
        server.stopped.add_done_callback(lambda stopped: self._halt_server(stopped.result()))
        return server

    def _halt_server(self, reason: str | None) -> None:
        # Close all connections when the node has stopped by itself, so that clients do not wait for responses.
        if reason is not None and self._server is not None:
            self._down_reason = f"the broker stopped: {reason}"
            self._server.halt()

    def _running(self) -> Server:
        if self._server is None or self._server.stopped.done():
            raise RuntimeError(self._down_reason)
        return self._server

    def _stop_server(self) -> None:
        server, self._server = self._server, None
        if server is not None:
            try:
                self._call(server.abandon() if server.stopped.done() else server.stop(_STOP_S))
            finally:
                self._end_loop()

    def _end_server(self) -> None:
        server, self._server = self._server, None
        if server is not None:
            self._call(server.abandon())
        self._end_loop()

    def _call(self, work: Coroutine[Any, Any, T]) -> T:
        assert self._loop is not None
        return self._loop.call(work, _TIMEOUT_S)

    def _on_loop(self, work: Callable[[], T]) -> T:
        self._running()
        assert self._loop is not None
        return self._loop.run(work, _TIMEOUT_S)

    def _end_loop(self) -> None:
        if self._loop is not None:
            self._loop.end()
        self._loop = None

    def _release(self) -> None:
        for port in (self._port, self._link_port):
            if port is not None:
                port.release()
        self._port = self._link_port = None
        if self._security is not None and self._owns_security:
            self._security.close()
        if self._own_directory and self._directory is not None:
            shutil.rmtree(self._directory, ignore_errors=True)
            self._directory = None
