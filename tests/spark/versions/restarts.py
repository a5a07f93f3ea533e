"""One query, one checkpoint, several versions of Spark: ``python -m tests.spark.versions.restarts --versions 4.0,4.2``.

A stream copies a topic into another. Its driver, JVM and Python alike, is killed by ``kill -9`` again and again: when a
drawn number of offsets has come into the other topic, or at a point of the sink that is named
(`oncelog.spark.sink.fault_points`). Each life has the next of the versions, in turn, and the trigger that is asked for;
rows are added between them. The last one goes to the end. Then every row has to be there, once.

With ``--connect`` the query runs on a server of Spark Connect, which dies with it. With ``--kill-brokers`` the broker
dies, too (``--brokers 3``: one of three at a time): under the query, which goes on, or together with its driver.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING, Final

from oncelog.admin.topics import NewTopic, create_topic
from oncelog.base.ids import TopicName, TopicPartition
from oncelog.client.blocking import Client
from oncelog.spark.sink.fault_points import NAMES
from tests.peers.supply import ROOT
from tests.spark.sink.queries import TWO_PHASE, Copy, add_input, committed_values, make_input
from tests.spark.starting import NOT_IN_TIME
from tests.spark.versions.brokers import Brokers, running
from tests.spark.versions.environments import NotToBeHad, chosen_versions, environment
from tests.waiting import HANG_S

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TRIGGERS: Final = ("available-now", "processing-time")
MODES: Final = {"2pc": tuple(name for name in NAMES if not name.startswith("ledger")), "ledger": NAMES[-2:]}
"""How a sink is exactly once, and the points of it."""
ROWS: Final = 120
"""Added for each life."""
ROWS_PER_EPOCH: Final = 40
_POLL_S: Final = 0.05
MOST_FAILURES: Final = 3
"""Of the last life where brokers die: a query may fail while they come back, and loses and doubles nothing by that."""
_OURS: Final = re.compile(r"^(?:Caused by: )?(oncelog\.[\w.]+: .+)$", re.MULTILINE)


@dataclass
class Drill:
    """A query over several lives."""

    brokers: Brokers
    name: str
    directory: Path
    mode: str
    trigger: str
    entropy: random.Random
    connect: bool = False
    brokers_die: bool = False
    at_points: bool = True
    """Kills are at named points of the sink, too; False: at drawn offsets of its output alone."""
    values: list[bytes] = field(default_factory=list)

    @property
    def servers(self) -> str:
        return self.brokers.bootstrap_servers

    @property
    def source(self) -> str:
        return f"{self.name}-in"

    @property
    def sink(self) -> str:
        return f"{self.name}-out"

    def begin(self) -> None:
        """Both topics, with the first rows."""
        (self.directory / "points").mkdir()
        with Client(self.servers) as client:
            create_topic(client, NewTopic(self.sink, 2))
        self.values = make_input(self.servers, self.source, ROWS, partitions=self.entropy.randint(1, 3))

    def live(self, python: Path) -> str:
        """One life, which is killed; what became of it."""
        point = self.entropy.choice((None, *MODES[self.mode])) if self.at_points else None
        order = self.directory / "points" / (point or "none")
        if point is not None:
            order.touch()
        written = self._written()
        target = written + self.entropy.randint(1, ROWS)
        beneath, together = (
            (self.entropy.random() < 0.7, self.entropy.random() < 0.5) if self.brokers_die else (False,) * 2
        )
        with self._process(python, self.trigger) as process:
            try:
                text = ""
                if beneath:
                    text = self._wait(process, None, self.entropy.randint(written + 1, target))
                    text = f"{text.replace('killed', 'reached')}, {self.brokers.kill(self.entropy)} killed beneath it; "
                    self.brokers.start()
                text += self._wait(process, order if point else None, target)
                if together:
                    text += f", and {self.brokers.kill(self.entropy)} with it"
            finally:
                kill_group(process)
        if together:
            self.brokers.start()
        self.values += add_input(self.servers, self.source, ROWS, len(self.values))
        return text

    def _wait(self, process: subprocess.Popen[bytes], order: Path | None, target: int) -> str:
        deadline_s = time.monotonic() + HANG_S
        while process.poll() is None:
            if order is not None and not order.exists():
                return f"killed behind {order.name}"
            if self._written() >= target:
                return f"killed at offset {target}"
            assert time.monotonic() < deadline_s, f"no progress: {self._log()}"
            time.sleep(_POLL_S)
        last = self._log().strip().splitlines()[-1:] if process.returncode else []
        return " ".join([f"ended by itself ({process.returncode})", *last])

    def finish(self, python: Path) -> None:
        """Run to the end, and compare."""
        for order in (self.directory / "points").iterdir():
            order.unlink()
        again = MOST_FAILURES if self.brokers_die else 0
        while True:
            with self._process(python, "available-now") as process:
                try:
                    code = process.wait(HANG_S)
                finally:
                    kill_group(process)
            if code == 0:
                break
            if NOT_IN_TIME not in self._log():
                assert again, f"{self._why()}: {self._log()}"
                again -= 1
                _say(f"{self.name}: failed, and is started again: {self._why()}")
        result, expected = committed_values(self.servers, self.sink), sorted(self.values)
        assert result == expected, f"{len(result)} rows, {len(set(result))} different, of {len(expected)}"

    def _process(self, python: Path, trigger: str) -> subprocess.Popen[bytes]:
        command = [str(python), "-m", "tests.spark.versions.restarts", "--copy", self.servers, self.source, self.sink]
        command += [str(self.directory), self.mode, trigger, "connect" if self.connect else "classic"]
        variables = {name: value for name, value in os.environ.items() if name not in ("SPARK_HOME",)}
        variables["PYSPARK_PYTHON"] = str(python)
        variables.setdefault("PYTHONPATH", str(ROOT / "src"))
        with (self.directory / "copy.log").open("wb") as log:
            return subprocess.Popen(command, cwd=ROOT, env=variables, stdout=log, stderr=log, start_new_session=True)

    def _written(self) -> int:
        with Client(self.servers) as client:
            partitions = [
                TopicPartition(TopicName(self.sink), partition) for partition in client.topic(self.sink).partitions
            ]
            return sum(offset.offset for offset in client.list_offsets(dict.fromkeys(partitions, -1)).values())

    def _why(self) -> str:
        """The last error of oncelog's own that a process of Spark's has logged."""
        logs = (self.directory / name for name in ("spark.log", "server.log"))
        message = [item for log in logs if log.exists() for item in _OURS.findall(log.read_text("utf-8", "replace"))]
        return message[-1] if message else "nothing of oncelog's is in Spark's log"

    def _log(self) -> str:
        return (self.directory / "copy.log").read_text("utf-8", "replace")[-4000:]


def copy(arguments: Sequence[str]) -> int:
    """The process that is killed: one life of the query. 0 when it has come to the end."""
    servers, source, sink, directory, mode, trigger, kind = arguments
    with session_of_life(kind, Path(directory)) as spark:
        query = Copy(spark, servers, source, sink, Path(directory))
        query.options["exactlyOnce"] = mode
        query.rows_per_epoch = ROWS_PER_EPOCH
        if trigger == "processing-time":
            query.trigger = {"processingTime": "0 seconds"}
        while (failure := query.run()) is None:
            if query.is_at_the_end:
                return 0
        print(failure)
        return 1


@contextmanager
def session_of_life(kind: str, directory: Path) -> Iterator[SparkSession]:
    """A session of this process's own JVM, or on a server that is its child."""
    from oncelog.spark.session.local_session import local_session, remote_session
    from tests.spark import starting
    from tests.spark.connect import starting as connect_starting
    from tests.spark.connect.server import connect_server
    from tests.spark.jvms import prepare

    prepare()
    if kind == "classic":
        with local_session(master="local[2]", log=directory / "spark.log") as spark, starting.patient_starts():
            yield spark
        return
    with (
        connect_server(directory) as address,
        remote_session(address) as spark,
        connect_starting.patient_starts(),
    ):
        yield spark


def kill_group(process: subprocess.Popen[bytes]) -> None:
    """The driver, its JVM and all their Python processes."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return
    process.wait()


def main() -> int:
    """Parse and run."""
    parser = argparse.ArgumentParser(prog="python -m tests.spark.versions.restarts", description=__doc__)
    parser.add_argument("--copy", nargs=7, help=argparse.SUPPRESS)
    parser.add_argument("--versions", default="oldest,newest,oldest", help="of each life, in turn")
    parser.add_argument("--lives", type=int, default=6, help="before the last one; each is killed")
    parser.add_argument("--modes", default=",".join(MODES))
    parser.add_argument("--triggers", default=",".join(TRIGGERS))
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--connect", action="store_true", help="on a server of Spark Connect")
    parser.add_argument("--brokers", type=int, choices=(1, 3), default=1)
    parser.add_argument("--kill-brokers", action="store_true", help="brokers die, too")
    args = parser.parse_args()
    if args.copy:
        return copy(args.copy)
    try:
        versions = chosen_versions(args.versions.split(","))
        pythons = {version: environment(version, _say) for version in versions}
    except NotToBeHad as reason:
        print(f"oncelog: {reason}", file=sys.stderr)
        return 1
    with running(args.brokers, TWO_PHASE) as brokers:
        for seed in range(args.first, args.first + args.seeds):
            for mode in args.modes.split(","):
                for trigger in args.triggers.split(","):
                    name = f"restarts-{mode}-{trigger}-{seed}{'-connect' if args.connect else ''}"
                    with tempfile.TemporaryDirectory(prefix="oncelog-restarts-", ignore_cleanup_errors=True) as place:
                        drill = Drill(brokers, name, Path(place), mode, trigger, random.Random(name))
                        drill.connect, drill.brokers_die = args.connect, args.kill_brokers
                        _run(drill, versions, pythons, args.lives)
    return 0


def _run(drill: Drill, versions: list[str], pythons: dict[str, Path], lives: int) -> None:
    drill.begin()
    in_turn = cycle(versions)
    for life in range(1, lives + 1):
        version = next(in_turn)
        _say(f"{drill.name}: life {life} on {version}: {drill.live(pythons[version])}")
    version = next(in_turn)
    drill.finish(pythons[version])
    _say(f"{drill.name}: {lives + 1} lives, the last on {version}: each of {len(drill.values)} rows once")


def _say(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
