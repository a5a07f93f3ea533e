"""How both clusters are configured, and where their recordings are."""

from __future__ import annotations

from pathlib import Path
from typing import Final

DATA: Final = Path(__file__).parent / "data"
BROKERS: Final = (1, 2, 3)
GROUP_COORDINATOR: Final = 2
TRANSACTION_COORDINATOR: Final = 3
"""Each internal topic has one partition, which these lead."""
PROPERTIES: Final = {
    "auto.leader.rebalance.enable": "false",
    "default.replication.factor": "3",
    "group.initial.rebalance.delay.ms": "0",
    "min.insync.replicas": "1",
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "3",
    "replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
    "transaction.state.log.min.isr": "2",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "3",
}
"""Of both; the rest are Apache Kafka's defaults."""
RACKS: Final = ("rack-1", "rack-2", "rack-3")


def recording_of(conversation: str) -> Path:
    """The recording of a conversation."""
    return DATA / f"{conversation}.xz"
