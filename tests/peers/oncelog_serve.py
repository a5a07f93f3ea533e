"""`oncelog serve` as a process of its own: the same handle as Apache Kafka's, for killing and for measuring."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

from tests.peers.broker_process import BrokerProcess
from tests.peers.forked import MODULE
from tests.peers.process import Process, free_ports


class OncelogServe(BrokerProcess):
    """``command``: another
    program than ``oncelog``. ``forked``: without the start of an interpreter (`tests.peers.forked`)."""

    def __init__(
        self,
        directory: Path | None = None,
        *,
        properties: Mapping[str, str] | None = None,
        port: int | None = None,
        command: Sequence[str] | None = None,
        forked: bool = False,
    ) -> None:
        super().__init__("oncelog", directory)
        self.port = port or free_ports(1)[0]
        self._properties = dict(properties or {})
        own = (*MODULE, "oncelog") if forked else (str(Path(sys.executable).with_name("oncelog")),)
        self._command = list(command or own)
        self._forked = forked
        self.ready_s = 0.0

    def use(self, command: Sequence[str] | None) -> None:
        """Run another program from its next launch on; None: this tree's, forked."""
        self._command, self._forked = list(command or (*MODULE, "oncelog")), command is None

    @property
    def is_running(self) -> bool:
        """True while its process has not ended."""
        return self._process is not None and self._process.running

    @property
    def was_launched(self) -> bool:
        """True from its launch to the end that it was given."""
        return self._process is not None

    def start(self) -> Self:
        """Run it and wait until it answers."""
        self.launch()
        return self.wait_ready()

    def launch(self) -> None:
        """Run it; it does not answer yet."""
        self.directory.mkdir(parents=True, exist_ok=True)
        command = [*self._command, "serve", "--data-dir", str(self.data_directory)]
        if "listeners" not in self._properties:
            command += ["--listen", self.bootstrap_servers]
        for key, value in self._properties.items():
            command += ["-o", f"{key}={value}"]
        self._process = Process(command, self.directory / "broker.log", forked=self._forked)

    def wait_ready(self) -> Self:
        """Wait until it answers."""
        self.ready_s = self.process.wait_ready(self.host, self.port)
        return self
