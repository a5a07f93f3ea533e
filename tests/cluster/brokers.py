"""A cluster of `oncelog serve` processes on one tree, each behind a proxy if wanted, and what is done to them."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import signal
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final, Self

from oncelog.admin.cluster_status import ClusterStatus, cluster_status
from oncelog.client.blocking import Client
from oncelog.client.errors import ClientError
from oncelog.wire.messages.find_coordinator import FindCoordinatorRequest
from tests.cluster.secured import Secured
from tests.peers.network_proxy import Proxy
from tests.peers.oncelog_serve import OncelogServe
from tests.peers.process import free_ports
from tests.waiting import wait_until

SESSION_MS: Final = 1_500
GROUPS, TRANSACTIONS = 0, 1
"""Kinds of coordinators."""
_LONGEST_COMMIT_S: Final = 0.5
_BETWEEN_FREEZES_S: Final = 0.005
PROPERTIES: Final[Mapping[str, str]] = {
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "zookeeper.session.timeout.ms": str(SESSION_MS),
    "replica.lag.time.max.ms": "3000",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "4",
    "log.segment.bytes": "1048576",
    "group.min.session.timeout.ms": "500",
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.min.session.timeout.ms": "500",
    "group.consumer.session.timeout.ms": "6000",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "500",
    "group.consumer.assignment.interval.ms": "200",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "200",
}
"""Three replicas of which two are enough, small segments, so that they roll, and sessions that end soon."""


class Cluster:
    """Brokers 1 to ``count``. ``tree``: the keys that say where it is; None: a SQLite file shared by them.
    ``properties`` are beside those of ``base``; ``command``: another than ``oncelog``, of this Python;
    ``commands``: of single brokers, whole. ``secured``: clients and brokers come by TLS and log in."""

    def __init__(
        self,
        directory: Path,
        *,
        tree: Mapping[str, str] | None = None,
        count: int = 3,
        proxied: bool = False,
        properties: Mapping[str, str] | None = None,
        base: Mapping[str, str] = PROPERTIES,
        command: Sequence[str] | None = None,
        commands: Mapping[int, Sequence[str]] | None = None,
        secured: Secured | None = None,
    ) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        place = dict(tree or {"oncelog.tree.path": str(directory / "cluster.db")})
        path = place.get("oncelog.tree.path")
        self._writing = None if path is None else Path(f"{path}.writing")
        self.proxies: dict[int, Proxy] = {}
        self._brokers: dict[int, OncelogServe] = {}
        self._frozen: set[int] = set()
        self._secured_servers: list[str] = []
        ports = free_ports(2 * count)
        for broker_id, port in enumerate(ports[:count], 1):
            own = {**base, **place, **(properties or {}), "node.id": str(broker_id)}
            if secured:
                secured_port = ports[count + broker_id - 1]
                own.update(secured.properties(port, secured_port))
                self._secured_servers.append(f"127.0.0.1:{secured_port}")
            if proxied:
                proxy = self.proxies[broker_id] = Proxy(("127.0.0.1", port))
                own["advertised.listeners"] = f"PLAINTEXT://{proxy.bootstrap_servers}"
            self._brokers[broker_id] = OncelogServe(
                directory / str(broker_id),
                properties=own,
                port=port,
                command=(commands or {}).get(broker_id, command),
                forked=broker_id not in (commands or {}),
            )

    def __enter__(self) -> Self:
        try:
            self.start()
            self.wait_healthy()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Kill whoever is left."""
        for broker_id, broker in self._brokers.items():
            self.kill([broker_id])
            if broker.was_launched:  # it has ended by itself
                broker.kill()
        for proxy in self.proxies.values():
            proxy.close()
        self.proxies.clear()

    @property
    def ids(self) -> list[int]:
        """All brokers."""
        return list(self._brokers)

    @property
    def bootstrap_servers(self) -> str:
        """The clients' addresses: the proxies' where there are such."""
        ends = self.proxies or self._brokers
        return ",".join(self._secured_servers or [ends[broker].bootstrap_servers for broker in self._brokers])

    def address(self, broker_id: int) -> str:
        """Its own, without TLS."""
        return self._brokers[broker_id].bootstrap_servers

    def log(self, broker_id: int) -> str:
        """The whole log of a broker."""
        return (self._brokers[broker_id].directory / "broker.log").read_text("utf-8", "replace")

    def data_directory(self, broker_id: int) -> Path:
        """The logs of a broker."""
        return self._brokers[broker_id].data_directory

    def start(self, broker_ids: Iterable[int] | None = None) -> None:
        """Start those that do not run, all at once, and wait until each answers."""
        started = [self._brokers[id_] for id_ in broker_ids or self.ids if not self._brokers[id_].is_running]
        for broker in started:
            broker.launch()
        for broker in started:
            broker.wait_ready()

    def kill(self, broker_ids: Iterable[int] | None = None) -> None:
        """SIGKILL; all at once."""
        doomed = [id_ for id_ in broker_ids or self.ids if self._brokers[id_].is_running]
        for broker_id in doomed:
            os.kill(self._brokers[broker_id].process.pid, signal.SIGKILL)
        for broker_id in doomed:
            self._frozen.discard(broker_id)
            self._brokers[broker_id].kill()

    def stop(self, broker_id: int) -> int:
        """SIGTERM; the exit code."""
        return self._brokers[broker_id].stop()

    def use(self, broker_id: int, command: Sequence[str] | None) -> None:
        """Run another program from its next start on; None: this tree's."""
        self._brokers[broker_id].use(command)

    def freeze(self, broker_id: int) -> None:
        """SIGSTOP, and not in the middle of a commit: a process that is stopped there keeps all others from committing
        (docs/internals/cluster-tree.md), and there would be no other leader."""
        self._frozen.add(broker_id)
        process_id = self._brokers[broker_id].process.pid
        os.kill(process_id, signal.SIGSTOP)
        while not self._may_commit():
            os.kill(process_id, signal.SIGCONT)
            time.sleep(_BETWEEN_FREEZES_S)
            os.kill(process_id, signal.SIGSTOP)

    def _may_commit(self) -> bool:
        """True if nobody who is stopped holds the turn to commit to the SQLite file; those who run let it go."""
        if self._writing is None or not self._writing.exists():
            return True
        deadline = time.monotonic() + _LONGEST_COMMIT_S
        with self._writing.open("rb") as turn:
            while time.monotonic() < deadline:
                with contextlib.suppress(BlockingIOError):
                    fcntl.flock(turn, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    return True
                time.sleep(_BETWEEN_FREEZES_S)
        return False

    def thaw(self, broker_id: int) -> None:
        """SIGCONT."""
        self._frozen.discard(broker_id)
        os.kill(self._brokers[broker_id].process.pid, signal.SIGCONT)

    def wipe(self, broker_id: int) -> None:
        """The data directory of a broker that does not run is lost."""
        assert not self._brokers[broker_id].is_running
        shutil.rmtree(self._brokers[broker_id].data_directory, ignore_errors=True)

    def ended_by_themselves(self) -> list[str]:
        """Those whose process should run and does not, with what they said last."""
        return [
            f"broker {broker_id} ended by itself:\n{broker.process.log_tail()}"
            for broker_id, broker in self._brokers.items()
            if broker.was_launched and not broker.is_running
        ]

    def ask(self, question: Callable[[Client], object], *, without: Iterable[int] = ()) -> object:
        """An answer of a broker that is not in ``without``."""
        ends = self.proxies or self._brokers
        servers = [ends[id_].bootstrap_servers for id_ in self.ids if id_ not in {*without, *self._frozen}]
        with Client(",".join(servers)) as client:
            return question(client)

    def status(self) -> ClusterStatus | None:
        """The cluster as it sees itself; None while nobody answers."""
        with contextlib.suppress(ClientError):
            response = self.ask(cluster_status)
            assert isinstance(response, ClusterStatus)
            return response
        return None

    def wait_healthy(self) -> None:
        """Until all brokers are up and all replicas in sync."""
        last: list[ClusterStatus | None] = []

        def is_healthy() -> bool:
            last[:] = [self.status()]
            return last[0] is not None and last[0].healthy and len(last[0].brokers) == len(self._brokers)

        wait_until(is_healthy, lambda: f"healthy: {last[0] and last[0].problems}", poll_s=0.05)

    def leader(self, topic: str, partition: int, *, without: Iterable[int] = ()) -> int:
        """The broker that leads a partition, by what a broker not in ``without`` says; −1: none."""
        with contextlib.suppress(ClientError):
            response = self.ask(lambda client: client.metadata([topic]), without=without)
            return int(response[topic].partitions[partition].leader)  # type: ignore[index]
        return -1

    def coordinator(self, key: str, kind: int) -> int:
        """The broker that coordinates a group or a transactional id; −1: none."""

        def ask(client: Client) -> object:
            return client.request(FindCoordinatorRequest(coordinator_keys=[key], key_type=kind)).coordinators[0].node_id

        with contextlib.suppress(ClientError):
            response = self.ask(ask)
            assert isinstance(response, int)
            return response
        return -1

    def wait_for_other_leader(self, topic: str, partition: int, gone: int) -> int:
        """The leader of a partition once it is another than ``gone``, whom nobody asks."""
        leaders: list[int] = []

        def is_other() -> bool:
            leaders[:] = [self.leader(topic, partition, without=[gone])]
            return leaders[0] not in (-1, gone)

        wait_until(is_other, f"another leader of {topic}-{partition} than {gone}", poll_s=0.05)
        return leaders[0]
