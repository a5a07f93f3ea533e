"""Three brokers of Apache Kafka beside us, the first of which is the controller, too: it has to stay.

`with ApacheKafkaCluster(directory) as cluster: cluster.bootstrap_servers`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final, Self

from oncelog.admin.cluster_status import ClusterStatus, cluster_status
from oncelog.client.blocking import Client
from oncelog.client.errors import ClientError
from tests.peers.apache_kafka import ApacheKafka
from tests.waiting import wait_until

QUICK: Final = {"broker.session.timeout.ms": "2000", "broker.heartbeat.interval.ms": "200"}


class ApacheKafkaCluster:
    """Brokers 1, 2 and 3, with ``racks`` each in one of its own: rack-1, rack-2 and rack-3."""

    def __init__(
        self, directory: Path, *, heap_mb: int = 256, properties: Mapping[str, str] | None = None, racks: bool = False
    ) -> None:
        rack = {node_id: {"broker.rack": f"rack-{node_id}"} if racks else {} for node_id in (1, 2, 3)}
        shared = {**QUICK, **(properties or {})}
        first = ApacheKafka(directory / "kafka", heap_mb=heap_mb, properties={**shared, **rack[1]})
        self._brokers = {1: first, **{node_id: first.another(node_id, rack[node_id]) for node_id in (2, 3)}}
        self._running: set[int] = set()

    def __enter__(self) -> Self:
        try:
            self.start(self._brokers)
            self.wait_healthy()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for broker_id in sorted(self._running, reverse=True):
            self._brokers[broker_id].kill()
        self._running.clear()

    @property
    def bootstrap_servers(self) -> str:
        """Of all brokers."""
        return ",".join(broker.bootstrap_servers for broker in self._brokers.values())

    @property
    def addresses(self) -> dict[int, str]:
        """Each broker's, up or down."""
        return {broker_id: broker.bootstrap_servers for broker_id, broker in self._brokers.items()}

    def start(self, broker_ids: Iterable[int]) -> None:
        """Start those that do not run."""
        for broker_id in broker_ids:
            if broker_id not in self._running:
                self._brokers[broker_id].start()
                self._running.add(broker_id)

    def kill(self, broker_ids: Iterable[int]) -> None:
        """SIGKILL."""
        for broker_id in broker_ids:
            self._brokers[broker_id].kill()
            self._running.discard(broker_id)

    def stop(self, broker_ids: Iterable[int]) -> None:
        """Controlled shutdown; returns when they have ended."""
        for broker_id in broker_ids:
            self._brokers[broker_id].stop()
            self._running.discard(broker_id)

    def freeze(self, broker_id: int) -> None:
        """SIGSTOP."""
        self._brokers[broker_id].process.freeze()

    def thaw(self, broker_id: int) -> None:
        """SIGCONT."""
        self._brokers[broker_id].process.thaw()

    def status(self) -> ClusterStatus | None:
        """The cluster as it sees itself; None while nobody answers."""
        with contextlib.suppress(ClientError), Client(self._brokers[1].bootstrap_servers) as client:
            return cluster_status(client)
        return None

    def wait_healthy(self) -> None:
        """Until all brokers are up and all replicas in sync."""

        def is_healthy() -> bool:
            status = self.status()
            return status is not None and status.healthy and len(status.brokers) == len(self._brokers)

        wait_until(is_healthy, "healthy", poll_s=0.1)
