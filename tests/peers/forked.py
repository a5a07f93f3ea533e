"""Processes of Python that begin with their imports done.

Tests that kill brokers and clients start dozens of them, and most of what each does is to start: 0.3 s of processor
time for an interpreter and five hundred modules. Here one server, started when first asked, has imported them, and
forks (`multiprocessing`'s forkserver). What is forked is a process like any other: its own id, its own memory, SIGKILL
and SIGSTOP. For tests of how a program starts, or of what it holds in memory, it is not.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import runpy
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from multiprocessing.context import ForkServerContext, ForkServerProcess
from pathlib import Path
from typing import Final

_PRELOADED: Final = (
    "oncelog.cli.processes.broker_process",
    "oncelog.node.assembly",
    "oncelog.runtime.server",
    "uvloop",
    "tests.interop.consistency.with_aiokafka",
    "tests.interop.consistency.with_confluent",
    "tests.interop.consistency.with_oncelog",
)
"""None of them starts a thread; modules that a process runs as its program are not among them."""
MODULE: Final = (sys.executable, "-m")


class ForkedProcess:
    """The process of a command that begins with ``MODULE``, with `subprocess.Popen`'s methods."""

    def __init__(self, command: Sequence[str], log: Path, environment: Mapping[str, str] | None = None) -> None:
        if tuple(command[:2]) != MODULE:
            raise ValueError(f"only a module of this Python can be forked, not {command[0]}")
        everything = {**os.environ, **(environment or {})}
        self._command = command
        self._process: ForkServerProcess = _context().Process(target=_run, args=(command[2:], log, everything))
        self._process.daemon = True  # ended with this process, if a test leaves it
        self._process.start()
        self.pid: Final = self._process.pid or 0

    @property
    def returncode(self) -> int | None:
        """None while it runs; negative: the signal that ended it."""
        return self._process.exitcode

    def poll(self) -> int | None:
        """As ``returncode``."""
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Return with the exit code; raises subprocess.TimeoutExpired."""
        self._process.join(timeout)
        code = self.returncode
        if code is None:
            raise subprocess.TimeoutExpired(self._command, timeout or 0)
        return code

    def send_signal(self, number: signal.Signals) -> None:
        """Nothing happens to a process that has ended."""
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):  # its end is known to the server before it is here
                os.kill(self.pid, number)

    def kill(self) -> None:
        """SIGKILL."""
        self.send_signal(signal.SIGKILL)


@cache
def _context() -> ForkServerContext:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([*_PRELOADED])
    return context


def _run(module_and_arguments: Sequence[str], log: Path, environment: Mapping[str, str]) -> None:
    os.setsid()
    os.environ.clear()
    os.environ.update(environment)
    opened = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    os.dup2(opened, sys.stdout.fileno())
    os.dup2(opened, sys.stderr.fileno())
    module, *arguments = module_and_arguments
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)
