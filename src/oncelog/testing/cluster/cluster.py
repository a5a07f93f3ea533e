"""Several brokers of one cluster in this process: real nodes, sockets and files, a thread each, and one tree in memory.

The test kills, freezes or isolates brokers, or removes their disks. As with ``testing.Broker``, some defaults suit
tests.
"""

from __future__ import annotations

import itertools
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from oncelog.base.ids import TopicName, TopicPartition
from oncelog.client.blocking.client import Client
from oncelog.coordination.memory import MemoryTree
from oncelog.node.cluster.metadata import Metadata
from oncelog.runtime.server import Server
from oncelog.testing.broker import Broker
from oncelog.testing.cluster.election import elect_preferred, put_first
from oncelog.testing.cluster.member import Member
from oncelog.testing.configuration import Config, texts
from oncelog.testing.registry import RegistryThread
from oncelog.testing.security.secured import Secured, make_security
from oncelog.testing.share_groups import ShareGroups

_TIMEOUT_S: Final = 30.0
_POLL_S: Final = 0.001
# The default of `replica.lag.time.max.ms`.
_LAG_MS: Final = 30_000
_STEPS_A_LAG: Final = 4


class Cluster(Secured):
    """``Cluster(3)``: brokers 1, 2 and 3, started by ``with`` or :meth:`start`. For use by one thread.

    ``config`` overrides Apache Kafka's configuration keys of all brokers. Topics have three replicas (or one per
    broker, if fewer), and acks=all needs two of three. ``security`` (also between brokers) and ``virtual_time`` are as
    in :class:`oncelog.testing.Broker`. ``racks``: ``broker.rack`` of each broker, for consumers that read from the
    closest replica. With ``registry`` a schema registry is at :attr:`registry_url`; it is a client of all brokers.
    """

    def __init__(
        self,
        brokers: int = 3,
        config: Config | None = None,
        *,
        virtual_time: bool = False,
        security: str | None = None,
        racks: Sequence[str] = (),
        registry: bool = False,
    ) -> None:
        if brokers < 1:
            raise ValueError(f"brokers must be at least 1, got {brokers}")
        if racks and len(racks) != brokers:
            raise ValueError(f"racks={racks!r}: {brokers} brokers need one each")
        self._config = {**_defaults(brokers), **texts(config)}
        self._racks = [{"broker.rack": rack} for rack in racks] or [{}] * brokers
        self._has_virtual_time = virtual_time
        self._tree = MemoryTree()
        self._members: dict[int, Member] = {}
        # Pairs of brokers that cannot reach each other.
        self._cut_pairs: set[frozenset[int]] = set()
        self._directory: Path | None = None
        self._security = None if security is None else make_security(security, self, time.time)
        self._registry = RegistryThread() if registry else None
        self.share = ShareGroups(self)
        """Deliveries of share groups: see :class:`oncelog.testing.share_groups.ShareGroups`."""

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def bootstrap_servers(self) -> str:
        """The addresses of all brokers, up or down; constant until :meth:`stop`."""
        return ",".join(member.bootstrap_servers for member in self._members.values())

    @property
    def registry_url(self) -> str:
        """The address of the schema registry, for clients; constant until :meth:`stop`."""
        if self._registry is None:
            raise RuntimeError("the cluster has no schema registry: create it with Cluster(registry=True)")
        return self._registry.url

    @property
    def brokers(self) -> Mapping[int, Broker]:
        """All brokers by id, up or down, each with its own :attr:`~oncelog.testing.Broker.faults`."""
        return dict(self._members)

    def start(self) -> None:
        """Start all brokers, and wait until they know each other."""
        if self._members:
            raise RuntimeError("the cluster is already running")
        self._tree = MemoryTree()
        self._directory = directory = Path(tempfile.mkdtemp(prefix="oncelog-cluster-"))
        try:
            for broker_id, rack in enumerate(self._racks, 1):
                data_dir = directory / str(broker_id)
                member = Member(
                    broker_id,
                    self._tree,
                    {**self._config, **rack},
                    data_dir,
                    self._unreachable_ports,
                    self._security,
                    virtual_time=self._has_virtual_time,
                )
                self._members[broker_id] = member
                member.start()
            self._wait(self._all_have_registered, "all brokers to know each other")
            if self._registry is not None:
                config = {} if self._security is None else self._security.link_config()
                self._registry.start(self.link_servers, config)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Stop all brokers and remove their data."""
        if self._registry is not None:
            self._registry.release()
        members, self._members = self._members, {}
        self._cut_pairs.clear()
        for member in members.values():
            if member.is_running:
                member.kill()
        for member in members.values():
            member.stop()
        if self._directory is not None:
            shutil.rmtree(self._directory, ignore_errors=True)
            self._directory = None
        if self._security is not None:
            self._security.close()

    def kill(self, broker_id: int) -> None:
        """Kill a broker like ``kill -9``. The others notice at once: its session ends with the process."""
        self._member(broker_id).kill()

    def restart(self, broker_id: int) -> None:
        """Start a broker with its old data and port, after a clean stop if it runs. Waits until all running brokers
        know it."""
        member = self._member(broker_id)
        member.thaw()
        if member.is_running:
            member.restart()
        else:
            member.start()
        self._wait(self._all_have_registered, f"broker {broker_id} to be known to the others")

    def freeze(self, broker_id: int, *, expires: bool = True) -> None:
        """Freeze a broker, like SIGSTOP: its connections stay open, but it does not respond.

        With ``expires`` its session ends at once, and the others continue without it; after a thaw the broker does not
        know that yet.
        """
        member = self._member(broker_id)
        member.freeze()
        if expires:
            member.expire_session()

    def thaw(self, broker_id: int) -> None:
        self._member(broker_id).thaw()

    def lose_disk(self, broker_id: int) -> None:
        """Kill a broker and remove its data; :meth:`restart` brings it back empty, with a new log directory."""
        member = self._member(broker_id)
        if member.is_running:
            member.kill()
        shutil.rmtree(member.data_dir, ignore_errors=True)

    def advance(self, milliseconds: int) -> None:
        """Move all brokers' clocks forward, and handle deadlines in order. An hour takes a few seconds."""
        if not self._has_virtual_time:
            raise RuntimeError("advance() works only with Cluster(virtual_time=True)")
        # Steps are short, so that no active follower seems to lag.
        longest_ms = max(1, int(self._config.get("replica.lag.time.max.ms", _LAG_MS)) // _STEPS_A_LAG)
        while milliseconds > 0:
            step_ms = min(milliseconds, longest_ms)
            for member in self._members.values():
                member.advance(step_ms)
            milliseconds -= step_ms

    def isolate(self, broker_id: int, from_: int | None = None) -> None:
        """Drop packets between a broker and another one, or all others; connections stay open. Clients and the tree
        still reach it."""
        self._member(broker_id)
        others = list(self._members) if from_ is None else [self._member(from_).broker_id]
        self._cut_pairs |= {frozenset((broker_id, other)) for other in others if other != broker_id}
        self._apply_cuts()

    def heal(self) -> None:
        """End all cuts: packets held back arrive."""
        self._cut_pairs.clear()
        self._apply_cuts()

    def leader(self, topic: str, partition: int = 0) -> int | None:
        """The leader in the newest metadata of any broker, or None."""
        metadata = self._newest()
        state = None if metadata is None else metadata.image.partition(TopicPartition(TopicName(topic), partition))
        return None if state is None or state.leader < 0 else state.leader

    def elect(self, topic: str, partition: int, broker_id: int) -> None:
        """Make a replica the leader, and the preferred leader, of its partition. Returns when it leads.

        Waits until the replica is in sync. Raises BrokerRefused if the broker has no replica, TimeoutError if it does
        not get in sync or does not lead.
        """
        self._member(broker_id)
        name = TopicPartition(TopicName(topic), partition)
        with self._client() as client:
            put_first(client, name, broker_id)
            self._wait(lambda: self._is_in_sync(name, broker_id), f"broker {broker_id} to be in sync of {name}")
            elect_preferred(client, name)
        self._wait(lambda: self.leader(topic, partition) == broker_id, f"broker {broker_id} to lead {name}")

    @property
    def link_servers(self) -> str:
        return ",".join(member.link_servers for member in self._members.values())

    def on_loops(self, work: Callable[[Server], None]) -> None:
        """Call ``work`` on the loop of each broker that is running and not frozen, and wait."""
        for member in self._members.values():
            if not member.is_frozen:
                member.on_loop(work)

    def settle(self) -> None:
        """Wait until all brokers that are running and not frozen have the newest metadata. Raises TimeoutError."""
        views = [member.metadata() for member in self._members.values()]
        newest = max((view.position for view in views if view is not None), default=0)
        self._wait(lambda: self._all_have(newest), "all brokers to have the newest metadata")

    def _newest(self) -> Metadata | None:
        # The newest metadata of any broker, or None if all are down or frozen.
        views = [view for member in self._members.values() if (view := member.metadata()) is not None]
        return max(views, key=lambda view: view.position, default=None)

    def _is_in_sync(self, partition: TopicPartition, broker_id: int) -> bool:
        metadata = self._newest()
        state = None if metadata is None else metadata.image.partition(partition)
        return state is not None and broker_id in state.isr

    def _all_have(self, position: int) -> bool:
        views = (member.metadata() for member in self._members.values())
        return all(view.position >= position for view in views if view is not None)

    def _client(self) -> Client:
        if self._security is None:
            return Client(self.bootstrap_servers)
        return Client(self.link_servers, config=self._security.link_config())

    def _member(self, broker_id: int) -> Member:
        member = self._members.get(broker_id)
        if member is None:
            ids = ", ".join(map(str, self._members)) or "none: the cluster is not running"
            raise ValueError(f"there is no broker {broker_id}; the brokers are {ids}")
        return member

    def _all_have_registered(self) -> bool:
        # True if every running broker has all running brokers in its metadata, with their current registrations.
        views = {broker_id: view.image for broker_id, member in self._members.items() if (view := member.metadata())}
        newest = {image.broker_epoch for image in views.values()}
        serving = [
            {broker.broker_id for broker in image.brokers.values() if not broker.fenced} for image in views.values()
        ]
        return len(newest) <= 1 and all(views.keys() <= broker_ids for broker_ids in serving)

    def _unreachable_ports(self, broker_id: int) -> list[int]:
        others = itertools.chain.from_iterable(pair - {broker_id} for pair in self._cut_pairs if broker_id in pair)
        return [self._members[other].link_port for other in others]

    def _apply_cuts(self) -> None:
        for broker_id, member in self._members.items():
            member.set_cut(self._unreachable_ports(broker_id))

    def _wait(self, condition: Callable[[], bool], event: str) -> None:
        deadline = time.monotonic() + _TIMEOUT_S
        while not condition():
            if time.monotonic() > deadline:
                raise TimeoutError(f"waited {_TIMEOUT_S:.0f} s for {event}")
            time.sleep(_POLL_S)


def _defaults(brokers: int) -> dict[str, str]:
    replicas = min(3, brokers)
    return {
        "default.replication.factor": str(replicas),
        "min.insync.replicas": "2" if brokers > 2 else "1",
        "offsets.topic.replication.factor": str(replicas),
        "share.coordinator.state.topic.num.partitions": "1",
        "share.coordinator.state.topic.replication.factor": str(replicas),
        "transaction.state.log.replication.factor": str(replicas),
        "transaction.state.log.min.isr": str(min(2, replicas)),
    }
