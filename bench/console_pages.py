"""The console on a broker with ten thousand topics: its start, its pages, its memory, and what it costs the broker.

Rules: broker, console and command line are processes of their own. A page's time is the least of some looks, each later
than the console remembers anything, since other work on the machine only adds to it; CPU times are the kernel's. The
other side of a page is the command line that shows the same: what counts is what the broker has to do for either.
Requests and their bytes are the same in every run (but for 8 bytes of each: the console has a longer client id); CPU
time has ticks of 10 ms, spread over some looks and commands, and what the broker takes with nobody asking is not in it
(between two looks it has seconds for that). ApiVersions, which new connections begin with, is not
counted. Byte code is on the disk, as an installation leaves it.
"""

from __future__ import annotations

import http.client
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple

from bench.options import Options, progress
from bench.report import Comparison, Figures, paired
from oncelog.client.blocking import Client
from oncelog.console.cluster.recent import MAX_AGE_S
from oncelog.console.rendering import ROWS_A_PAGE
from oncelog.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest

TOPICS: Final = 10_000
_TOPICS_A_REQUEST: Final = 1000
_LOOKS: Final = 10
_COMMANDS: Final = 5
"""Times that each command is run."""
_STARTS: Final = 5
_IDLE_S: Final = 10
_TOPIC: Final = "orders.region-00001.v1"
_SHOWN: Final = tuple(f"orders.region-{number:05d}.v1" for number in range(ROWS_A_PAGE))
_FILTERED: Final = tuple(name for number in range(TOPICS) if "9" in (name := f"orders.region-{number:05d}.v1"))[
    :ROWS_A_PAGE
]
Command = tuple[str, ...]
PAGES: Final[Mapping[str, tuple[Command, ...]]] = {
    "/overview": (("cluster", "status"), ("txn", "find-hanging")),
    "/topics": (("topic", "list"), ("topic", "describe", "--sizes", *_SHOWN)),
    "/topics?filter=9": (("topic", "list"), ("topic", "describe", "--sizes", *_FILTERED)),
    f"/topics/one?name={_TOPIC}": (("topic", "describe", "--sizes", "--all-configs", _TOPIC),),
    "/transactions": (("txn", "find-hanging"),),
    "/groups": (("group", "list"),),
    "/producers?topic=" + _TOPIC: (("txn", "producers", _TOPIC),),
    f"/explain?kind=topic&name={_TOPIC}": (("explain", "topic", _TOPIC),),
}
"""Pages, and the commands that show of a cluster what the page does."""
_OF_ALL_TOPICS: Final = ("/overview", "/topics", "/topics?filter=9", "/transactions")
"""Pages that cost the broker more than a tick; of the others its CPU time says nothing."""
_READY: Final = re.compile(rb"(?:ready on|at http://)\s*([\d.]+:\d+)")
_HERE: Final = "127.0.0.1:0"


@dataclass(slots=True)
class _Process:
    """A process and the address it has told."""

    process: subprocess.Popen[bytes]
    address: str
    started_s: float

    def cpu_s(self) -> float:
        """User and system time so far."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def peak_mb(self) -> float:
        """The most memory it ever held, MB."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.partition("VmHWM:")[2].split()[0]) / 1000


@contextmanager
def running(*command: str) -> Iterator[_Process]:
    """A command of oncelog's that serves, until the block ends."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    started_s = time.perf_counter()
    whole = (sys.executable, "-u", "-m", "oncelog", *command)
    with subprocess.Popen(whole, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment) as process:
        assert process.stdout is not None
        try:
            result = next((match for line in process.stdout if (match := _READY.search(line))), None)
            if result is None:
                raise RuntimeError(f"it did not start: {' '.join(whole)}")
            yield _Process(process, result[1].decode(), started_s)
        finally:
            process.send_signal(signal.SIGTERM)
            process.stdout.close()
            process.wait()


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def console_command(bootstrap: str) -> tuple[str, ...]:
    listen = f"127.0.0.1:{_free_port()}"
    return ("console", "--bootstrap-server", bootstrap, "--listen", listen, "--sample-every", "0")


def _page(address: str, path: str) -> float:
    """Seconds until a page is there, whole; tried until somebody listens and the cluster answered in time."""
    host, _, port = address.partition(":")
    began_s = time.perf_counter()
    while True:
        try:
            with closing(http.client.HTTPConnection(host, int(port), timeout=120)) as connection:
                connection.request("GET", path)
                answer = connection.getresponse()
                answer.read()
        except ConnectionRefusedError:
            if time.perf_counter() - began_s > 60:
                raise
            time.sleep(0.005)
            continue
        if answer.status == 503 and time.perf_counter() - began_s < 120:
            continue
        if answer.status != 200:
            raise RuntimeError(f"{path} answered {answer.status}")
        return time.perf_counter() - began_s


def start_and_pages(options: Options) -> Comparison:
    """The console with 10,000 topics: its start, its pages, its memory; the broker's work beside the command line's."""
    count = options.scaled(TOPICS)
    goals = {"first page, s": "≤ 0.5 s", "memory, MB": "≤ 150 MB"}
    goals |= {f"{path}, s": "≤ 0.3 s" for path in PAGES}
    goals |= {f"broker for {path}, requests": "≤ 1 ×" for path in PAGES}
    goals |= {f"broker for {path}, CPU s": "≤ 1 ×" for path in _OF_ALL_TOPICS}
    with TemporaryDirectory(prefix="oncelog-bench-") as directory:
        metrics = f"127.0.0.1:{_free_port()}"
        serving = ("serve", "--data-dir", directory, "--listen", _HERE, "--http", metrics, "-o", "log.sync.policy=none")
        with running(*serving) as broker:
            create_many(broker.address, count)
            sides = (lambda _: _by_console(broker, metrics), lambda _: _by_commands(broker, metrics))
            comparison = Comparison(f"Console, {count:,} topics", "console", "command line", goals)
            return paired(comparison, sides, options.repeat, progress)


def create_many(bootstrap: str, count: int) -> None:
    """Topics of one partition each."""
    with Client(bootstrap) as client:
        for start in range(0, count, _TOPICS_A_REQUEST):
            names = [f"orders.region-{number:05d}.v1" for number in range(start, min(count, start + _TOPICS_A_REQUEST))]
            topics = [CreatableTopic(name=item, num_partitions=1, replication_factor=1) for item in names]
            client.request(CreateTopicsRequest(topics=topics, timeout_ms=120_000), timeout_ms=120_000)


def _by_console(broker: _Process, metrics: str) -> Figures:
    """Starts of a console, then each page some times."""
    figures: dict[str, float] = {}
    starts = []
    for _ in range(_STARTS):
        with running(*console_command(broker.address)) as console:
            _page(console.address, "/groups")
            starts.append((time.perf_counter() - console.started_s, console.cpu_s()))
    figures["first page, s"] = min(wall_s for wall_s, _ in starts)
    figures["first page, CPU s"] = min(cpu_s for _, cpu_s in starts)
    with running(*console_command(broker.address)) as console:
        idle = _idle(broker)
        for path in PAGES:
            _page(console.address, path)
            looks, cpu_s, before = [], console.cpu_s(), _work(broker, metrics)
            for _ in range(_LOOKS):
                time.sleep(MAX_AGE_S + 0.05)
                looks.append(_page(console.address, path))
            figures |= _broker_figures(path, before, _work(broker, metrics, is_over=True), _LOOKS, idle)
            figures[f"{path}, s"] = min(looks)
            figures[f"{path}, console CPU s"] = (console.cpu_s() - cpu_s) / _LOOKS
        figures["memory, MB"] = console.peak_mb()
    return figures


def _by_commands(broker: _Process, metrics: str) -> Figures:
    """The commands of each page, as what the broker has to do for them."""
    figures: dict[str, float] = {}
    idle = _idle(broker)
    for path, commands in PAGES.items():
        before = _work(broker, metrics)
        began_s = time.perf_counter()
        for command in commands * _COMMANDS:
            whole = (sys.executable, "-m", "oncelog", *command, "--bootstrap-server", broker.address)
            subprocess.run(whole, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        figures[f"{path}, s"] = (time.perf_counter() - began_s) / _COMMANDS
        figures |= _broker_figures(path, before, _work(broker, metrics, is_over=True), _COMMANDS, idle)
    return figures


def _broker_figures(path: str, before: _Work, after: _Work, times: int, idle: float) -> Figures:
    """The work of one look or command; ``idle`` is the CPU time that the broker takes in a second of nobody's."""
    cpu_s = after.cpu_s - before.cpu_s - idle * (after.at_s - before.at_s)
    return {
        f"broker for {path}, requests": (after.requests - before.requests) / times,
        f"broker for {path}, bytes": (after.size_bytes - before.size_bytes) / times,
        f"broker for {path}, CPU s": max(0.0, cpu_s) / times,
    }


def _idle(broker: _Process) -> float:
    """CPU time that the broker takes in a second in which nobody asks it anything."""
    cpu_s = broker.cpu_s()
    time.sleep(_IDLE_S)
    return (broker.cpu_s() - cpu_s) / _IDLE_S


class _Work(NamedTuple):
    """The work of a broker up to a moment, and that moment."""

    requests: float
    size_bytes: float
    cpu_s: float
    at_s: float


def _work(broker: _Process, metrics: str, *, is_over: bool = False) -> _Work:
    """Requests, their bytes, and CPU time of the broker so far, without that of telling it; ApiVersions, of new
    connections, are not counted. ``is_over``: this ends what is measured."""
    at_s, cpu_s = time.perf_counter(), broker.cpu_s()
    with urllib.request.urlopen(f"http://{metrics}/metrics", timeout=60) as answer:
        text = answer.read().decode()
    findall = re.findall(r'^oncelog_request(s|_bytes)_total\{api="(?!ApiVersions)[^"]*"\} (\S+)$', text, re.MULTILINE)
    requests = sum(float(value) for kind, value in findall if kind == "s")
    size = sum(float(value) for kind, value in findall if kind == "_bytes")
    if not is_over:
        at_s, cpu_s = time.perf_counter(), broker.cpu_s()
    return _Work(requests, size, cpu_s, at_s)
