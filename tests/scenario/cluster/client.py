"""A client of a cluster: each request goes to the broker that is responsible for it, as of the newest metadata."""

from __future__ import annotations

from typing import Any

from oncelog.base.hashing import coordinator_partition
from oncelog.base.ids import CONSUMER_OFFSETS, TRANSACTION_STATE, TopicPartition
from tests.scenario.cluster.cluster import Cluster
from tests.scenario.node.driver import Peer
from tests.scenario.transactions.node_client import Steps

LONGEST_WAIT_MS = 10_000
STEP_MS = 10


class ClusterClient:
    """Connections to all brokers, opened when they are needed."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self._peers: dict[int, Peer] = {}

    def peer(self, broker_id: int) -> Peer:
        """The connection to a broker, another one after it was started anew."""
        peer = self._peers.get(broker_id)
        if peer is None or peer.driver.peers.get(peer.id) is not peer:
            peer = self._peers[broker_id] = self.cluster.connect(broker_id)
        return peer

    def ask(self, request: Any, version: int, broker_id: int | None = None) -> Any:
        """The response, which must come within ten seconds of the cluster's time."""
        peer = self.peer(self.responsible(request) if broker_id is None else broker_id)
        peer.send(request, version)
        waited_ms = 0
        while not peer.responses:
            assert waited_ms < LONGEST_WAIT_MS, f"no response to {request}"
            self.cluster.advance(STEP_MS)
            waited_ms += STEP_MS
        return peer.responses.popleft()

    def run(self, steps: Steps) -> Any:
        """Run the generators of ``tests.scenario.transactions.node_client``."""
        response = None
        try:
            while True:
                response = self.ask(*steps.send(response))
        except StopIteration as stop:
            return stop.value

    def leader(self, topic: str, partition: int = 0) -> int:
        """The leader of a partition, as the first running broker knows it."""
        image = self.cluster.running[0].node.cluster.image.partition(TopicPartition(topic, partition))
        assert image is not None, f"no {topic}-{partition}"
        return image.leader

    def coordinator(self, topic: str, key: str) -> int:
        """The broker that coordinates a transactional id or a group; the first one until the topic exists."""
        broker = self.cluster.running[0]
        value = broker.node.cluster.image.topics.get(topic)
        return (
            broker.broker_id if value is None else self.leader(topic, coordinator_partition(key, len(value.partitions)))
        )

    def responsible(self, request: Any) -> int:
        """The broker that a request goes to."""
        if hasattr(request, "topic_data"):
            (topic,) = request.topic_data
            return self.leader(topic.name, topic.partition_data[0].index)
        if hasattr(request, "group_id") and type(request).__name__ != "AddOffsetsToTxnRequest":
            return self.coordinator(CONSUMER_OFFSETS, request.group_id)
        name = getattr(request, "transactional_id", None) or getattr(request, "v3_and_below_transactional_id", None)
        if name is not None:
            return self.coordinator(TRANSACTION_STATE, name)
        return self.cluster.running[0].broker_id
