"""The broker of ``oncelog serve`` in a thread of this process, on a free port, with a directory of its own.

It is the real one: the same node, files on a real disk, sockets. What differs are defaults that suit tests: page-cache
durability, small internal topics, no delay before a group's first rebalance.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import threading
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from oncelog.runtime.clock import ManualClock, WallClock
from oncelog.runtime.process import new_event_loop
from oncelog.runtime.server import Server, Settings, read_settings

T = TypeVar("T")

DEFAULTS: Final = {
    "log.sync.policy": "none",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
}
_START_TIMEOUT_S: Final = 30.0


class Broker:
    """An in-process broker, started by ``with`` or :meth:`start`. Several may run at once.

    ``config`` overrides Apache Kafka's configuration keys. With ``virtual_time`` the broker's clock stands still until
    :meth:`advance` moves it: retention, session time-outs and expiry become tests without sleeps.
    """

    def __init__(
        self,
        config: Mapping[str, str] | None = None,
        *,
        data_dir: Path | str | None = None,
        port: int = 0,
        virtual_time: bool = False,
    ) -> None:
        self._config = {**DEFAULTS, **(config or {})}
        self._own_directory = data_dir is None
        self._directory = Path(data_dir) if data_dir is not None else None
        self._port = port
        self._manual_clock = ManualClock(WallClock().now_ms()) if virtual_time else None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._server: Server | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def bootstrap_servers(self) -> str:
        """``host:port`` for a client's configuration."""
        return self._running().address

    @property
    def host(self) -> str:
        """Address it listens on."""
        return self.bootstrap_servers.rsplit(":", 1)[0]

    @property
    def port(self) -> int:
        """Port it listens on; stays the same over :meth:`reset` and :meth:`restart`."""
        return int(self.bootstrap_servers.rsplit(":", 1)[1])

    @property
    def data_dir(self) -> Path:
        """Where its logs are, in Apache Kafka's own file formats."""
        if self._directory is None:
            raise RuntimeError("the broker has not been started")
        return self._directory

    def start(self) -> None:
        """Start and wait until it answers. Raises StartRefused or ConfigError."""
        if self._thread is not None:
            raise RuntimeError("the broker is already running")
        if self._directory is None:
            self._directory = Path(tempfile.mkdtemp(prefix="oncelog-"))
        self._loop = new_event_loop()
        self._thread = threading.Thread(target=self._run_loop, name="oncelog-broker", daemon=True)
        self._thread.start()
        try:
            self._call(self._start_server())
        except BaseException:
            self._end_loop()
            raise

    def stop(self) -> None:
        """Shut down cleanly; its directory goes too unless it was given."""
        if self._thread is None:
            return
        try:
            self._call(self._running().stop(5.0))
        finally:
            self._end()

    def kill(self) -> None:
        """End it as ``kill -9`` would: nothing is flushed or said; :meth:`start` recovers from what is on disk, on the
        same port."""
        self._port = self.port
        self._call(self._running().abandon())
        self._server = None
        self._end_loop()

    def restart(self) -> None:
        """Stop cleanly and start again on the same port and data."""
        self._port = self.port
        self._call(self._running().stop(5.0))
        self._end_loop()
        self.start()

    def reset(self) -> None:
        """Empty it: every topic, group and producer id is gone, open connections are closed, the port stays."""
        self.kill()
        shutil.rmtree(self.data_dir, ignore_errors=True)
        self.start()

    def advance(self, milliseconds: int) -> None:
        """Move virtual time on; whatever falls due on the way happens, in order, before this returns."""
        clock = self._manual_clock
        if clock is None:
            raise RuntimeError("advance() needs Broker(virtual_time=True)")
        self._call(self._running().advance(clock, milliseconds), timeout_s=None)

    def _settings(self) -> Settings:
        return read_settings(self._config, data_directory=str(self.data_dir), listen=("127.0.0.1", self._port))

    async def _start_server(self) -> None:
        server = Server(self._settings(), clock=self._manual_clock)
        await server.start()
        self._server = server

    def _running(self) -> Server:
        if self._server is None:
            raise RuntimeError("the broker is not running")
        return self._server

    def _run_loop(self) -> None:
        assert self._loop is not None
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()
        self._loop.close()

    def _call(self, work: Coroutine[Any, Any, T], timeout_s: float | None = _START_TIMEOUT_S) -> T:
        assert self._loop is not None
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(timeout_s)

    def _on_loop(self, work: Callable[[], T]) -> T:
        async def run() -> T:
            return work()

        return self._call(run())

    def _end(self) -> None:
        self._server = None
        self._end_loop()
        if self._own_directory and self._directory is not None:
            shutil.rmtree(self._directory, ignore_errors=True)
            self._directory = None

    def _end_loop(self) -> None:
        if self._loop is not None and self._thread is not None:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
        self._loop = None
        self._thread = None
