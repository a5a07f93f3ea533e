"""The processor time of a process and of all that it started, also of what runs on or has lost its parent.

Linux only: it reads ``/proc``. A parent that waits for a child takes over the child's time; what nobody has waited for,
since its parent was killed with it or does not care, is counted as far as it had come when it was last seen.
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
    of_children: int
    """Of those that it waited for."""


class ProcessTree:
    """This process and its descendants."""

    def __init__(self) -> None:
        self._own = os.getpid()
        self._known: dict[int, _Process] = {}
        self._of_children = 0
        self._kept_ticks = 0
        self._looking_s = 0.0

    def cpu_s(self) -> float:
        """Seconds of all of them so far, but for the time that it took to look."""
        began_s = time.thread_time()
        running = dict(_running())
        times = os.times()
        of_children = round((times.children_user + times.children_system) * _TICKS_PER_S)
        self._keep_what_nobody_took(running, of_children)
        self._known, self._of_children = self._descendants(running), of_children
        ticks = self._kept_ticks + of_children + sum(item.ticks + item.of_children for item in self._known.values())
        self._looking_s += time.thread_time() - began_s
        return time.process_time() - self._looking_s + ticks / _TICKS_PER_S

    def _keep_what_nobody_took(self, running: dict[int, _Process], of_children: int) -> None:
        """Of what has ended, count what did not go over to the next ancestor that runs."""
        ended: dict[int, int] = {}
        for pid, last in self._known.items():
            if not _same(running.get(pid), last):
                heir = self._heir(last.parent, running)
                ended[heir] = ended.get(heir, 0) + last.ticks + last.of_children
        for heir, ticks in ended.items():
            if heir == self._own:
                taken = of_children - self._of_children
            elif heir in running:
                taken = running[heir].of_children - self._known[heir].of_children
            else:
                taken = 0
            self._kept_ticks += max(0, ticks - taken)

    def _heir(self, pid: int, running: dict[int, _Process]) -> int:
        """The next ancestor that runs and is one of ours; 0: there is none."""
        while pid != self._own:
            last = self._known.get(pid)
            if last is None:
                return 0
            if _same(running.get(pid), last):
                return pid
            pid = last.parent
        return pid

    def _descendants(self, running: dict[int, _Process]) -> dict[int, _Process]:
        children: dict[int, list[int]] = {}
        for pid, process in running.items():
            children.setdefault(process.parent, []).append(pid)
        without_parents = [pid for pid, last in self._known.items() if _same(running.get(pid), last)]
        results: dict[int, _Process] = {}
        waiting = [*children.get(self._own, []), *without_parents]
        while waiting:
            pid = waiting.pop()
            if pid not in results:
                results[pid] = running[pid]
                waiting += children.get(pid, [])
        return results


def _same(now: _Process | None, last: _Process) -> bool:
    return now is not None and now.started == last.started


def _running() -> list[tuple[int, _Process]]:
    results = []
    for entry in os.scandir("/proc"):
        if entry.name.isdecimal():
            try:
                fields = Path(entry.path, "stat").read_text("ascii", "replace").rpartition(")")[2].split()
            except OSError:  # has just ended
                continue
            own, of_children = sum(map(int, fields[11:13])), sum(map(int, fields[13:15]))
            results.append((int(entry.name), _Process(int(fields[1]), int(fields[19]), own, of_children)))
    return results
