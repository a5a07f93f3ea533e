"""A broker as a process of its own, with a directory that outlives it: for killing and for measuring."""

from __future__ import annotations

import tempfile
from abc import ABC, abstractmethod
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.peers.process import Process


class BrokerProcess(ABC):
    """Not started until `start` or `with`."""

    host = "127.0.0.1"
    port: int

    def __init__(self, name: str, directory: Path | None) -> None:
        self._name = name
        self._temporary = None if directory else tempfile.TemporaryDirectory(prefix=f"{name.replace(' ', '-')}-")
        self.directory = directory or Path(self._temporary.name)  # type: ignore[union-attr]  # set when no directory is
        self.data_directory = self.directory / "data"
        self._process: Process | None = None

    @property
    def bootstrap_servers(self) -> str:
        """The addresses that clients are given."""
        return f"{self.host}:{self.port}"

    @property
    def process(self) -> Process:
        """The running broker."""
        if self._process is None:
            raise RuntimeError(f"{self._name} is not running")
        return self._process

    @abstractmethod
    def start(self) -> Self:
        """Run it, and wait until it answers."""

    def stop(self) -> int:
        """SIGTERM: a clean shutdown; the exit code."""
        code = self.process.stop()
        self._ended()
        return code

    def kill(self) -> None:
        """SIGKILL: what a crash leaves is in `data_directory`."""
        self.process.kill()
        self._ended()

    def _ended(self) -> None:
        self._process = None

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.__exit__(None, None, None)
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None:
            self.kill()
        if self._temporary is not None:
            self._temporary.cleanup()
