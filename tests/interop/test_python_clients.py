"""The Python clients, unmodified, do everything they do against Apache Kafka."""

from __future__ import annotations

import pytest

from oncelog.testing import Broker
from tests.peers.clients import (
    aio_kafka,
    aio_kafka_transactions,
    confluent,
    confluent_admin,
    confluent_transactions,
    kafka_python,
    kafka_python_transactions,
)
from tests.peers.clients.scenario import Scenario

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # the clients', of their own calls
    pytest.mark.filterwarnings("ignore::ResourceWarning"),  # kafka-python's connections, left to the collector
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),  # the same, while collected
]
_MODULES = {
    "confluent-kafka": confluent,
    "confluent-kafka-admin": confluent_admin,
    "kafka-python": kafka_python,
    "aiokafka": aio_kafka,
    "confluent-kafka-transactions": confluent_transactions,
    "kafka-python-transactions": kafka_python_transactions,
    "aiokafka-transactions": aio_kafka_transactions,
}
_SCENARIOS = {f"{client}-{name}": run for client, module in _MODULES.items() for name, run in module.SCENARIOS.items()}


@pytest.mark.parametrize("scenario", list(_SCENARIOS.values()), ids=list(_SCENARIOS))
def test_the_client_sees_what_it_expects(scenario: Scenario, broker: Broker) -> None:
    scenario(broker.bootstrap_servers)


def test_a_group_forms_however_late_the_answers_are(broker: Broker) -> None:
    broker.faults.delay("Metadata", 0.15, times=None)
    broker.faults.delay("SyncGroup", 0.15, times=None)
    kafka_python.groups(broker.bootstrap_servers)


def test_a_transaction_that_is_open_for_too_long_is_aborted() -> None:
    with Broker({"transaction.abort.timed.out.transaction.cleanup.interval.ms": "200"}) as broker:
        confluent_transactions.time_out(broker.bootstrap_servers)
