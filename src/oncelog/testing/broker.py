"""The broker of ``oncelog serve`` in a thread of this process, on a free port, with a directory of its own.

The broker is the real one: the same node, files on a real disk, sockets. Only some defaults differ, to suit tests:
page-cache durability, small internal topics, no delay before a group's first rebalance.
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
from oncelog.testing.security.secured import Secured, make_security

T = TypeVar("T")

DEFAULTS: Final = {
    "log.sync.policy": "none",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
}
_TIMEOUT_S: Final = 30.0
_STOP_S: Final = 5.0


class Broker(Secured):
    """An in-process broker, started by ``with`` or :meth:`start`. Several may run at once. Thread-safe.

    ``config`` overrides Apache Kafka's configuration keys. With ``virtual_time`` the broker's clock can be moved on
    by :meth:`advance`: retention, session time-outs and expiry become tests without sleeps. :attr:`faults` injects
    failures. ``security`` is ``"tls"``, ``"mtls"``, ``"scram"``, ``"plain"`` or ``"oauth"``: see :meth:`add_user`,
    :meth:`allow`, :meth:`client_config` and :attr:`security`.
    """

    def __init__(
        self,
        config: Config | None = None,
        *,
        data_dir: Path | str | None = None,
        port: int = 0,
        virtual_time: bool = False,
        security: str | None = None,
    ) -> None:
        self._config = {**DEFAULTS, **texts(config)}
        self._own_directory = data_dir is None
        self._directory = Path(data_dir) if data_dir is not None else None
        self._wanted_port = port
        self._port: ReservedPort | None = None
        self._link_port: ReservedPort | None = None
        """The port of the listener for brokers, with security."""
        self._clock = JumpingClock() if virtual_time else None
        self._lock = threading.RLock()
        """Held while the broker starts or ends."""
        self._is_wanted = False
        """True if the broker should be running: the end of a fault that ended it then starts it again."""
        self._loop: LoopThread | None = None
        self._server: Server | None = None
        self._why_down = "the broker is not running"
        self.faults = Faults(self)
        """Failures to inject: see :class:`oncelog.testing.faults.control.Faults`."""
        self._security = None if security is None else make_security(security, self, self._now_s)
        self._owns_security = True

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.stop()  # the port and the directory were there already
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def bootstrap_servers(self) -> str:
        """``host:port`` for a client's configuration; the same until :meth:`stop`, whether the broker is up or down."""
        return f"{LOOPBACK}:{self.port}"

    @property
    def host(self) -> str:
        """The address the broker listens on."""
        return LOOPBACK

    @property
    def port(self) -> int:
        """The port the broker listens on; reserved until :meth:`stop`, also over a reset, a restart and a kill."""
        if self._port is None:
            raise RuntimeError("the broker has not been started")
        return self._port.number

    @property
    def link_port(self) -> int:
        """The port by which brokers of a cluster reach this one."""
        return self.port if self._link_port is None else self._link_port.number

    @property
    def link_servers(self) -> str:
        """``host:port`` of :attr:`link_port`."""
        return f"{LOOPBACK}:{self.link_port}"

    @property
    def data_dir(self) -> Path:
        """The directory of the broker's logs, in Apache Kafka's own file formats."""
        if self._directory is None:
            raise RuntimeError("the broker has not been started")
        return self._directory

    @property
    def is_running(self) -> bool:
        """True while the broker runs: False after a kill, until it has started again."""
        return self._server is not None and not self._server.stopped.done()

    def start(self) -> None:
        """Start the broker and wait until it answers. Raises StartRefused or ConfigError."""
        with self._lock:
            if self._server is not None:
                if self.is_running:
                    raise RuntimeError("the broker is already running")
                self._end_server()
            self._is_wanted = True
            self._start_server()

    def stop(self) -> None:
        """Shut down cleanly; faults end, the port is released, the directory is removed (unless it was given)."""
        with self._lock:
            self._is_wanted = False
            self.faults.clear()
            try:
                self._stop_server()
            finally:
                self._forget()

    def kill(self) -> None:
        """End the broker as ``kill -9`` would: nothing is flushed or answered; :meth:`start` recovers from the disk, on
        the same port. To kill it at a certain request see ``faults.kill``."""
        with self._lock:
            self._running()
            self._is_wanted = False
            self._end_server()

    def restart(self) -> None:
        """Stop cleanly and start again on the same port and data."""
        with self._lock:
            self._stop_server()
            self.start()

    def reset(self) -> None:
        """Remove every topic, group, producer id, user and fault and close all connections; the port stays."""
        with self._lock:
            self._is_wanted = False
            self.faults.clear()
            self._end_server()
            shutil.rmtree(self.data_dir, ignore_errors=True)
            if self._security is not None and self._owns_security:
                self._security.forget()
            self.start()

    def advance(self, milliseconds: int) -> None:
        """Move the broker's clock on; deadlines on the way are handled, in order, before this returns. Returns early
        if the broker ends."""
        clock = self._clock
        if clock is None:
            raise RuntimeError("advance() needs Broker(virtual_time=True)")
        server, loop = self._running(), self._loop
        try:
            if loop is not None:
                loop.call(server.advance(clock, milliseconds))
        except LoopEnded:
            return

    # For the security.

    def on_loops(self, work: Callable[[Server], None]) -> None:
        """Call ``work`` on the loop of the broker, if it is up, and wait."""
        self.on_loop(work)

    def settle(self) -> None:
        """Nothing to wait for: there are no other brokers."""

    def _now_s(self) -> float:
        return (WallClock() if self._clock is None else self._clock).now_ms() / SECOND_MS

    # For the faults.

    def on_loop(self, work: Callable[[Server], None]) -> bool:
        """Call ``work`` on the loop and wait; False when the broker is down. For :attr:`faults`."""
        server, loop = self._server, self._loop
        if server is None or loop is None or server.stopped.done():
            return False
        try:
            loop.run(lambda: work(server), _TIMEOUT_S)
        except LoopEnded:
            return False
        return True

    def die(self, fault: Fault, hit: Hit, down_s: float | None) -> None:
        """End the broker as by ``kill -9`` in the middle of an event; called on the loop by :attr:`faults`."""
        server = self._running()
        server.halt()

        def bury() -> None:
            with self._lock:
                if self._server is server:
                    self._why_down = f"the broker was killed: {fault.what}"
                    self._end_server()
            fault.struck(hit)
            if down_s is not None:
                fault.until_removed(down_s)
                self.revive()

        threading.Thread(target=bury, name="oncelog-burial", daemon=True).start()

    def revive(self) -> None:
        """Start the broker again, unless it was stopped or killed on purpose."""
        with self._lock:
            if self._is_wanted and not self.is_running:
                self._end_server()
                self._start_server()

    # Starting and ending, with the lock held.

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
            self._server = self._call(self._started())
        except BaseException:
            self._end_loop()
            raise

    def _sockets_to_listen(self) -> dict[str, socket.socket]:
        assert self._port is not None
        if self._link_port is None:
            return {PLAINTEXT_LISTENER: self._port.socket()}
        return {CLIENTS: self._port.socket(), BROKERS: self._link_port.socket()}

    def _new_server(self, bound: Mapping[str, socket.socket]) -> Server:
        return Server(self._settings(), clock=self._clock, bound=bound, assembled=self._equip)

    def _equip(self, node: Node) -> None:
        self.faults.interception.stand_around(node)
        if self._security is not None and self._security.kind.has_sasl:
            node.logins.credentials.added_passwords = self._security.passwords

    async def _started(self) -> Server:
        bound = self._sockets_to_listen()
        try:
            server = self._new_server(bound)
            await server.start()
        except BaseException:
            for each in bound.values():
                each.close()
            raise
        server.effect_runner.before_sync = self.faults.before_sync
        server.stopped.add_done_callback(lambda stopped: self._noticed(stopped.result()))
        return server

    def _noticed(self, reason: str | None) -> None:
        """After the node stopped by itself: close all connections, so that no client waits for answers."""
        if reason is not None and self._server is not None:
            self._why_down = f"the broker stopped: {reason}"
            self._server.halt()

    def _running(self) -> Server:
        if self._server is None or self._server.stopped.done():
            raise RuntimeError(self._why_down)
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

    def _forget(self) -> None:
        for port in (self._port, self._link_port):
            if port is not None:
                port.release()
        self._port = self._link_port = None
        if self._security is not None and self._owns_security:
            self._security.close()
        if self._own_directory and self._directory is not None:
            shutil.rmtree(self._directory, ignore_errors=True)
            self._directory = None
