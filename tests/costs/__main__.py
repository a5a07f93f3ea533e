"""The cost of a run of the tests in processor time: ``python -m tests.costs make test``.

Durations, as pytest has them, are those of waiting, too, and leave out what happens in other processes. This counts
user and system time of everything that a test starts: brokers, JVMs, Spark's Python processes. What a whole session
shares is counted to the test that needed it first; what runs on beside later tests is counted to them.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from tests.costs.plugin import DIRECTORY

_PR_SET_CHILD_SUBREAPER: Final = 36
_NO_MORE_S: Final = 20.0
"""For what goes on after the command has ended."""
_BY: Final[dict[str, Callable[[str], str]]] = {
    "test": lambda what: what,
    "module": lambda batch: batch.partition("::")[0],
    "folder": lambda batch: "/".join(batch.partition("::")[0].split("/")[:2]),
}


def main() -> int:
    """Run the command, then print the table; returns what the command returned."""
    parser = argparse.ArgumentParser(prog="python -m tests.costs", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--by", choices=_BY, default="module", help="the rows of the table (default: %(default)s)")
    parser.add_argument("--top", type=int, default=40, help="so many rows (default: %(default)s)")
    parser.add_argument("--keep", type=Path, metavar="FILE", help="append what was measured, as JSON lines")
    parser.add_argument("command", nargs=argparse.REMAINDER, help="such as: make test, or python -m pytest tests/unit")
    options = parser.parse_args()
    if not options.command:
        parser.error("a command is needed")
    if not Path("/proc/self/stat").exists():
        parser.error("processor time of other processes is read from Linux's /proc, which is not here")
    with tempfile.TemporaryDirectory() as directory:
        began_s = time.monotonic()
        returned, cpu_s = _run(options.command, Path(directory))
        wall_s = time.monotonic() - began_s
        lines = [*_lines(Path(directory))]
    if options.keep:
        with options.keep.open("a", encoding="utf-8") as kept:
            kept.writelines(json.dumps(line) + "\n" for line in lines)
    _print(lines, _BY[options.by], options.top)
    known_s = sum(line["cpu_s"] for line in lines)
    print(f"{cpu_s - known_s:9.1f}           what is not pytest, and what a test started and left alone")
    print(f"{cpu_s:9.1f} {wall_s:9.1f} in all: {cpu_s / wall_s:.2f} processors busy on average")
    return returned


def _run(command: list[str], directory: Path) -> tuple[int, float]:
    """The exit code, and seconds of processor time of all that it started, directly or not."""
    # Whoever loses its parent becomes a child of this process, which so learns of its time.
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    options = f"{os.environ.get('PYTEST_ADDOPTS', '')} -p tests.costs.plugin"
    process = subprocess.Popen(command, env={**os.environ, DIRECTORY: str(directory), "PYTEST_ADDOPTS": options})
    while (ended := os.waitpid(-1, 0))[0] != process.pid:
        pass
    process.returncode = os.waitstatus_to_exitcode(ended[1])
    deadline_s = time.monotonic() + _NO_MORE_S
    while time.monotonic() < deadline_s:
        try:
            if not os.waitpid(-1, os.WNOHANG)[0]:
                time.sleep(0.1)
        except ChildProcessError:
            break
    else:
        print("tests.costs: something still runs, and is not counted", file=sys.stderr)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return process.returncode, used.ru_utime + used.ru_stime


def _lines(directory: Path) -> Iterator[dict[str, Any]]:
    for path in sorted(directory.glob("*.jsonl")):
        yield from map(json.loads, path.read_text("utf-8").splitlines())


def _print(lines: list[dict[str, Any]], name: Callable[[str], str], top: int) -> None:
    rows: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0, 0])
    for line in lines:
        row = rows[name(line["what"])]
        for at, value in enumerate((line["cpu_s"], line["wall_s"], 1)):
            row[at] += value
    print(f"\n{'cpu s':>9} {'wall s':>9} {'times':>7}")
    for text, (cpu_s, wall_s, times) in sorted(rows.items(), key=lambda item: -item[1][0])[:top]:
        print(f"{cpu_s:9.1f} {wall_s:9.1f} {times:7.0f} {text}")


if __name__ == "__main__":
    sys.exit(main())
