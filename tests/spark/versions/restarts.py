"""One query, one checkpoint, several versions of Spark: ``python -m tests.spark.versions.restarts --versions 4.0,4.2``.

A stream copies a topic into another. Its driver, JVM and Python alike, is killed by ``kill -9`` again and again: when a
drawn number of offsets has come into the other topic, or at a point of the sink that is named
(`oncelog.spark.sink.fault_points`). Each life has the next of the versions, in turn, and the trigger that is asked for;
rows are added between them. The last one goes to the end. Then every row has to be there, once.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path
from typing import Final

from oncelog.admin.topics import NewTopic, create_topic
from oncelog.base.ids import TopicName, TopicPartition
from oncelog.client.blocking import Client
from oncelog.spark.sink.fault_points import NAMES
from oncelog.testing import Broker
from tests.peers.supply import ROOT
from tests.spark.sink.queries import TWO_PHASE, Copy, add_input, committed_values, make_input
from tests.spark.starting import NOT_IN_TIME
from tests.spark.versions.environments import NotToBeHad, chosen_versions, environment
from tests.waiting import HANG_S

TRIGGERS: Final = ("available-now", "processing-time")
MODES: Final = {"2pc": tuple(name for name in NAMES if not name.startswith("ledger")), "ledger": NAMES[-2:]}
"""How a sink is exactly once, and the points of it."""
ROWS: Final = 120
"""Added for each life."""
ROWS_PER_EPOCH: Final = 40
_POLL_S: Final = 0.05


@dataclass
class Drill:
    """A query over several lives."""

    servers: str
    name: str
    directory: Path
    mode: str
    trigger: str
    entropy: random.Random
    values: list[bytes] = field(default_factory=list)

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
        point = self.entropy.choice((None, *MODES[self.mode]))
        order = self.directory / "points" / (point or "none")
        if point is not None:
            order.touch()
        target = self._written() + self.entropy.randint(1, ROWS)
        with self._process(python, self.trigger) as process:
            try:
                what = self._wait(process, order if point else None, target)
            finally:
                _kill(process)
        self.values += add_input(self.servers, self.source, ROWS, len(self.values))
        return what

    def _wait(self, process: subprocess.Popen[bytes], order: Path | None, target: int) -> str:
        deadline_s = time.monotonic() + HANG_S
        while process.poll() is None:
            if order is not None and not order.exists():
                return f"killed behind {order.name}"
            if self._written() >= target:
                return f"killed at offset {target}"
            assert time.monotonic() < deadline_s, f"no progress: {self._log()}"
            time.sleep(_POLL_S)
        return f"ended by itself ({process.returncode})"

    def finish(self, python: Path) -> None:
        """Run to the end, and compare."""
        for order in (self.directory / "points").iterdir():
            order.unlink()
        while True:
            with self._process(python, "available-now") as process:
                try:
                    code = process.wait(HANG_S)
                finally:
                    _kill(process)
            if code == 0:
                break
            assert NOT_IN_TIME in self._log(), self._log()
        found, wanted = committed_values(self.servers, self.sink), sorted(self.values)
        assert found == wanted, f"{len(found)} rows, {len(set(found))} different, of {len(wanted)}"

    def _process(self, python: Path, trigger: str) -> subprocess.Popen[bytes]:
        command = [str(python), "-m", "tests.spark.versions.restarts", "--copy", self.servers, self.source, self.sink]
        command += [str(self.directory), self.mode, trigger]
        variables = {name: value for name, value in os.environ.items() if name not in ("SPARK_HOME",)}
        variables["PYSPARK_PYTHON"] = str(python)
        variables.setdefault("PYTHONPATH", str(ROOT / "src"))
        with (self.directory / "copy.log").open("wb") as log:
            return subprocess.Popen(command, cwd=ROOT, env=variables, stdout=log, stderr=log, start_new_session=True)

    def _written(self) -> int:
        with Client(self.servers) as client:
            partitions = [TopicPartition(TopicName(self.sink), one) for one in client.topic(self.sink).partitions]
            return sum(one.offset for one in client.list_offsets(dict.fromkeys(partitions, -1)).values())

    def _log(self) -> str:
        return (self.directory / "copy.log").read_text("utf-8", "replace")[-4000:]


def copy(arguments: Sequence[str]) -> int:
    """The process that is killed: one life of the query. 0 when it has come to the end."""
    from oncelog.spark.local_session import local_session
    from tests.spark.jvms import prepare
    from tests.spark.starting import patient_starts

    servers, source, sink, directory, mode, trigger = arguments
    prepare()
    with local_session(master="local[2]", log=Path(directory) / "spark.log") as spark, patient_starts():
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


def _kill(process: subprocess.Popen[bytes]) -> None:
    """The driver, its JVM and all their Python processes."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return
    process.wait()


def main() -> int:
    """Parse and run."""
    parser = argparse.ArgumentParser(prog="python -m tests.spark.versions.restarts", description=__doc__)
    parser.add_argument("--copy", nargs=6, help=argparse.SUPPRESS)
    parser.add_argument("--versions", default="oldest,newest,oldest", help="of each life, in turn")
    parser.add_argument("--lives", type=int, default=6, help="before the last one; each is killed")
    parser.add_argument("--modes", default=",".join(MODES))
    parser.add_argument("--triggers", default=",".join(TRIGGERS))
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--first", type=int, default=1)
    asked = parser.parse_args()
    if asked.copy:
        return copy(asked.copy)
    try:
        versions = chosen_versions(asked.versions.split(","))
        pythons = {version: environment(version, _say) for version in versions}
    except NotToBeHad as reason:
        print(f"oncelog: {reason}", file=sys.stderr)
        return 1
    with Broker(TWO_PHASE) as broker:
        for seed in range(asked.first, asked.first + asked.seeds):
            for mode in asked.modes.split(","):
                for trigger in asked.triggers.split(","):
                    _drill(broker.bootstrap_servers, seed, mode, trigger, versions, pythons, asked.lives)
    return 0


def _drill(
    servers: str, seed: int, mode: str, trigger: str, versions: list[str], pythons: dict[str, Path], lives: int
) -> None:
    name = f"restarts-{mode}-{trigger}-{seed}"
    with tempfile.TemporaryDirectory(prefix="oncelog-restarts-", ignore_cleanup_errors=True) as directory:
        drill = Drill(servers, name, Path(directory), mode, trigger, random.Random(name))
        drill.begin()
        in_turn = cycle(versions)
        for life in range(1, lives + 1):
            version = next(in_turn)
            _say(f"{name}: life {life} on {version}: {drill.live(pythons[version])}")
        version = next(in_turn)
        drill.finish(pythons[version])
        _say(f"{name}: {lives + 1} lives, the last on {version}: each of {len(drill.values)} rows once")


def _say(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
