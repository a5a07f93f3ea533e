"""Apache Kafka of the releases that worked with ZooKeeper: a broker on loopback, and any main class as a process.

``with OldKafka("1.0.2", zookeeper.connect) as kafka: kafka.bootstrap_servers``. ``OldProcess`` runs one of their
consumers or producers, ``run_old`` one of their tools to its end; both take the class by its name.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import IO, Final, Self

from tests.peers.broker_process import BrokerProcess
from tests.peers.jars import OLD_KAFKA, classpath
from tests.peers.process import Process, free_ports
from tests.peers.reaper import watch
from tests.peers.supply import WORK
from tests.waiting import HANG_S

_SMALL_JVM: Final = ("-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")
_LOGGING: Final = """\
log4j.rootLogger={level}, stderr
log4j.appender.stderr=org.apache.log4j.ConsoleAppender
log4j.appender.stderr.target=System.err
log4j.appender.stderr.layout=org.apache.log4j.PatternLayout
log4j.appender.stderr.layout.ConversionPattern=[%d] %p %m (%c)%n
"""
_ONE_BROKER: Final = {
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "offsets.topic.num.partitions": "4",
    "group.initial.rebalance.delay.ms": "0",
    "controlled.shutdown.enable": "false",
    "zookeeper.session.timeout.ms": "6000",
}


def old_command(version: str, main_class: str, *arguments: str, level: str = "WARN", heap_mb: int = 0) -> list[str]:
    """The command line of a class of a release. ``level`` is that of its log, on stderr."""
    logging = WORK / f"old-log4j-{level.lower()}.properties"
    if not logging.exists():
        logging.parent.mkdir(parents=True, exist_ok=True)
        partial = logging.with_suffix(f".{os.getpid()}")
        partial.write_text(_LOGGING.format(level=level), encoding="utf-8")
        partial.replace(logging)
    heap = (f"-Xmx{heap_mb}m",) if heap_mb else ()
    options = (*_SMALL_JVM, *heap, f"-Dlog4j.configuration=file:{logging}")
    return ["java", *options, "-cp", classpath(OLD_KAFKA[version]), main_class, *arguments]


def run_old(version: str, main_class: str, *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    """Run a class of a release to its end."""
    command = old_command(version, main_class, *arguments, level="ERROR")
    return subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=HANG_S, check=False)


class OldProcess:
    """A class of a release as a process whose output goes to files: a consumer, or a producer fed through ``stdin``."""

    def __init__(self, version: str, main_class: str, *arguments: str, directory: Path, name: str) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._out, self._err = directory / f"{name}.out", directory / f"{name}.err"
        with self._out.open("ab") as out, self._err.open("ab") as err:
            self._child = subprocess.Popen(
                old_command(version, main_class, *arguments),
                stdin=subprocess.PIPE,
                stdout=out,
                stderr=err,
                start_new_session=True,
            )
        watch(self._child.pid)

    @property
    def stdin(self) -> IO[bytes]:
        """Its standard input."""
        assert self._child.stdin is not None
        return self._child.stdin

    @property
    def running(self) -> bool:
        """True while it has not ended."""
        return self._child.poll() is None

    def lines(self) -> list[str]:
        """Whole lines of its standard output so far."""
        return self._out.read_text("utf-8", "replace").split("\n")[:-1]

    def errors(self, size_bytes: int = 4000) -> str:
        """The end of its log."""
        return self._err.read_bytes()[-size_bytes:].decode("utf-8", "replace")

    def freeze(self) -> None:
        """SIGSTOP: it is not heard of any more, until ``thaw``."""
        self._child.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """SIGCONT."""
        self._child.send_signal(signal.SIGCONT)

    def stop(self) -> int:
        """SIGTERM, on which it leaves in order; the exit code."""
        return self._end(signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL."""
        self._end(signal.SIGKILL)

    def _end(self, number: signal.Signals) -> int:
        if self.running:
            self._child.send_signal(number)
            try:
                self._child.wait(HANG_S)
            except subprocess.TimeoutExpired:
                self._child.kill()
                self._child.wait(HANG_S)
        self.stdin.close()
        return self._child.returncode

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()


class OldKafka(BrokerProcess):
    """One broker of an old release, in ZooKeeper mode. Not started until ``start`` or ``with``."""

    def __init__(
        self,
        version: str,
        zookeeper_connect: str,
        directory: Path | None = None,
        *,
        broker_id: int = 0,
        properties: Mapping[str, str] | None = None,
    ) -> None:
        self.version = version
        super().__init__(f"Apache Kafka {version}", directory)
        [self.port] = free_ports(1)
        self._values = {
            "broker.id": str(broker_id),
            "zookeeper.connect": zookeeper_connect,
            "log.dirs": str(self.data_directory),
            **({"host.name": self.host, "port": str(self.port)} if version.startswith("0.8") else self._listeners()),
            **_ONE_BROKER,
            **(properties or {}),
        }

    def _listeners(self) -> dict[str, str]:
        return {"listeners": f"PLAINTEXT://{self.host}:{self.port}"}

    def start(self) -> Self:
        """Run it, and wait until it answers."""
        self.directory.mkdir(parents=True, exist_ok=True)
        configuration = self.directory / "server.properties"
        configuration.write_text("".join(f"{key}={value}\n" for key, value in self._values.items()), encoding="utf-8")
        if self.version.startswith("0.10"):
            self._name_cluster()
        command = old_command(self.version, "kafka.Kafka", str(configuration), heap_mb=384)
        self._process = Process(command, self.directory / "broker.log")
        self._process.wait_ready(self.host, self.port, 0.05, old=self.version.startswith(("0.8", "0.9")))
        return self

    def _name_cluster(self) -> None:
        """Make the cluster's id: 0.10 does so by a class that Java 17 no longer has."""
        from kazoo.client import KazooClient

        hosts, slash, chroot = self._values["zookeeper.connect"].partition("/")
        client = KazooClient(hosts, timeout=60)
        client.start(60)
        path = f"{slash}{chroot}/cluster/id"
        if client.exists(path) is None:
            client.create(path, b'{"version":"1","id":"b25jZWxvZy1wZWVyLTAxMA"}', makepath=True)
        client.stop()
        client.close()
