"""Producers and consumers of Apache Kafka 0.8.2.2 to 1.0.2, real ones, with oncelog and beside today's clients."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from oncelog.testing import Broker
from tests.peers.clients import confluent
from tests.peers.jars import OLD_KAFKA, classpath
from tests.peers.old_kafka import run_old
from tests.peers.zookeeper import ZooKeeper
from tests.waiting import HANG_S

pytestmark = [
    pytest.mark.slow,
    *(pytest.mark.peer(f"kafka-{version}") for version in ("0.8.2.2", "0.9.0.1", "0.10.2.2", "1.0.2")),
]

VERSIONS: Final = ("0.8.2.2", "0.9.0.1", "0.10.2.2", "1.0.2")
OLD_CODECS: Final = ("none", "gzip", "snappy", "lz4")
API: Final = Path(__file__).parents[1] / "peers" / "clients" / "old" / "OldApi.java"
TOPICS: Final = {"plain": {}, "gzipped": {"compression_type": "gzip"}}
CONFIG: Final = {"oncelog.legacy.protocol": "true", "num.partitions": "1"}


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(CONFIG) as running:
        for name, configs in TOPICS.items():
            confluent.make_topic(running.bootstrap_servers, name, **configs)
        _make_coordinators(running.bootstrap_servers)
        yield running


def _make_coordinators(bootstrap: str) -> None:
    """Have the topic of offsets made: a client that asks for no coordinator, as ``OldApi``, is answered error 16."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "first", "log_level": 0})
    consumer.committed([TopicPartition("plain", 0)], HANG_S)
    consumer.close()


def produce(version: str, broker: Broker, topic: str, codec: str, *, old: bool) -> list[str]:
    """Three lines by the console's producer; the lines."""
    lines = [f"{version} {codec} {'old' if old else 'new'} {number}" for number in range(3)]
    options = ["--broker-list", broker.bootstrap_servers, "--topic", topic, "--request-required-acks", "-1"]
    options += ["--request-timeout-ms", "60000"]  # nothing of it is idempotent: a retry would be there twice
    if version == "0.8.2.2":
        options += [] if old else ["--new-producer"]
    elif old:
        options.append("--old-producer")
    run = run_old(
        version,
        "kafka.tools.ConsoleProducer",
        *options,
        f"--compression-codec={codec}" if version != "0.8.2.2" else "--compression-codec",
        *([codec] if version == "0.8.2.2" else []),
        stdin="".join(f"{line}\n" for line in lines),
    )
    assert run.returncode == 0, run.stderr
    assert "ERROR" not in run.stderr, run.stderr
    return lines


def read(version: str, broker: Broker, topic: str, count: int) -> list[str]:
    """As many lines of a topic by the console's consumer, of before 0.9 by the shell of the simple consumer."""
    options = ["--topic", topic, "--max-messages", str(count)]
    if version == "0.8.2.2":
        options += ["--broker-list", broker.bootstrap_servers, "--partition", "0", "--offset", "-2"]
        run = run_old(version, "kafka.tools.SimpleConsumerShell", *options, "--no-wait-at-logend")
    else:
        options += ["--bootstrap-server", broker.bootstrap_servers, "--from-beginning"]
        options += ["--new-consumer"] if version == "0.9.0.1" else []
        run = run_old(version, "kafka.tools.ConsoleConsumer", *options)
    assert run.returncode == 0, run.stderr
    return [line for line in run.stdout.split("\n") if line and not line.startswith("Terminating")]


def old_api(version: str, classes: Path, *arguments: str) -> list[str]:
    """Run a command of ``OldApi``; its output."""
    command = ["java", "-Xshare:auto", "-XX:TieredStopAtLevel=1", "-cp"]
    command += [f"{classes}:{classpath(OLD_KAFKA[version])}", "OldApi", *arguments]
    run = subprocess.run(command, capture_output=True, text=True, timeout=HANG_S, check=False)
    assert run.returncode == 0, run.stderr
    return run.stdout.split("\n")[:-1]


def compiled(version: str, directory: Path) -> Path:
    """The directory of the compiled ``OldApi``."""
    command = ["javac", "-nowarn", "-d", str(directory), "-cp", classpath(OLD_KAFKA[version]), str(API)]
    subprocess.run(command, capture_output=True, timeout=HANG_S, check=True)
    return directory


@pytest.mark.parametrize("topic", list(TOPICS))
def test_all_read_what_all_have_written(broker: Broker, topic: str) -> None:
    expected: list[str] = []
    for index, version in enumerate(VERSIONS):
        for old in (True, False):
            codec = OLD_CODECS[(2 * index + old) % len(OLD_CODECS)]
            expected += produce(version, broker, topic, codec, old=old)
    modern = Producer({"bootstrap.servers": broker.bootstrap_servers, "compression.type": "lz4", "log_level": 0})
    confluent.produce_all(modern, topic, [b"today's 0", b"today's 1"], key=b"k", headers=[("h", b"v")])
    expected += ["today's 0", "today's 1"]
    for version in VERSIONS:
        assert read(version, broker, topic, len(expected)) == expected
    today = confluent.read_partition(broker.bootstrap_servers, topic, len(expected))
    assert [(message.value() or b"").decode() for message in today] == expected


@pytest.mark.parametrize("version", VERSIONS)
def test_the_old_java_api(broker: Broker, version: str, tmp_path: Path) -> None:
    classes, server = compiled(version, tmp_path), broker.bootstrap_servers
    topic = f"api-{version}"
    confluent.make_topic(server, topic)
    expected = []
    for codec in OLD_CODECS:
        old_api(version, classes, "produce", server, topic, codec, "4")
        expected += [f"key {number} = {codec} {number}" for number in range(4)]
    lines = old_api(version, classes, "fetch", server, topic, "0", "100000")
    assert lines[1:-1] == [f"{offset} {text}" for offset, text in enumerate(expected)]
    lines = old_api(version, classes, "fetch", server, topic, "6", "100000")
    assert lines[1:-1] == [f"{offset + 6} {text}" for offset, text in enumerate(expected[6:])]
    assert old_api(version, classes, "offsets", server, topic) == ["-2 [0]", "-1 [16, 0]"]
    for commit_version in ("0", "1"):
        arguments = (server, topic, f"group-{version}", commit_version)
        committed = old_api(version, classes, "commit", *arguments, "5")
        assert committed in (["error 0"], ["error NONE"])
        api = old_api(version, classes, "committed", *arguments)
        assert api in (["offset 5 error 0"], ["offset 5 error NONE"])


def test_a_message_larger_than_asked_for_comes_cut_and_then_whole(broker: Broker, tmp_path: Path) -> None:
    classes, server = compiled("0.8.2.2", tmp_path), broker.bootstrap_servers
    confluent.make_topic(server, "large")
    producer = Producer({"bootstrap.servers": server, "log_level": 0})
    confluent.produce_all(producer, "large", [b"v" * 1000], key=b"k")
    cut = old_api("0.8.2.2", classes, "fetch", server, "large", "0", "500")
    assert cut[1:] == ["bytes true"], "no message, but the beginning of one: what tells the client that it is too large"
    whole = old_api("0.8.2.2", classes, "fetch", server, "large", "0", "2000")
    assert whole[1:] == [f"0 k = {'v' * 1000}", "bytes true"]


def test_consumers_that_balance_through_zookeeper(zookeeper: ZooKeeper) -> None:
    connect = f"{zookeeper.connect}/old-clients"
    with Broker({**CONFIG, "zookeeper.connect": connect}) as broker:
        confluent.make_topic(broker.bootstrap_servers, "plain")
        expected = produce("0.8.2.2", broker, "plain", "gzip", old=True)
        expected += produce("1.0.2", broker, "plain", "snappy", old=True)
        for version in ("0.8.2.2", "0.10.2.2", "1.0.2"):
            options = ["--zookeeper", connect, "--topic", "plain", "--from-beginning"]
            run = run_old(version, "kafka.tools.ConsoleConsumer", *options, "--max-messages", str(len(expected)))
            assert run.stdout.split("\n")[:-1] == expected, run.stderr
