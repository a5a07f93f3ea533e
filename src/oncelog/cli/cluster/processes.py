"""Brokers as child processes: started, watched and ended, never restarted.

Each child is ``oncelog serve`` with its own properties file and its own session, so that Ctrl-C in the terminal reaches
only this process. It ends with this process (``cli.child_process``). Its output goes to a file beside its data.
"""

from __future__ import annotations

import contextlib
import queue
import re
import signal
import subprocess
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from oncelog.base.private_files import private_opener
from oncelog.base.python_process import python_module

READY: Final = re.compile(r"oncelog \S+ ready on (\S+) ")
"""The line of ``oncelog serve`` that names its address."""
STOP_S: Final = 40.0
"""After SIGTERM: a little more than a broker gives itself to come to rest."""


class Ready(NamedTuple):
    broker_id: int
    address: str


class Ended(NamedTuple):
    """A broker's process has ended; a negative exit code is the signal."""

    broker_id: int
    exit_code: int


@dataclass(frozen=True, slots=True)
class BrokerPlan:
    broker_id: int
    properties: Path
    log: Path
    data_directory: Path


class BrokerProcesses:
    def __init__(self) -> None:
        self._children: dict[int, subprocess.Popen[str]] = {}
        self._events: queue.SimpleQueue[Ready | Ended] = queue.SimpleQueue()

    def __enter__(self) -> BrokerProcesses:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill(self._children)

    def start(self, plan: BrokerPlan) -> None:
        """Starts a broker. ``next_event`` returns ``Ready`` or ``Ended`` for it."""
        command = python_module("oncelog.cli.child_process", "serve", "--config", str(plan.properties))
        with open(plan.log, "ab", opener=private_opener) as log:
            child = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                encoding="utf-8",
                errors="replace",
                start_new_session=True,
            )
        self._children[plan.broker_id] = child
        threading.Thread(target=self._read, args=(plan, child), name=f"broker-{plan.broker_id}", daemon=True).start()

    def next_event(self) -> Ready | Ended:
        """Waits for the next event of any broker. Ctrl-C raises KeyboardInterrupt here."""
        while True:
            with contextlib.suppress(queue.Empty):  # waits in slices: not everywhere does a signal end a lock's wait
                return self._events.get(timeout=1.0)

    def pid(self, broker_id: int) -> int:
        return self._children[broker_id].pid

    def running(self) -> list[int]:
        return [broker_id for broker_id, child in self._children.items() if child.poll() is None]

    def stop(self, timeout_s: float = STOP_S) -> dict[int, int]:
        """Sends SIGTERM to each broker, and SIGKILL after ``timeout_s``; returns the exit codes by broker."""
        deadline = time.monotonic() + timeout_s
        running = self.running()
        for broker_id in running:
            self._children[broker_id].send_signal(signal.SIGTERM)
        for broker_id in running:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._children[broker_id].wait(max(0.0, deadline - time.monotonic()))
        self.kill(running)
        return {broker_id: self._children[broker_id].returncode for broker_id in running}

    def kill(self, brokers: Iterable[int]) -> None:
        for broker_id in brokers:
            child = self._children[broker_id]
            if child.poll() is None:
                child.kill()
            child.wait()
            if child.stdin is not None:
                child.stdin.close()

    def _read(self, plan: BrokerPlan, child: subprocess.Popen[str]) -> None:
        """Runs in a thread of its own."""
        assert child.stdout is not None
        with child.stdout, plan.log.open("a", encoding="utf-8") as log:
            for line in child.stdout:
                log.write(line)
                log.flush()
                ready = READY.match(line)
                if ready is not None:
                    self._events.put(Ready(plan.broker_id, ready[1]))
        self._events.put(Ended(plan.broker_id, child.wait()))
