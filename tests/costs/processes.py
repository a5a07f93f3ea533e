"""The processor time of a process and of all that it started, also of what runs on or has lost its parent.

Linux only: it reads ``/proc``. A parent that waits for a child takes over the child's time, so that what has ended is
counted with those who are there. What has lost its parent is known from before; the time it had when it was last seen
is kept.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Final, NamedTuple

_TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")


class _Process(NamedTuple):
    parent: int
    started: int
    """In ticks since the machine's start: ids are given again."""
    ticks: int
    """Of itself and of those it waited for."""


class ProcessTree:
    """This process and its descendants."""

    def __init__(self) -> None:
        self._own = os.getpid()
        self._known: dict[int, _Process] = {}
        self._kept_ticks = 0
        self._looking_s = 0.0

    def cpu_s(self) -> float:
        """Seconds of all of them so far, but for the time that it took to look."""
        began_s = time.thread_time()
        running = dict(_running())
        for pid, last in self._known.items():
            now = running.get(pid)
            gone = now is None or now.started != last.started
            if gone and last.parent != self._own and last.parent not in self._known:
                self._kept_ticks += last.ticks
        self._known = self._descendants(running)
        ticks = self._kept_ticks + sum(each.ticks for each in self._known.values())
        of_children = os.times()
        self._looking_s += time.thread_time() - began_s
        mine_s = time.process_time() - self._looking_s
        return mine_s + of_children.children_user + of_children.children_system + ticks / _TICKS_PER_S

    def _descendants(self, running: dict[int, _Process]) -> dict[int, _Process]:
        children: dict[int, list[int]] = {}
        for pid, process in running.items():
            children.setdefault(process.parent, []).append(pid)
        without_parents = [pid for pid, last in self._known.items() if _same(running.get(pid), last)]
        found: dict[int, _Process] = {}
        waiting = [*children.get(self._own, []), *without_parents]
        while waiting:
            pid = waiting.pop()
            if pid not in found:
                found[pid] = running[pid]
                waiting += children.get(pid, [])
        return found


def _same(now: _Process | None, last: _Process) -> bool:
    return now is not None and now.started == last.started


def _running() -> list[tuple[int, _Process]]:
    found = []
    for entry in os.scandir("/proc"):
        if entry.name.isdecimal():
            try:
                fields = Path(entry.path, "stat").read_text("ascii", "replace").rpartition(")")[2].split()
            except OSError:  # has just ended
                continue
            ticks = sum(map(int, fields[11:15]))
            found.append((int(entry.name), _Process(int(fields[1]), int(fields[19]), ticks)))
    return found
