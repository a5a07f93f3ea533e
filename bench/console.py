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

from bench.console_memory import memory
from bench.console_pages import start_and_pages
from bench.options import Options, progress
from bench.peers import Broker, create_topics, running
from bench.report import Comparison, Figures, paired
from bench.transactions import loaded_s, transactional_producer, write_ids
from bench.workloads import produce

_RECORD_BYTES: Final = 100
_PARTITIONS: Final = 4
_NEEDLE: Final = "needle-in-no-record"
_NOTHING: Final = "Nothing found in all records."
SEARCH_GOALS: Final = {"records/s of a core": "≥ 1,000,000", "peak memory, MB": "≤ 150"}
IDS_GOALS: Final = {"peak memory, MB": "≤ 150 MB on both sides"}


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
            result = subprocess.run(command, shell=True, capture_output=True, text=True, timeout=600, check=False)
            if result.stdout.strip() != "0":
                raise RuntimeError(f"kcat | grep failed: {result.stderr[-500:]}")
            return _figures(count, time.perf_counter() - began, _children_s() - cpu)

        title = f"A search through {count:,} records of {_RECORD_BYTES} B, {_PARTITIONS} partitions"
        comparison = Comparison(title, "oncelog console", "kcat | grep", SEARCH_GOALS)
        return paired(comparison, (ours, theirs), options.repeat, progress)


def ids(options: Options) -> Comparison:
    """Pages of 1,000,000 transactional ids: the first, and one from the middle, with the console's memory."""
    count = options.scaled(1_000_000)
    with TemporaryDirectory(prefix="oncelog-bench-") as directory:
        broker = options.ours.broker(Path(directory))
        with running(broker):
            transactional_producer(broker, "first")  # makes the internal topic
            broker.kill()
            write_ids(broker.data_directory, count)
            broker.start()
            loaded_s(broker, count)
            with console_of(broker, Path(directory)) as (console, address):
                title = f"Pages of {count:,} transactional ids"
                comparison = Comparison(title, "console", "all of them by txn list", IDS_GOALS)

                def ours(_number: int) -> Figures:
                    path = f"{address}/transactions/ids"
                    first = _page_s(path, f"of {count + 1:,}")
                    middle = _page_s(f"{path}?after=loaded-5", f"of {count + 1:,}")
                    return {"s": first, "a page in the middle, s": middle, **_memory(console)}

                def theirs(_number: int) -> Figures:
                    command = [sys.executable, "-m", "oncelog", "txn", "list", "--json"]
                    command += ["-X", "request.timeout.ms=120000", "--bootstrap-servers", broker.bootstrap_servers]
                    return _listing(command, Path(directory, "list.json"))

                return paired(comparison, (ours, theirs), min(options.repeat, 2), progress)


def _listing(command: list[str], output: Path) -> Figures:
    """A command that writes a file. Its peak is what the kernel says while it runs: what is said at its end (ru_maxrss)
    has that of this process in it, which it was forked from."""
    began, cpu_s, peak = time.perf_counter(), _children_s(), 0
    with output.open("wb") as file, subprocess.Popen(command, stdout=file) as listing:
        while listing.poll() is None:
            with contextlib.suppress(OSError, StopIteration):
                lines = Path(f"/proc/{listing.pid}/status").read_text().splitlines()
                peak = max(peak, next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:")))
            time.sleep(0.02)
    if listing.returncode:
        raise RuntimeError(f"txn list failed: {listing.returncode}")
    elapsed_s = time.perf_counter() - began
    return {"s": elapsed_s, "CPU s": _children_s() - cpu_s, "peak memory, MB": peak / 1e6}


def _page_s(address: str, expected: str) -> float:
    began = time.perf_counter()
    with urllib.request.urlopen(address, timeout=120) as answer:
        text = answer.read().decode()
    if expected not in text:
        raise RuntimeError(f"{address} does not show {expected!r}: {text[-2000:]}")
    return time.perf_counter() - began


def _memory(console: Process) -> dict[str, float]:
    return {"peak memory, MB": console.peak_resident_bytes() / 1e6, "memory after, MB": console.resident_bytes() / 1e6}


def _figures(count: int, elapsed_s: float, cpu_s: float) -> dict[str, float]:
    return {
        "records/s": count / elapsed_s,
        "records/s of a core": count / max(cpu_s, 0.01),
        "CPU s/million records": cpu_s / count * 1e6,
    }


def _children_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


CONSOLE_BENCHMARKS: Final = {
    "console-search": search,
    "console-ids": ids,
    "console-pages": start_and_pages,
    "console-memory": memory,
}
