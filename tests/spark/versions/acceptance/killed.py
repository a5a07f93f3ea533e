"""Steps whose driver is killed: streams from topic to topic, and the query of a table under ``AvailableNow``."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.peers.supply import ROOT
from tests.spark.starting import NOT_IN_TIME
from tests.spark.versions.acceptance.user import User
from tests.spark.versions.restarts import Drill, kill_group, session_of_life
from tests.waiting import HANG_S, POLL_S

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KILLS: Final = 2
_LIVES: Final = 8
"""Of which some may come to their end before anybody has killed them."""


class _Cluster:
    """Brokers that nobody kills."""

    def __init__(self, bootstrap_servers: str) -> None:
        self.bootstrap_servers = bootstrap_servers

    def kill(self, entropy: random.Random) -> str:
        """Never asked for."""
        raise NotImplementedError

    def start(self) -> None:
        """Never asked for."""
        raise NotImplementedError


def topic_to_topic(mode: str, trigger: str) -> Callable[[User], None]:
    """A stream that is killed twice at drawn offsets of its output, then goes to the end."""

    def step(user: User) -> None:
        name = f"killed-{trigger}-{mode}"
        drill = Drill(_Cluster(user.bootstrap_servers), name, user.place(name), mode, trigger, random.Random(name))
        drill.connect, drill.at_points = user.remote is not None, False
        drill.begin()
        told: list[str] = []
        while sum("killed" in item for item in told) < KILLS:
            assert len(told) < _LIVES, told
            told.append(drill.live(user.python))
        drill.finish(user.python)

    return step


class Life:
    """A process with a query of a topic into Parquet, until all that was available when it began is there."""

    def __init__(self, user: User, topic: str, place: Path) -> None:
        self._user, self._place = user, place
        self._log = place / "life.log"
        self._arguments = [user.kind, json.dumps([user.bootstrap_servers, topic, str(place)])]

    @contextmanager
    def process(self) -> Iterator[subprocess.Popen[bytes]]:
        """The running process, at the head of a group of its own."""
        command = [str(self._user.python), "-m", "tests.spark.versions.acceptance.killed", *self._arguments]
        with (
            self._log.open("wb") as log,
            subprocess.Popen(
                command, cwd=ROOT, env={**os.environ}, stdout=log, stderr=log, start_new_session=True
            ) as running,
        ):
            yield running

    def wait(self, process: subprocess.Popen[bytes], log_of_spark: str) -> None:
        """Until Spark has written another batch into one of the two logs of its checkpoint."""
        place = self._place / "checkpoint" / log_of_spark
        before, deadline_s = len(_batches(place)), time.monotonic() + HANG_S
        while len(_batches(place)) == before:
            assert process.poll() is None, f"it ended before it was killed: {self._said()}"
            assert time.monotonic() < deadline_s, self._said()
            time.sleep(POLL_S)

    def finish(self) -> None:
        """To the end, as often as Spark does not wait for its own processes."""
        while True:
            with self.process() as running:
                try:
                    code = running.wait(HANG_S)
                finally:
                    kill_group(running)
            if code == 0:
                return
            assert NOT_IN_TIME in self._said(), self._said()

    def _said(self) -> str:
        return self._log.read_text("utf-8", "replace")[-4000:]


def _batches(place: Path) -> list[Path]:
    return [path for path in place.glob("*") if path.name.isdecimal()]


def _copy(spark: SparkSession, servers: str, topic: str, place: Path) -> None:
    from tests.spark.documented_loop import run_documented_loop

    frame = spark.readStream.format("oncelog").option("kafka.bootstrap.servers", servers).option("subscribe", topic)
    rows = frame.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", "20").load()
    writer = rows.writeStream.format("parquet").option("checkpointLocation", str(place / "checkpoint"))
    run_documented_loop(writer.option("path", str(place / "table")))


def main() -> int:
    """The process that is killed."""
    servers, topic, place = json.loads(sys.argv[2])
    with session_of_life(sys.argv[1], Path(place)) as spark:
        _copy(spark, servers, topic, Path(place))
    return 0


if __name__ == "__main__":
    sys.exit(main())
