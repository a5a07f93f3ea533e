"""kafka-python's administration of transactions, unmodified, against our broker and Apache Kafka alike."""

from __future__ import annotations

from typing import Any

import kafka
import pytest
from kafka import errors
from kafka.admin import KafkaAdminClient
from kafka.admin._transactions import AbortTransactionSpec

from oncelog.client.blocking import Client
from tests.interop.admin.lab import ByHand, at
from tests.interop.admin.test_hanging import make_topic

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # the client's, of its own calls
    pytest.mark.filterwarnings("ignore::ResourceWarning"),  # its connections, left to the collector
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),  # the same, while collected
]


def test_a_late_write_is_seen_and_ended_by_its_coordinators_epoch(client: Client, servers: str) -> None:
    make_topic(client, "kp")
    late = ByHand(client, "kp")
    late.begin(at("kp"))
    late.end()
    start = late.write(at("kp"))
    partition = kafka.TopicPartition("kp", 0)
    admin: Any = KafkaAdminClient(bootstrap_servers=servers)
    try:
        (result,) = admin.describe_producers([partition])[partition].active_producers
        assert result.current_transaction_start_offset == start
        spec = AbortTransactionSpec(partition, result.producer_id, result.producer_epoch)
        with pytest.raises(errors.TransactionCoordinatorFencedError):
            admin.abort_transaction(spec)  # without an epoch, where the producer has a marker already
        admin.abort_transaction(spec._replace(coordinator_epoch=result.coordinator_epoch))
        (result,) = admin.describe_producers([partition])[partition].active_producers
        assert result.current_transaction_start_offset == -1
    finally:
        admin.close()
