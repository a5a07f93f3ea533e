"""The schema registry of ``oncelog serve --registry``: a child process, so that no schema delays the broker's loop."""

from __future__ import annotations

import logging
import subprocess
import threading
from pathlib import Path
from typing import Final

from oncelog.base.python_process import python_module

RESTART_S: Final = 5.0
STOP_S: Final = 5.0
_LOG: Final = logging.getLogger("oncelog.registry")


class RegistryChild:
    """Runs until ``end``; started again ``RESTART_S`` after it ended by itself. It ends with this process."""

    def __init__(self, listen: str, client_config: Path | None) -> None:
        self._arguments = ["registry", "serve", "--listen", listen]
        if client_config is not None:
            self._arguments += ["--command-config", str(client_config)]
        self._child: subprocess.Popen[bytes] | None = None
        self._ending = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self, address: str) -> None:
        """Start it for a broker that listens on ``address``."""
        host, _, port = address.rpartition(":")
        # A wildcard is no address to connect to.
        reachable = f"localhost:{port}" if host in ("", "0.0.0.0", "[::]") else address
        self._thread = threading.Thread(target=self._run, args=(reachable,), name="registry-child", daemon=True)
        self._thread.start()

    def end(self) -> None:
        self._ending.set()
        if self._child is not None:
            self._child.terminate()
        if self._thread is not None:
            self._thread.join(STOP_S)
        if self._child is not None and self._child.poll() is None:
            self._child.kill()

    def _run(self, bootstrap: str) -> None:
        command = python_module("oncelog.cli.child_process", *self._arguments, "--bootstrap-server", bootstrap)
        while not self._ending.is_set():
            with subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True) as self._child:
                code = self._child.wait()
            if not self._ending.is_set():
                _LOG.warning("the schema registry ended with exit code %d; it starts again in %g s", code, RESTART_S)
            self._ending.wait(RESTART_S)
