"""ZooKeeper beside us: one server on loopback, from the jars that PySpark brings, so that nothing is fetched.

`with ZooKeeper(directory) as zookeeper: zookeeper.connect`. It keeps its data when it is killed and started again.
"""

from __future__ import annotations

import socket
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Final, Self

from tests.peers.process import Process, free_ports
from tests.waiting import wait_until

_JVM: Final = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")
_LOGGING: Final = """\
rootLogger.level = warn
rootLogger.appenderRef.stderr.ref = STDERR
appender.stderr.type = Console
appender.stderr.name = STDERR
appender.stderr.target = SYSTEM_ERR
"""
_CONFIG: Final = """\
tickTime=100
minSessionTimeout=200
maxSessionTimeout=120000
maxClientCnxns=0
admin.enableServer=false
clientPortAddress=127.0.0.1
"""


class ZooKeeper:
    """One server. Not started until ``start`` or ``with``."""

    def __init__(self, directory: Path) -> None:
        [self.port] = free_ports(1)
        self._directory = directory
        self._process: Process | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    @property
    def connect(self) -> str:
        """The server for ``zookeeper.connect``."""
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start it, and wait until it answers."""
        spark = find_spec("pyspark")
        assert spark is not None
        assert spark.origin is not None
        jars = Path(spark.origin).parent / "jars" / "*"
        config, logging = self._directory / "zoo.cfg", self._directory / "log4j2.properties"
        config.write_text(f"{_CONFIG}dataDir={self._directory / 'data'}\nclientPort={self.port}\n")
        logging.write_text(_LOGGING)
        main = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
        command = ["java", *_JVM, f"-Dlog4j2.configurationFile={logging}", "-cp", str(jars), main, str(config)]
        self._process = process = Process(command, self._directory / "zookeeper.log")
        wait_until(lambda: self._answers() or not process.running, process.log_tail)
        assert process.running, process.log_tail()

    def kill(self) -> None:
        """End it with SIGKILL; sessions and data are on its disk."""
        if self._process is not None:
            self._process.kill()
            self._process = None

    def _answers(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), 5) as connection:
                connection.sendall(b"srvr")
                return connection.recv(9) == b"Zookeeper"
        except OSError:
            time.sleep(0.02)
            return False
