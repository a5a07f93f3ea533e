"""Brokers of Apache Kafka 0.8.2.2 to 1.0.2 in ZooKeeper mode: ours read what their own producers have written, in one
group with a consumer of theirs, and keep offsets where they do."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.interop.zookeeper_groups.group import Group
from tests.peers.old_kafka import OldKafka, run_old
from tests.peers.zookeeper import ZooKeeper
from tests.waiting import HANG_S

pytestmark = [pytest.mark.slow]
CODECS = {"0.8.2.2": ("none", "gzip", "snappy"), "0.9.0.1": ("none", "gzip", "snappy", "lz4")}
ALL_CODECS = ("none", "gzip", "snappy", "lz4")
PATIENT = ("--request-required-acks", "1", "--message-send-max-retries", "50", "--request-timeout-ms", "60000")
"""Of a producer that waits for no answer (before 0.10), or gives a batch up after 1.5 s and says so on stderr alone."""
PARTITIONS = 4


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(version, marks=pytest.mark.peer(f"kafka-{version}", "kafka-0.8.2.2"))
        for version in ("0.8.2.2", "0.9.0.1", "0.10.2.2", "1.0.2")
    ],
)
def kafka(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, zookeeper: ZooKeeper
) -> Iterator[tuple[OldKafka, str]]:
    connect = f"{zookeeper.connect}/kafka-{request.param}"
    with OldKafka(request.param, connect, tmp_path_factory.mktemp("old")) as running:
        yield running, connect


def create(kafka: OldKafka, connect: str, topic: str) -> None:
    options = ("--topic", topic, "--partitions", str(PARTITIONS), "--replication-factor", "1")
    made = run_old(kafka.version, "kafka.admin.TopicCommand", "--zookeeper", connect, "--create", *options)
    assert made.returncode == 0, made


def produce(kafka: OldKafka, topic: str, name: str, *, codecs: tuple[str, ...] = ()) -> set[str]:
    """Records by the release's own producer, with every codec that it has."""
    sent = set()
    for codec in codecs or CODECS.get(kafka.version, ALL_CODECS):
        values = [f"{name}-{codec}-{number}" for number in range(40)]
        options = ("--broker-list", kafka.bootstrap_servers, "--topic", topic, *PATIENT)
        compression = () if codec == "none" else ("--compression-codec", codec)
        done = run_old(
            kafka.version, "kafka.tools.ConsoleProducer", *options, *compression, stdin="\n".join(values) + "\n"
        )
        assert done.returncode == 0, done
        assert "ERROR" not in done.stdout + done.stderr, done
        sent.update(values)
    return sent


def test_ours_and_theirs_share_a_group(kafka: tuple[OldKafka, str], tmp_path: Path) -> None:
    running, connect = kafka
    create(running, connect, "shared")
    with Group(connect, "g", "shared", tmp_path) as group:
        group.begin_at_zero()
        group.join("ours")
        group.join("old", "0.8.2.2")
        group.wait_for("old", "ours", partitions=PARTITIONS)
        sent = produce(running, "shared", "first", codecs=CODECS["0.8.2.2"])
        group.wait_read(sent)
        group.consumers["old"].stop()
        group.wait_for("ours", partitions=PARTITIONS)
        sent |= produce(running, "shared", "second", codecs=CODECS["0.8.2.2"])
        group.wait_read(sent)
        assert set(group.values().values()) == {1}
        assert group.values().keys() == sent


@pytest.mark.parametrize("storage", ["zookeeper", "kafka"])
def test_a_group_goes_on_from_its_offsets(kafka: tuple[OldKafka, str], storage: str, tmp_path: Path) -> None:
    running, connect = kafka
    topic, group = f"stored-{storage}", f"g-{storage}"
    create(running, connect, topic)
    oncelog = str(Path(sys.executable).with_name("oncelog"))
    place = ("--zookeeper", connect, "--group", group)

    def consume() -> set[str]:
        command = [oncelog, "consume", topic, *place, "--from", "beginning", "--exit", "--offsets-storage", storage]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=HANG_S)
        assert done.returncode == 0, done
        values = done.stdout.splitlines()
        assert len(values) == len(set(values))
        return set(values)

    first = produce(running, topic, "first")
    assert consume() == first
    second = produce(running, topic, "second")
    assert consume() == second
    described = subprocess.run(
        [oncelog, "group", "describe", group, "--zookeeper", connect], capture_output=True, text=True, check=False
    )
    assert described.returncode == 0, described
    source, target = ("zookeeper", "kafka") if storage == "zookeeper" else ("kafka", "zookeeper")
    move = [oncelog, "group", "migrate", group, "--zookeeper", connect, "--from", source, "--to", target, "--force"]
    moved = subprocess.run(move, capture_output=True, text=True, check=False)
    assert moved.returncode == 0, moved
    storage = target
    assert consume() == set()
