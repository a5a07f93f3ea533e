"""``python -m tests.peers.fetch``: fetch and build what `make test-peers` and `make bench` need, before they need it.

One process at a time does so (a lock in ``.work``); whoever comes second waits and finds everything there. What cannot
be had, because a tool is not installed or a registry does not answer, is one line, and its tests are skipped: the exit
code is 0.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Final

from tests.packages.tools import ACTIONLINT, CONTAINER_SPECS, PROMTOOL
from tests.peers.clients.foreign import GO_CLIENTS, GO_REGISTRY, KAFKAJS_CLIENT
from tests.peers.jars import (
    APICURIO,
    ECOSYSTEM,
    FLINK,
    GROUP_JUDGE,
    ICEBERG_SINK,
    KAFKA,
    KAFKA_TESTS,
    KAFKAS,
    MIRROR_MAKER,
    OLD_KAFKA,
    SHARE_JUDGE,
    SPARK_AVRO,
    SPARK_CONNECTOR,
)
from tests.peers.supply import WORK, PeerMissing, Say, Supply

SUPPLIES: Final[dict[str, Supply]] = {
    "kafka": KAFKA,
    "ecosystem": ECOSYSTEM,
    "mirror-maker": MIRROR_MAKER,
    **{f"kafka-{version}": supply for version, supply in (KAFKAS | OLD_KAFKA).items()},
    "iceberg-sink": ICEBERG_SINK,
    "group-judge": GROUP_JUDGE,
    "share-judge": SHARE_JUDGE,
    "kafka-tests": KAFKA_TESTS,
    "flink": FLINK,
    "spark-connector": SPARK_CONNECTOR,
    "spark-avro": SPARK_AVRO,
    "apicurio": APICURIO,
    "go": GO_CLIENTS,
    "go-registry": GO_REGISTRY,
    "kafkajs": KAFKAJS_CLIENT,
    "promtool": PROMTOOL,
    "actionlint": ACTIONLINT,
    "container-specs": CONTAINER_SPECS,
}
"""By the name that the marker ``peer`` takes."""
REPORT_EVERY_S: Final = 5.0
_WIDTH: Final = 200


def fetch(names: list[str], say: Say) -> list[str]:
    """Make what is not there yet, in turn; the names of what is missing afterwards."""
    missing = []
    with _alone(say):
        for name in names:
            supply = SUPPLIES[name]
            if not supply.missing():
                continue
            started_s = time.monotonic()
            say(f"{supply.title}: fetching from {supply.registry}")
            try:
                supply.make(partial(_run, title=supply.title, say=say))
            except PeerMissing as reason:
                say(f"{supply.title}: left out: {reason}")
                missing.append(name)
            else:
                say(f"{supply.title}: ready after {time.monotonic() - started_s:.0f} s")
    return missing


@contextlib.contextmanager
def _alone(say: Say) -> Iterator[None]:
    WORK.mkdir(exist_ok=True)
    with (WORK / "peers.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("another process is fetching: waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _run(command: list[str], place: Path, title: str, say: Say) -> None:
    """Run a tool, passing on its latest line every few seconds; raises PeerMissing, with what it said, if it fails."""
    lines: list[str] = []
    with subprocess.Popen(
        command, cwd=place, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        reader = threading.Thread(target=lambda: lines.extend(line.strip() for line in process.stdout or ()))
        reader.start()
        while reader.is_alive():
            reader.join(REPORT_EVERY_S)
            if reader.is_alive() and lines:
                say(f"{title}: {lines[-1][:_WIDTH]}")
    if process.returncode:
        raise PeerMissing(f"{command[0]} failed: {_reason(lines)[:_WIDTH]}")


def _reason(lines: list[str]) -> str:
    """The first line that speaks of an error, or else the last one."""
    errors = (line for line in lines if "error" in line.lower())
    return next(errors, next(filter(None, reversed(lines)), "it said nothing"))


def _say(line: str) -> None:
    print(f"peers: {line}", flush=True)


def main() -> int:
    """Fetch everything, or what is named."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", nargs="*", choices=[[], *SUPPLIES], help="all when none is named")
    fetch(parser.parse_args().name or list(SUPPLIES), _say)
    return 0


if __name__ == "__main__":
    sys.exit(main())
