"""Apache Kafka beside us: a KRaft broker on loopback, and its command-line tools by class name.

`with ApacheKafka() as kafka: kafka.bootstrap_servers`. Nothing outside the given directory is written, and no process
is ended that was not started here. `python -m tests.peers.apache_kafka` runs one until it is interrupted; its argument
is a release, such as 4.3.1.
"""

from __future__ import annotations

import argparse
import contextlib
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Self

from tests.peers.broker_process import BrokerProcess
from tests.peers.cut_network import CutListeners
from tests.peers.jars import KAFKA_VERSION, KAFKAS, classpath
from tests.peers.process import Process, free_ports
from tests.peers.supply import WORK
from tests.waiting import HANG_S

CLUSTER_ID: Final = "b25jZWxvZy1wZWVyLTAwMQ"
TOOLS: Final = {
    "kafka-acls": "org.apache.kafka.tools.AclCommand",
    "kafka-broker-api-versions": "org.apache.kafka.tools.BrokerApiVersionsCommand",
    "kafka-client-metrics": "org.apache.kafka.tools.ClientMetricsCommand",
    "kafka-cluster": "org.apache.kafka.tools.ClusterTool",
    "kafka-configs": "org.apache.kafka.tools.ConfigCommand",
    "kafka-console-consumer": "org.apache.kafka.tools.consumer.ConsoleConsumer",
    "kafka-console-producer": "org.apache.kafka.tools.ConsoleProducer",
    "kafka-consumer-groups": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    "kafka-console-share-consumer": "org.apache.kafka.tools.consumer.ConsoleShareConsumer",
    "kafka-consumer-perf-test": "org.apache.kafka.tools.ConsumerPerformance",
    "kafka-delete-records": "org.apache.kafka.tools.DeleteRecordsCommand",
    "kafka-dump-log": "org.apache.kafka.tools.DumpLogSegments",
    "kafka-e2e-latency": "org.apache.kafka.tools.EndToEndLatency",
    "kafka-features": "org.apache.kafka.tools.FeatureCommand",
    "kafka-get-offsets": "org.apache.kafka.tools.GetOffsetShell",
    "kafka-groups": "org.apache.kafka.tools.GroupsCommand",
    "kafka-leader-election": "org.apache.kafka.tools.LeaderElectionCommand",
    "kafka-log-dirs": "org.apache.kafka.tools.LogDirsCommand",
    "kafka-metadata-quorum": "org.apache.kafka.tools.MetadataQuorumCommand",
    "kafka-producer-perf-test": "org.apache.kafka.tools.ProducerPerformance",
    "kafka-reassign-partitions": "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
    "kafka-replica-verification": "org.apache.kafka.tools.ReplicaVerificationTool",
    "kafka-share-groups": "org.apache.kafka.tools.consumer.group.ShareGroupCommand",
    "kafka-storage": "kafka.tools.StorageTool",
    "kafka-topics": "org.apache.kafka.tools.TopicCommand",
    "kafka-transactions": "org.apache.kafka.tools.TransactionsCommand",
    "kafka-verifiable-consumer": "org.apache.kafka.tools.VerifiableConsumer",
    "kafka-verifiable-producer": "org.apache.kafka.tools.VerifiableProducer",
    "client-compatibility": "org.apache.kafka.tools.ClientCompatibilityTest",
}
"""Name as in Apache Kafka's `bin/` → class."""
_OTHER_CLASSES: Final = {("4.3.1", "kafka-configs"): "kafka.admin.ConfigCommand"}
"""The class where a release has another one."""

_SERVER_FIRST: Final = frozenset({"kafka-features", "kafka-metadata-quorum", "kafka-transactions"})
"""Tools with subcommands that want the server before them."""

_SMALL_JVM: Final = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")
_BROKER_JVM: Final = ("-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20", "-XX:InitiatingHeapOccupancyPercent=35")
_LOGGING: Final = """\
rootLogger.level = {level}
rootLogger.appenderRef.stderr.ref = STDERR
appender.stderr.type = Console
appender.stderr.name = STDERR
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = [%d] %p %m (%c)%n
"""
_SMALL_CLUSTER: Final = {
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
}
"""Settings that one broker alone needs; the rest are Apache Kafka's defaults."""


def _java(version: str, main_class: str, *arguments: str, options: tuple[str, ...], logging: Path) -> list[str]:
    jars = classpath(KAFKAS[version])
    return ["java", *options, f"-Dlog4j2.configurationFile={logging}", "-cp", jars, main_class, *arguments]


class ApacheKafka(BrokerProcess):
    """One broker that is its own controller. Not started until `start` or `with`."""

    def __init__(
        self,
        directory: Path | None = None,
        *,
        heap_mb: int = 512,
        properties: Mapping[str, str] | None = None,
        port: int | None = None,
        advertised: tuple[str, int] | None = None,
        version: str = KAFKA_VERSION,
    ) -> None:
        self.version = version
        super().__init__("Apache Kafka", directory)
        self._heap_mb = heap_mb
        self.port, self._controller_port = free_ports(2)
        if port is not None:
            self.port = port
        self._advertised = advertised or (self.host, self.port)
        self._properties = dict(properties or {})
        self._cut = CutListeners()
        self.ready_s = 0.0

    def start(self) -> Self:
        """Format the directory on the first start, run the broker and wait until it answers."""
        configuration = self._cut.put_before(self._write_configuration())
        logging = configuration.with_name("log4j2.properties")
        if not (self.data_directory / "meta.properties").exists():
            command = ("format", "-t", CLUSTER_ID, "-c", str(configuration))
            subprocess.run(
                _java(self.version, TOOLS["kafka-storage"], *command, options=_SMALL_JVM, logging=logging),
                check=True,
                capture_output=True,
            )
        options = (f"-Xmx{self._heap_mb}m", f"-Xms{self._heap_mb}m", *_BROKER_JVM)
        command_line = _java(self.version, "kafka.Kafka", str(configuration), options=options, logging=logging)
        self._process = Process(command_line, self.directory / "broker.log")
        self.ready_s = self._process.wait_ready(self.host, self.port)
        return self

    def _ended(self) -> None:
        super()._ended()
        self._cut.close()

    def another(self, node_id: int, properties: Mapping[str, str] | None = None) -> ApacheKafka:
        """One more broker of this one's cluster, not started, with a directory beside this one's."""
        port = free_ports(1)[0]
        joining = {
            "process.roles": "broker",
            "node.id": str(node_id),
            "listeners": f"PLAINTEXT://{self.host}:{port}",
            "controller.quorum.voters": f"1@{self.host}:{self._controller_port}",
            **self._properties,
            **(properties or {}),
        }
        directory = self.directory.with_name(f"{self.directory.name}-{node_id}")
        return ApacheKafka(directory, heap_mb=self._heap_mb, properties=joining, port=port, version=self.version)

    def tools(self) -> KafkaTools:
        """Apache Kafka's tools of its release, pointed at this broker."""
        return KafkaTools(self.bootstrap_servers, self.version)

    def _write_configuration(self) -> Path:
        self.directory.mkdir(parents=True, exist_ok=True)
        (self.directory / "log4j2.properties").write_text(_LOGGING.format(level="WARN"), encoding="utf-8")
        host, port = self._advertised
        values = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "listeners": f"PLAINTEXT://{self.host}:{self.port},CONTROLLER://{self.host}:{self._controller_port}",
            "advertised.listeners": f"PLAINTEXT://{host}:{port}",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.voters": f"1@{self.host}:{self._controller_port}",
            "log.dirs": str(self.data_directory),
            **_SMALL_CLUSTER,
            **self._properties,
        }
        path = self.directory / "server.properties"
        path.write_text("".join(f"{key}={value}\n" for key, value in values.items()), encoding="utf-8")
        return path


class KafkaTools:
    """Apache Kafka's command-line tools against one address, ours or theirs."""

    def __init__(self, bootstrap_servers: str, version: str = KAFKA_VERSION) -> None:
        self.bootstrap_servers = bootstrap_servers
        self._version = version
        self._logging = WORK / "tools-log4j2.properties"
        if not self._logging.exists():
            self._logging.parent.mkdir(parents=True, exist_ok=True)
            self._logging.write_text(_LOGGING.format(level="ERROR"), encoding="utf-8")

    def command(self, tool: str, *arguments: str) -> list[str]:
        """The command line of a tool, by its name in `bin/` or its class."""
        name = _OTHER_CLASSES.get((self._version, tool)) or TOOLS.get(tool, tool)
        return _java(self._version, name, *arguments, options=_SMALL_JVM, logging=self._logging)

    def run(self, tool: str, *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        """Run a tool to its end. `--bootstrap-server` is added unless the arguments name a server themselves."""
        if not any(map(_names_server, arguments, (*arguments[1:], ""))):
            server = ("--bootstrap-server", self.bootstrap_servers)
            arguments = (*server, *arguments) if tool in _SERVER_FIRST else (*arguments, *server)
        return self.run_bare(tool, *arguments, stdin=stdin)

    def run_bare(self, tool: str, *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        """Run a tool with exactly these arguments."""
        return subprocess.run(
            self.command(tool, *arguments), input=stdin, capture_output=True, text=True, timeout=HANG_S, check=False
        )


def _names_server(option: str, value: str) -> bool:
    """``--broker-list`` has addresses where it is the name of old for the server, and broker ids elsewhere."""
    return option.startswith("--bootstrap") or (option == "--broker-list" and ":" in value)


def main() -> None:
    """Run one broker in the foreground, until Ctrl-C or SIGTERM."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("version", nargs="?", choices=list(KAFKAS), default=KAFKA_VERSION)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with ApacheKafka(version=parser.parse_args().version) as kafka, contextlib.suppress(KeyboardInterrupt):
        print(kafka.bootstrap_servers, kafka.data_directory, f"ready after {kafka.ready_s:.2f} s", flush=True)
        signal.pause()


if __name__ == "__main__":
    main()
