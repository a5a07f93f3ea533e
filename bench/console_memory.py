"""The memory of a console while values of 10 MB are looked at: pages, searches and downloads, alone and together.

Rules: each case has a console of its own, whose most resident memory is the kernel's (VmHWM), with that of the process
that decodes values. Values are of three kinds, since text of other planes takes four bytes a character in Python: bytes
that are no text, ASCII, and text with one character of another plane. Browsers read as fast as they can.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from bench.console_pages import console_command, running
from bench.options import Options, progress
from bench.report import Comparison, Figures, paired
from oncelog.admin.topics import NewTopic, create_topic
from oncelog.base.ids import TopicName, TopicPartition
from oncelog.client.blocking.client import Client
from oncelog.records.builder import build_batch
from oncelog.records.record import Record

_VALUE_BYTES: Final = 10_000_000
_RECORDS_OF_A_KIND: Final = 3
_TOPIC: Final = "large"
_SMALL_TOPIC: Final = "small"
_SMALL_RECORDS: Final = 100_000
GOAL_MB: Final = 150
_PAGE: Final = f"/messages?topic={_TOPIC}&from=first"
_JSON: Final = f"/messages/one.json?topic={_TOPIC}&partition=0&offset=2"
_SEARCH: Final = f"/messages/search-events?topic={_TOPIC}&q=nothing-has-this"
_HITS: Final = f"/messages/search-events?topic={_TOPIC}&q=a"
_LINES: Final = f"/messages/download?topic={_TOPIC}&isolation=all"
_PARQUET: Final = f"{_LINES}&as=parquet"
_SMALL_LINES: Final = f"/messages/download?topic={_SMALL_TOPIC}"
_MESSAGEPACK: Final = f"{_PAGE}&value_format=messagepack"
CASES: Final[dict[str, Sequence[str]]] = {
    "page": (_PAGE,),
    "page, decoded": (_MESSAGEPACK,),
    "one value as JSON": (_JSON,),
    "search": (_SEARCH,),
    "search with hits": (_HITS,),
    "JSON lines": (_LINES,),
    "Parquet": (_PARQUET,),
    "small records as JSON lines": (_SMALL_LINES,),
    "small records as Parquet": (f"{_SMALL_LINES}&as=parquet",),
    "six searches": (_SEARCH, _HITS) * 3,
    "two of each but Parquet": (_PAGE, _JSON, _SEARCH, _HITS, _LINES, _MESSAGEPACK) * 2,
    "two of each": (_PAGE, _JSON, _SEARCH, _HITS, _LINES, _PARQUET, _MESSAGEPACK) * 2,
}


def memory(options: Options) -> Comparison:
    """The most memory of a console that shows, searches and sends values of 10 MB, to one browser and to many."""
    goals = {f"{case}, MB": f"≤ {GOAL_MB} MB" for case in CASES}
    with TemporaryDirectory(prefix="oncelog-bench-") as directory:
        serving = ("serve", "--data-dir", directory, "--listen", "127.0.0.1:0", "-o", "log.sync.policy=none")
        with running(*serving, "-o", "message.max.bytes=33554432") as broker:
            fill(broker.address, options.scaled(_SMALL_RECORDS))
            comparison = Comparison("Console, values of 10 MB", "console", "nothing else", goals)
            return paired(comparison, (lambda _: _figures(broker.address), lambda _: {}), 1, progress)


def fill(bootstrap: str, small: int) -> None:
    """A topic of three kinds of large values, and one of small records."""
    kinds = (os.urandom(_VALUE_BYTES), b"ab c" * (_VALUE_BYTES // 4), "\U0001f375".encode() + b"a" * (_VALUE_BYTES - 4))
    now_ms = int(time.time() * 1000)  # Or retention takes them at once.
    with Client(bootstrap, config={"request.timeout.ms": "120000"}) as client:
        for topic in (_TOPIC, _SMALL_TOPIC):
            create_topic(
                client, NewTopic(topic, partitions=1, replication_factor=1, configs={"max.message.bytes": "33554432"})
            )
        for value in kinds * _RECORDS_OF_A_KIND:
            client.produce(TopicPartition(TopicName(_TOPIC), 0), build_batch([Record(0, now_ms, None, value, ())]))
        batch = build_batch([Record(number, now_ms, b"key", b"v" * 100, ()) for number in range(2000)])
        for _ in range(max(1, small // 2000)):
            client.produce(TopicPartition(TopicName(_SMALL_TOPIC), 0), batch)


def _figures(bootstrap: str) -> Figures:
    return {f"{case}, MB": peak_mb(bootstrap, paths) for case, paths in CASES.items()}


def peak_mb(bootstrap: str, paths: Sequence[str]) -> float:
    """The most memory of a console that is asked for some addresses at the same time, twice."""
    with running(*console_command(bootstrap)) as console:
        _answers(console.address)
        children = _peaks_of_children(console.process.pid)
        with children as decoders:
            for _ in range(2):
                threads = [threading.Thread(target=_read, args=(console.address, path)) for path in paths]
                for thread in threads:
                    thread.start()
                for thread in threads:
                    thread.join()
            return console.peak_mb() + decoders()


@contextlib.contextmanager
def _peaks_of_children(parent: int) -> Iterator[Callable[[], float]]:
    """The most memory of the processes that it starts, at any moment; they are looked at again and again."""
    peak, ended = [0.0], threading.Event()

    def look() -> None:
        while not ended.wait(0.02):
            peak[0] = max(peak[0], sum(_resident_mb(child) for child in _children(parent)))

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield lambda: peak[0]
    finally:
        ended.set()
        thread.join()


def _children(parent: int) -> list[str]:
    with contextlib.suppress(OSError):
        tasks = Path(f"/proc/{parent}/task").iterdir()
        return [child for task in tasks for child in (task / "children").read_text().split()]
    return []


def _resident_mb(pid: str) -> float:
    with contextlib.suppress(OSError, IndexError):
        return int(Path(f"/proc/{pid}/status").read_text().partition("VmHWM:")[2].split()[0]) / 1000
    return 0.0


def _answers(address: str) -> None:
    deadline_s = time.monotonic() + 60
    while time.monotonic() < deadline_s:
        with contextlib.suppress(OSError):
            urllib.request.urlopen(f"http://{address}/health.json", timeout=60).read()
            return
        time.sleep(0.01)
    raise RuntimeError("the console does not answer")


def _read(address: str, path: str) -> None:
    """Read an answer to its end; one that is refused because others run is as good."""
    with contextlib.suppress(OSError), urllib.request.urlopen(f"http://{address}{path}", timeout=300) as answer:
        while answer.read(1 << 16):
            pass
