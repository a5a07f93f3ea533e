"""ZooKeeper beside us: one server on loopback, from the jars that PySpark brings, so that nothing is fetched.

`with ZooKeeper(directory) as zookeeper: zookeeper.connect`. It keeps its data when it is killed and started again.
With an authority it has a second port, for TLS, and asks for certificates; with users, they log in by SASL.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Final, Self

from tests.certificates import Authority
from tests.peers.process import Process, free_ports
from tests.waiting import wait_until

_JVM: Final = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")
_JARS: Final = ("zookeeper-", "netty-", "log4j-", "slf4j-api-", "metrics-core-", "snappy-java-")
"""Of PySpark's three hundred, which would all be opened and searched for each class, those that ZooKeeper needs."""
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
_TLS: Final = """\
secureClientPort={port}
secureClientPortAddress=127.0.0.1
serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory
authProvider.x509=org.apache.zookeeper.server.auth.X509AuthenticationProvider
ssl.keyStore.location={keys}
ssl.trustStore.location={trusted}
ssl.clientAuth=want
ssl.protocol=TLSv1.3
ssl.enabledProtocols=TLSv1.2,TLSv1.3
"""
_SASL: Final = "authProvider.sasl=org.apache.zookeeper.server.auth.SASLAuthenticationProvider\n"


class ZooKeeper:
    """One server. Not started until ``start`` or ``with``."""

    def __init__(
        self, directory: Path, authority: Authority | None = None, users: Mapping[str, str] | None = None
    ) -> None:
        self.port, self.secure_port = free_ports(2)
        self._directory = directory
        self._authority = authority
        self._users = users or {}
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

    @property
    def secure_connect(self) -> str:
        """The same by TLS."""
        return f"localhost:{self.secure_port}"

    def start(self) -> None:
        """Start it, and wait until it answers."""
        spark = find_spec("pyspark")
        assert spark is not None
        assert spark.origin is not None
        jars = sorted(path for path in (Path(spark.origin).parent / "jars").iterdir() if path.name.startswith(_JARS))
        config, logging = self._directory / "zoo.cfg", self._directory / "log4j2.properties"
        lines = f"{_CONFIG}dataDir={self._directory / 'data'}\nclientPort={self.port}\n"
        config.write_text(lines + self._tls() + (_SASL if self._users else ""))
        logging.write_text(_LOGGING)
        main = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
        command = [
            "java",
            *_JVM,
            *self._jaas(),
            f"-Dlog4j2.configurationFile={logging}",
            "-cp",
            ":".join(map(str, jars)),
            main,
            str(config),
        ]
        self._process = process = Process(command, self._directory / "zookeeper.log")
        wait_until(lambda: self._answers() or not process.running, process.log_tail)
        assert process.running, process.log_tail()

    def _tls(self) -> str:
        if self._authority is None:
            return ""
        keys, trusted = self._directory / "server.pem", self._directory / "trusted.pem"
        keys.write_text(self._authority.broker().pem)
        trusted.write_text(self._authority.pem)
        return _TLS.format(port=self.secure_port, keys=keys, trusted=trusted)

    def _jaas(self) -> list[str]:
        if not self._users:
            return []
        path = self._directory / "jaas.conf"
        users = " ".join(f'user_{name}="{password}"' for name, password in self._users.items())
        path.write_text(f"Server {{ org.apache.zookeeper.server.auth.DigestLoginModule required {users}; }};\n")
        return [f"-Djava.security.auth.login.config={path}"]

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
