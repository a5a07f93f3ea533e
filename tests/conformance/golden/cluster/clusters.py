"""The two clusters of three brokers that conversations are held with: Apache Kafka's, and ours in this process."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Protocol, Self

from oncelog.testing import Cluster
from oncelog.testing.cluster.member import Member
from tests.conformance.golden.cluster.corpus import BROKERS, PROPERTIES, RACKS
from tests.peers.apache_kafka_cluster import ApacheKafkaCluster


class Brokers(Protocol):
    """Brokers 1, 2 and 3, all running at first."""

    def address(self, broker_id: int) -> str:
        """``host:port`` of one that runs."""

    def stop(self, broker_id: int) -> None:
        """Controlled shutdown."""

    def start(self, broker_id: int) -> None:
        """Start one that was stopped, on its data."""

    def freeze(self, broker_id: int) -> None:
        """Let it stand still, as SIGSTOP does."""

    def expire(self, broker_id: int) -> None:
        """See to it that the session of one that stands still ends."""

    def thaw(self, broker_id: int) -> None:
        """Let it go on."""

    def settle(self) -> None:
        """Let what brokers tell of themselves become what they do."""


class OurBrokers:
    """Three brokers in this process. What a broker tells of metadata is what it acts by: there is nothing to settle."""

    def __init__(self) -> None:
        self._cluster = Cluster(len(BROKERS), PROPERTIES, racks=RACKS)

    def __enter__(self) -> Self:
        self._cluster.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._cluster.stop()

    def address(self, broker_id: int) -> str:
        """See `Brokers`."""
        return self._cluster.brokers[broker_id].bootstrap_servers

    def stop(self, broker_id: int) -> None:
        """See `Brokers`."""
        self._cluster.brokers[broker_id].stop()

    def start(self, broker_id: int) -> None:
        """See `Brokers`."""
        self._cluster.restart(broker_id)

    def freeze(self, broker_id: int) -> None:
        """See `Brokers`."""
        self._cluster.freeze(broker_id, expires=False)

    def expire(self, broker_id: int) -> None:
        """See `Brokers`."""
        member = self._cluster.brokers[broker_id]
        assert isinstance(member, Member)
        member.expire_session()

    def thaw(self, broker_id: int) -> None:
        """See `Brokers`."""
        self._cluster.thaw(broker_id)

    def settle(self) -> None:
        """See `Brokers`."""


class TheirBrokers:
    """Three brokers of Apache Kafka. The first one is the controller, too, and cannot be stopped."""

    SETTLE_S: Final = 0.4
    HEAP_MB: Final = 400

    def __init__(self, directory: Path) -> None:
        self._cluster = ApacheKafkaCluster(directory, heap_mb=self.HEAP_MB, properties=_THEIR_OWN, racks=True)

    def __enter__(self) -> Self:
        self._cluster.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._cluster.__exit__()

    def address(self, broker_id: int) -> str:
        """See `Brokers`."""
        return self._cluster.addresses[broker_id]

    def stop(self, broker_id: int) -> None:
        """See `Brokers`."""
        self._cluster.stop([broker_id])

    def start(self, broker_id: int) -> None:
        """See `Brokers`."""
        self._cluster.start([broker_id])

    def freeze(self, broker_id: int) -> None:
        """See `Brokers`."""
        self._cluster.freeze(broker_id)

    def expire(self, broker_id: int) -> None:
        """See `Brokers`: its session ends by itself."""

    def thaw(self, broker_id: int) -> None:
        """See `Brokers`."""
        self._cluster.thaw(broker_id)

    def settle(self) -> None:
        """See `Brokers`: a broker of Apache Kafka answers for its metadata before its logs and coordinators follow."""
        time.sleep(self.SETTLE_S)


_THEIR_OWN: Final[Mapping[str, str]] = {
    **PROPERTIES,
    "broker.session.timeout.ms": "15000",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
}
"""A broker that stands still is missed late, so that something can be asked before."""
