"""Apache Kafka's tools print about three of our brokers what they print about three of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from tests.cluster.brokers import Cluster
from tests.interop.cluster_tools.script import play
from tests.interop.cluster_tools.session import Session

pytestmark = [pytest.mark.slow, pytest.mark.java]

RECORDED: Final = Path(__file__).with_name("apache_kafka_4_3_1.txt")
"""Made by ``python -m tests.interop.cluster_tools``."""
BOTH: Final = {
    "offsets.topic.num.partitions": "3",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.num.partitions": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "auto.leader.rebalance.enable": "false",
    "group.initial.rebalance.delay.ms": "0",
}
OURS: Final = {
    **BOTH,
    "default.replication.factor": "1",
    "min.insync.replicas": "1",
    "log.segment.bytes": str(2**30),
    "group.min.session.timeout.ms": "6000",
}


def test_tools_print_the_same(tmp_path: Path) -> None:
    with Cluster(tmp_path, properties=OURS) as brokers:
        transcript = play(Session(brokers, tmp_path))
    assert transcript.splitlines() == RECORDED.read_text("utf-8").splitlines()
