"""`oncelog console` under measurement, as a process of its own that is asked over HTTP.

The search reads a topic of records of 100 B for a word that none of them has: everything has to be read. Beside it,
`kcat | grep` on the same topic and broker (Debian's package kcat). Throughput is of wall-clock time, brokers and all;
processor time is of the searching processes alone.
"""

from __future__ import annotations

import contextlib
import resource
import shutil
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from tests.peers.process import Process, free_ports
from tests.waiting import wait_until

from bench.options import Options, progress
from bench.peers import Broker, create_topics, running
from bench.report import Comparison, Figures, paired
from bench.workloads import produce

_RECORD_BYTES: Final = 100
_PARTITIONS: Final = 4
_NEEDLE: Final = "needle-in-no-record"
_NOTHING: Final = "Nothing found: everything was read."
SEARCH_GOALS: Final = {"records/s of a core": "≥ 1,000,000", "peak memory, MB": "≤ 150"}


@contextlib.contextmanager
def console_of(broker: Broker, directory: Path) -> Iterator[tuple[Process, str]]:
    """A console of a broker, ready, and its address."""
    (port,) = free_ports(1)
    address = f"http://127.0.0.1:{port}"
    options = ["--bootstrap-servers", broker.bootstrap_servers, "--listen", f"127.0.0.1:{port}"]
    console = Process([sys.executable, "-m", "oncelog", "console", *options], directory / "console.log")
    try:
        wait_until(lambda: _answers(address), console.log_tail, poll_s=0.01)
        yield console, address
    finally:
        console.kill()


def _answers(address: str) -> bool:
    try:
        return bool(urllib.request.urlopen(f"{address}/health.json", timeout=5).status == 200)
    except OSError:
        return False


def search(options: Options) -> Comparison:
    """A search of the console through all of a topic of 100 B records, beside kcat | grep on the same topic."""
    kcat = shutil.which("kcat")
    if kcat is None:
        raise SystemExit("bench: console-search needs kcat: apt-get install kcat")
    count = options.scaled(4_000_000)
    with (
        TemporaryDirectory(prefix="oncelog-bench-") as directory,
        running(options.ours.broker(Path(directory))) as broker,
        console_of(broker, Path(directory)) as (console, address),
    ):
        (topic,) = create_topics(broker, 1, _PARTITIONS, "searched")
        for partition in range(_PARTITIONS):
            produce(broker, topic, _RECORD_BYTES, count // _PARTITIONS, partition=partition)

        def ours(_number: int) -> Figures:
            began, cpu = time.perf_counter(), console.cpu_seconds()
            path = f"{address}/messages/search-events?topic={topic}&q={_NEEDLE}"
            events = urllib.request.urlopen(path, timeout=600).read().decode()
            if _NOTHING not in events:
                raise RuntimeError(f"the search did not read everything: {events[-500:]}")
            figures = _figures(count, time.perf_counter() - began, console.cpu_seconds() - cpu)
            return figures | {"peak memory, MB": console.peak_resident_bytes() / 1e6}

        def theirs(_number: int) -> Figures:
            command = f"{kcat} -C -e -q -o beginning -b {broker.bootstrap_servers} -t {topic} | grep -c {_NEEDLE}"
            began, cpu = time.perf_counter(), _children_s()
            found = subprocess.run(command, shell=True, capture_output=True, text=True, timeout=600, check=False)
            if found.stdout.strip() != "0":
                raise RuntimeError(f"kcat | grep failed: {found.stderr[-500:]}")
            return _figures(count, time.perf_counter() - began, _children_s() - cpu)

        title = f"A search through {count:,} records of {_RECORD_BYTES} B, {_PARTITIONS} partitions"
        comparison = Comparison(title, "oncelog console", "kcat | grep", SEARCH_GOALS)
        return paired(comparison, (ours, theirs), options.repeat, progress)


def _figures(count: int, elapsed_s: float, cpu_s: float) -> dict[str, float]:
    return {
        "records/s": count / elapsed_s,
        "records/s of a core": count / max(cpu_s, 0.01),
        "CPU s/million records": cpu_s / count * 1e6,
    }


def _children_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


CONSOLE_BENCHMARKS: Final = {"console-search": search}
