"""Two coordinators tell one transactional id: one that was replaced and has not heard of it, and its successor.

So it is in Apache Kafka; ``oncelog.admin.transactions.unique_ids`` is what lists make of it.
"""

from __future__ import annotations

from oncelog.base.ids import TRANSACTION_STATE, TopicPartition
from oncelog.wire.messages.find_coordinator import FindCoordinatorRequest
from oncelog.wire.messages.init_producer_id import InitProducerIdRequest
from oncelog.wire.messages.list_transactions import ListTransactionsRequest
from tests.scenario.cluster.client import ClusterClient
from tests.scenario.cluster.cluster import Cluster, ClusterDriver
from tests.scenario.cluster.replicated import replace_unheard


def listed(driver: ClusterDriver) -> list[str]:
    response = driver.connect().ask(ListTransactionsRequest(), 1)
    assert response.error_code == 0
    return [state.transactional_id for state in response.transaction_states]


def test_a_replaced_coordinator_and_its_successor_both_tell_an_id() -> None:
    names = {"transaction.state.log.num.partitions": "1", "transaction.state.log.replication.factor": "3"}
    cluster = Cluster(3, names)
    client = ClusterClient(cluster)
    client.ask(FindCoordinatorRequest(coordinator_keys=["x"], key_type=1), 4)
    cluster.advance(2_000)
    old = cluster[client.coordinator(TRANSACTION_STATE, "x")]
    others = [item for item in cluster.running if item is not old]
    made = old.connect().ask(InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=60_000), 4)
    assert made.error_code == 0
    cluster.advance(1_000)
    shard = TopicPartition(TRANSACTION_STATE, 0)
    replace_unheard(cluster, old, others[0], (broker.broker_id for broker in others), shard)
    assert listed(old) == listed(others[0]) == ["x"]
    assert listed(others[1]) == []
    old.hold_changes = False
    cluster.advance(1_000)
    assert listed(old) == []
