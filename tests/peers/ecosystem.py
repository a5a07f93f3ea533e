"""Apache Kafka's Streams and Connect, each as a process of its own that can be killed.

Small JVMs and short time-outs: what is tried is whether every record arrives once, not how fast.
"""

from __future__ import annotations

import json
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tests.peers.jars import ECOSYSTEM, classpath
from tests.peers.process import Process, free_ports
from tests.peers.reaper import watch
from tests.peers.supply import Supply
from tests.waiting import HANG_S

_SMALL_JVM: Final = (
    *("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto"),
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
)
_WORD_COUNT: Final = Path(__file__).parent / "clients" / "streams" / "WordCount.java"
_WORKER: Final = {
    "group.id": "connect",
    "key.converter": "org.apache.kafka.connect.storage.StringConverter",
    "value.converter": "org.apache.kafka.connect.storage.StringConverter",
    "offset.storage.topic": "connect-offsets",
    "offset.storage.replication.factor": "1",
    "offset.storage.partitions": "1",
    "config.storage.topic": "connect-configs",
    "config.storage.replication.factor": "1",
    "status.storage.topic": "connect-status",
    "status.storage.replication.factor": "1",
    "status.storage.partitions": "1",
    "exactly.once.source.support": "enabled",
    "scheduled.rebalance.max.delay.ms": "0",
    "session.timeout.ms": "2000",
    "heartbeat.interval.ms": "200",
    "plugin.discovery": "service_load",
}
"""The broker has to allow so short a session (`group.min.session.timeout.ms`)."""


def _java(main: str, *arguments: str, supply: Supply = ECOSYSTEM) -> list[str]:
    return ["java", *_SMALL_JVM, "-cp", classpath(supply), main, *arguments]


class WordCount:
    """The Streams program: ended by the end of its standard input, which is what makes it close its transactions."""

    def __init__(self, bootstrap: str, directory: Path) -> None:
        self._log = directory / "streams.log"
        command = _java(str(_WORD_COUNT), bootstrap, str(directory / "state"))
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=log, stderr=log)
        watch(self._process.pid)

    def finish(self) -> None:
        """Close it; raises what it logged unless it ends well."""
        self._process.communicate(timeout=HANG_S)
        if self._process.returncode:
            raise RuntimeError(f"exit code {self._process.returncode}: {self._log.read_text()[-4000:]}")

    def kill(self) -> None:
        """SIGKILL, unless it has ended."""
        self._process.kill()
        self._process.communicate()


class ConnectWorker:
    """One distributed worker; one that is started in the same directory takes over from it."""

    def __init__(self, bootstrap: str, directory: Path, supply: Supply = ECOSYSTEM, **settings: str) -> None:
        plugins = directory / "plugins"
        plugins.mkdir(exist_ok=True)
        self._address = f"http://127.0.0.1:{free_ports(1)[0]}"
        values = {**_WORKER, "bootstrap.servers": bootstrap, "plugin.path": str(plugins), "listeners": self._address}
        values |= {name.replace("_", "."): value for name, value in settings.items()}
        properties = directory / "worker.properties"
        properties.write_text("".join(f"{key}={value}\n" for key, value in values.items()), encoding="utf-8")
        command = _java("org.apache.kafka.connect.cli.ConnectDistributed", str(properties), supply=supply)
        self.process = Process(command, directory / "connect.log")

    def configure(self, name: str, config: Mapping[str, str]) -> None:
        """Create a connector or change it, as soon as the worker takes requests."""
        deadline = time.monotonic() + HANG_S
        request = urllib.request.Request(
            f"{self._address}/connectors/{name}/config",
            data=json.dumps(config).encode(),
            headers={"Content-Type": "application/json"},
            method="PUT",
        )
        while True:
            try:
                with urllib.request.urlopen(request, timeout=HANG_S):
                    return
            except OSError as failure:  # not there yet, or still joining its group (409, 500 and 503)
                refused = isinstance(failure, urllib.error.HTTPError) and failure.code == 400
                if refused or not self.process.running or time.monotonic() > deadline:
                    raise RuntimeError(f"{failure}: {self.process.log_tail()}") from failure
            time.sleep(0.1)

    def kill(self) -> None:
        """SIGKILL, unless it has ended."""
        self.process.kill()
