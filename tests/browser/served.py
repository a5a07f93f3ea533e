"""A console as `oncelog console` runs it, in a thread of this process: ended and started again on the same port."""

from __future__ import annotations

import threading
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import uvicorn

from oncelog.cli.processes.console_process import server_of
from oncelog.console.settings import Settings
from tests.peers.process import free_ports
from tests.waiting import HANG_S, wait_until


class Served:
    """A console of a cluster; each start has a new secret, so that the sessions of the one before have ended."""

    def __init__(self, bootstrap: str, *, audit_log: Path | None = None, **settings: Any) -> None:
        self._bootstrap = bootstrap
        self._settings = {"allow_changes": audit_log is not None, "audit_log": audit_log, **settings}
        self.port = free_ports(1)[0]
        self._server: uvicorn.Server | None = None
        self._thread: threading.Thread | None = None

    @property
    def origin(self) -> str:
        """The address of its pages."""
        return f"{'https' if 'tls_certificate' in self._settings else 'http'}://127.0.0.1:{self.port}"

    def start(self) -> Self:
        """Serve, and wait until it does."""
        server = server_of(Settings(self._bootstrap, port=self.port, **self._settings))
        thread = threading.Thread(target=server.run, name="console", daemon=True)
        thread.start()
        wait_until(lambda: server.started or not thread.is_alive(), "the console's start")
        if not server.started:
            raise RuntimeError(f"the console did not start on port {self.port}")
        self._server, self._thread = server, thread
        return self

    def stop(self) -> None:
        """End it, and the requests that it works on."""
        if self._server is None or self._thread is None:
            return
        self._server.should_exit = True
        self._thread.join(HANG_S)
        self._server = self._thread = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
