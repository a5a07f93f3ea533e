"""The console's process: what it takes over from a service manager."""

from __future__ import annotations

import os

import pytest

from oncelog.cli.processes.console_process import _sockets_of_unit
from oncelog.client.errors import ConfigError
from oncelog.console.settings import Settings


def test_sockets_that_cannot_be_taken_over_refuse_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LISTEN_PID", str(os.getpid()))
    monkeypatch.setenv("LISTEN_FDS", "9" * 5000)
    with pytest.raises(ConfigError, match="the socket unit hands over more than 16 sockets"):
        _sockets_of_unit(Settings("127.0.0.1:9092"))
