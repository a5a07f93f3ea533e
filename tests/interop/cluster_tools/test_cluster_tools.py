"""Apache Kafka's tools print about three of our brokers what they print about three of its own."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest

from tests.cluster.brokers import Cluster
from tests.interop.cluster_tools.script import play
from tests.interop.cluster_tools.session import Session

pytestmark = [pytest.mark.slow, pytest.mark.java]

RECORDED: Final = Path(__file__).with_name("apache_kafka_4_4_0.txt")
"""Made by ``python -m tests.interop.cluster_tools``."""
BOTH: Final = {
    "offsets.topic.num.partitions": "3",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.num.partitions": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "auto.leader.rebalance.enable": "false",
    "group.initial.rebalance.delay.ms": "0",
    "transaction.partition.verification.enable": "false",
    "replica.fetch.max.bytes": "1000",
}
OURS: Final = {"zookeeper.session.timeout.ms": "2000"}
LAST_IN_SYNC: Final = re.compile(r"Leader: none\tReplicas: .*\t")
"""The last in-sync replica stays in the set when its broker dies; Apache Kafka moves it to the eligible leaders, and
lists such a partition as under min.insync.replicas rather than at it."""


def shown(transcript: str) -> list[str]:
    """The lines that are compared."""
    lines = [line.rstrip(" ") for line in transcript.splitlines()]
    return [line for line in lines if line and LAST_IN_SYNC.search(line) is None]


def test_tools_print_the_same(tmp_path: Path) -> None:
    with Cluster(tmp_path, base=BOTH, properties=OURS) as brokers:
        transcript = play(Session(brokers, tmp_path))
    (tmp_path / "transcript.txt").write_text(transcript, "utf-8")
    assert shown(transcript) == shown(RECORDED.read_text("utf-8"))
