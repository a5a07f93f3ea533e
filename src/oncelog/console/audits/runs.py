"""An audit run by this console: ``oncelog audit`` in a child process, with its progress and result.

One runs at a time, because it uses all of a machine's disks and cores. It has its own process group, so that cancelling
it leaves no JVM behind. Its output goes to files and is read with bounds.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Final, Literal

from oncelog.base.notation.shell_words import word
from oncelog.base.python_process import python_module
from oncelog.client.errors import ClientError

RunState = Literal["running", "done", "failed", "cancelled"]
_KILL_AFTER_S: Final = 10.0
_KEPT_LINES: Final = 20
_MAX_LINE_BYTES: Final = 4096


class AuditRun:
    """One audit. A watcher thread writes the attributes; any thread may read them."""

    def __init__(
        self,
        key: str,
        directories: Sequence[str],
        command: Sequence[str],
        report: Path,
        user: str,
        ended: Ended = lambda run, state: None,
    ) -> None:
        """Start the process. ``ended`` is called once, when it has ended. Raises OSError."""
        self.key = key
        self.directories = tuple(directories)
        self.command = tuple(command)
        self.report = report
        self.user = user
        self.started_ms = int(time.time() * 1000)
        self.ended_ms: int | None = None
        self.state: RunState = "running"
        self.step = "starting"
        self.done = 0
        self.total = 0
        self.messages: list[str] = []
        self._cancelled = threading.Event()
        self._ended = ended
        with report.open("wb") as out:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.PIPE, start_new_session=True
            )
        self._watcher = threading.Thread(target=self._watch, name="oncelog-console-audit", daemon=True)
        self._watcher.start()

    @property
    def is_over(self) -> bool:
        return self.state != "running"

    def cancel(self) -> None:
        """Stop the process and its children; ``state`` changes once they have ended."""
        if not self.is_over and not self._cancelled.is_set():
            self._cancelled.set()
            self._signal(signal.SIGTERM)
            killer = threading.Timer(_KILL_AFTER_S, self._signal, (signal.SIGKILL,))
            killer.daemon = True
            killer.start()

    def wait(self, timeout_s: float) -> bool:
        self._watcher.join(timeout_s)
        return self.is_over

    def _signal(self, number: signal.Signals) -> None:
        if not self.is_over:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, number)

    def _watch(self) -> None:
        assert self._process.stderr is not None
        with self._process.stderr as lines:
            while line := lines.readline(_MAX_LINE_BYTES):
                self._read_line(line.decode(errors="replace").rstrip())
        code = self._process.wait()
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)  # Kill any child it left behind, such as a JVM.
        self.ended_ms = int(time.time() * 1000)
        state: RunState = "cancelled" if self._cancelled.is_set() else "done" if code == 0 else "failed"
        try:
            self._ended(self, state)
        except ClientError as error:
            self._read_line(str(error))
        self.state = state

    def _read_line(self, line: str) -> None:
        with contextlib.suppress(ValueError, TypeError, KeyError, RecursionError):
            progress = json.loads(line)
            self.step, self.done, self.total = str(progress["step"]), int(progress["done"]), int(progress["total"])
            return
        if line:
            self.messages = [*self.messages[-_KEPT_LINES:], line]


Ended = Callable[[AuditRun, RunState], None]
Start = Callable[[str, Sequence[str], Sequence[str], Path, str, Ended], AuditRun]


def command_of(directories: Sequence[str], *, copied_within_s: int | None, check_crc: bool) -> list[str]:
    """The command line of an audit, without the options meant for programs."""
    command = ["oncelog", "audit"]
    if copied_within_s is not None:
        command += ["--copied-within", str(copied_within_s)]
    if not check_crc:
        command.append("--no-crc")
    return [*command, "--json", "--", *directories]


def process_of(command: Sequence[str]) -> list[str]:
    """The arguments of a child process that runs the command and reports progress."""
    return python_module(*command[:2], "--progress", *command[2:])


def typed(process: Sequence[str]) -> str:
    """The command line of such a process, as a user would type it."""
    arguments = process[len(python_module("oncelog")) :]
    return " ".join(word(argument) for argument in ("oncelog", *arguments) if argument != "--progress")


def lacking() -> list[str]:
    """The packages and programs that an audit needs and that are not installed."""
    missing = []
    if any(find_spec(package) is None for package in ("numpy", "pyarrow", "pyspark")):
        missing.append('the extra "spark": pip install "oncelog[spark]"')
    home = os.environ.get("JAVA_HOME")
    if not (home and Path(home, "bin", "java").exists()) and shutil.which("java") is None:
        missing.append("Java 17 or later for Spark, in the PATH or named by JAVA_HOME")
    return missing
