"""A user of oncelog with one PySpark: a session, a cluster, a place for files, and the command ``oncelog``."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tests.peers.oncelog_serve import OncelogServe
from tests.spark.conftest import Topic
from tests.spark.sink.queries import TWO_PHASE
from tests.spark.starting import NOT_IN_TIME
from tests.waiting import HANG_S

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

CLASSIC: Final = "classic"
CONNECT: Final = "connect"
_WAREHOUSE: Final = "warehouse"


@dataclass
class User:
    """Everything a step needs; each step has topics and a directory of its own."""

    release: str
    kind: str
    bootstrap_servers: str
    directory: Path
    spark: SparkSession
    remote: str | None = None
    """The server of Spark Connect that the session is on."""
    _topics: list[Topic] = field(default_factory=list)

    @property
    def version(self) -> tuple[int, int]:
        """Of Spark: ``(4, 1)``."""
        major, minor = self.release.split(".")[:2]
        return int(major), int(minor)

    @property
    def options(self) -> dict[str, str]:
        """Of a source or sink on the cluster."""
        return {"kafka.bootstrap.servers": self.bootstrap_servers}

    @property
    def python(self) -> Path:
        """The Python that PySpark and the wheel are installed for."""
        return Path(sys.executable)

    def place(self, name: str) -> Path:
        """A new directory, empty and made."""
        made = self.directory / name
        made.mkdir(parents=True)
        return made

    def topic(self, name: str, rows: int = 0, partitions: int = 2) -> Topic:
        """A new topic with so many rows."""
        topic = Topic(self, name, partitions)  # type: ignore[arg-type]  # it asks a broker for its address only
        self._topics.append(topic)
        topic.produce(rows)
        return topic

    def close(self) -> None:
        """Close the clients of all topics."""
        for topic in self._topics:
            topic.close()

    def command(self, *arguments: str) -> list[str]:
        """``oncelog …`` with the cluster, and the server where there is one."""
        on_server = ["--remote", self.remote] if self.remote else []
        servers = ["--bootstrap-servers", self.bootstrap_servers]
        return [str(self.python.with_name("oncelog")), *arguments, *servers, *on_server]

    def run(self, *arguments: str) -> dict[str, Any]:
        """The report of a command that has to succeed; again where Spark did not wait for its own processes."""
        while True:
            done = subprocess.run(
                self.command(*arguments, "--json"), capture_output=True, text=True, timeout=HANG_S, check=False
            )
            if done.returncode == 0:
                report: dict[str, Any] = json.loads(done.stdout)
                return report
            assert NOT_IN_TIME in done.stderr, f"oncelog {arguments[0]}: {done.stderr[-2000:]}"


def cut(query: StreamingQuery) -> list[int]:
    """How many offsets each batch of a query took that took any."""
    sources = [source for progress in query.recentProgress for source in progress["sources"]]
    taken = [_offsets(source["endOffset"]) - _offsets(source["startOffset"]) for source in sources]
    return [number for number in taken if number]


def _offsets(text: str | None) -> int:
    """The sum over the partitions of an offset as a progress has it: JSON, or what Python makes of that (4.0, 4.1)."""
    try:
        result = json.loads(text or "null") or {}
    except ValueError:
        result = ast.literal_eval(str(text)) or {}
    return sum(sum(of_topic.values()) for name, of_topic in result.items() if not name.startswith("@"))


@contextmanager
def cluster(brokers: int, directory: Path) -> Iterator[str]:
    """The addresses of ``oncelog serve``, or of three brokers of ``oncelog cluster up``, with two-phase commit."""
    program = str(Path(sys.executable).with_name("oncelog"))
    if brokers == 1:
        with OncelogServe(properties=TWO_PHASE, command=[program]) as process:
            yield process.bootstrap_servers
        return
    settings = [f"--set={name}={value}" for name, value in TWO_PHASE.items()]
    command = [program, "cluster", "up", "--brokers", str(brokers), "--base-port", "0", "--json", *settings]
    command += ["--data-dir", str(directory / "cluster")]
    with (
        (directory / "cluster.log").open("wb") as log,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True) as up,
    ):
        try:
            assert up.stdout is not None
            yield json.loads(up.stdout.readline())["bootstrap_servers"]
        finally:
            up.terminate()


@contextmanager
def session(kind: str, directory: Path) -> Iterator[tuple[SparkSession, str | None]]:
    """A session as programs make it, and the server that it is on; with Connect that is a process of its own."""
    from pyspark.sql import SparkSession

    from tests.spark import jvms, starting
    from tests.spark.connect import starting as connect_starting
    from tests.spark.connect.server import connect_server

    jvms.prepare()
    if kind == CONNECT:
        with connect_server(directory) as address:
            remote = SparkSession.builder.remote(address).getOrCreate()
            with connect_starting.patient_starts():
                yield remote, address
            remote.stop()
        return
    builder = SparkSession.builder.master("local[2]").config("spark.sql.shuffle.partitions", "2")
    for name, value in _local(directory).items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("WARN")
    with starting.patient_starts():
        yield spark, None
    spark.stop()


def _local(directory: Path) -> dict[str, str]:
    return {
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.warehouse.dir": str(directory / _WAREHOUSE),
    }


def once(result: Sequence[object], expected: Sequence[object], text: str) -> None:
    """Assert that each row is there, and once."""
    if sorted(result) != sorted(expected):  # type: ignore[type-var]  # rows of one type
        missing, different = len(set(expected) - set(result)), len(set(result))
        raise AssertionError(
            f"{text}: {len(result)} rows, {different} different, of {len(expected)}; {missing} missing"
        )
