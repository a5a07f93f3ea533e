"""The command line against the in-process broker: real arguments, real sockets, our process."""

from __future__ import annotations

import io
import os
import re
import sys
from collections.abc import Callable
from typing import NamedTuple

import pytest

from oncelog.cli.main import invoke
from oncelog.testing import Broker


class Ran(NamedTuple):
    """The output and the exit code of a command line."""

    code: int
    out: str
    err: str


Run = Callable[..., Ran]
_RDKAFKA_LINE = re.compile(r"^%\d\|[\d.]+\|\w+\|rdkafka#.*\n", re.MULTILINE)
"""A line that librdkafka logs to stderr: a client of an earlier test may live until it is collected."""


@pytest.fixture
def run_at(capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Run]:
    """``run`` for any cluster, by its bootstrap servers."""

    def at(bootstrap_servers: str) -> Run:
        def run_it(*arguments: str, stdin: bytes = b"") -> Ran:
            monkeypatch.setenv("ONCELOG_BOOTSTRAP_SERVERS", bootstrap_servers)
            reading, writing = os.pipe()
            os.write(writing, stdin)
            os.close(writing)
            with os.fdopen(reading, "rb") as given:
                monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(given))
                code = invoke(list(arguments))
            sys.stdout.flush()
            sys.stderr.flush()
            out, err = capfdbinary.readouterr()
            return Ran(code, out.decode("utf-8", "backslashreplace"), _RDKAFKA_LINE.sub("", err.decode()))

        return run_it

    return at


@pytest.fixture
def run(oncelog_broker: Broker, run_at: Callable[[str], Run]) -> Run:
    """Run ``oncelog`` with arguments (and ``stdin``) against the in-process broker."""
    return run_at(oncelog_broker.bootstrap_servers)
