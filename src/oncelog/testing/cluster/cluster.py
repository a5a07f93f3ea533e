"""Several brokers of one cluster in this process: real nodes, sockets and files, a thread each, one tree in memory.

Clients connect as they would to any cluster. What happens to the brokers is up to the test: they are killed, frozen,
cut off from each other, lose their disks. As with ``testing.Broker``, only some defaults differ, to suit tests.
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
from oncelog.testing.security.secured import Secured, make_security

_TIMEOUT_S: Final = 30.0
_POLL_S: Final = 0.001
_LAG_MS: Final = 30_000
"""The default of ``replica.lag.time.max.ms``."""
_STEPS_A_LAG: Final = 4


class Cluster(Secured):
    """``Cluster(3)``: brokers 1, 2 and 3, started by ``with`` or :meth:`start`. To be used from one thread.

    ``config`` overrides Apache Kafka's configuration keys, for all of them. Topics get three replicas (or as many as
    there are brokers), and acks=all needs two of three. ``security`` is that of :class:`oncelog.testing.Broker`, for
    all of them, and for what they say to each other. With ``virtual_time`` the brokers' clocks can be moved on
    (:meth:`advance`). ``racks`` are the brokers' (``broker.rack``), for consumers that read from the closest replica.
    """

    def __init__(
        self,
        brokers: int = 3,
        config: Config | None = None,
        *,
        virtual_time: bool = False,
        security: str | None = None,
        racks: Sequence[str] = (),
    ) -> None:
        if brokers < 1:
            raise ValueError(f"brokers={brokers}: a cluster has at least one")
        if racks and len(racks) != brokers:
            raise ValueError(f"racks={racks!r}: {brokers} brokers need one each")
        self._config = {**_defaults(brokers), **texts(config)}
        self._racks = [{"broker.rack": rack} for rack in racks] or [{}] * brokers
        self._has_virtual_time = virtual_time
        self._tree = MemoryTree()
        self._members: dict[int, Member] = {}
        self._cut: set[frozenset[int]] = set()
        """Pairs of brokers that are cut off from each other."""
        self._directory: Path | None = None
        self._security = None if security is None else make_security(security, self, time.time)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def bootstrap_servers(self) -> str:
        """The addresses of all brokers, up or down, for a client's configuration; the same until :meth:`stop`."""
        return ",".join(member.bootstrap_servers for member in self._members.values())

    @property
    def brokers(self) -> Mapping[int, Broker]:
        """The brokers by id, up or down; each has :attr:`~oncelog.testing.Broker.faults` of its own."""
        return dict(self._members)

    def start(self) -> None:
        """Start all brokers, and wait until each knows all others."""
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
                    self._ports_cut_from,
                    self._security,
                    virtual_time=self._has_virtual_time,
                )
                self._members[broker_id] = member
                member.start()
            self._wait(self._all_know_all, "all brokers to know each other")
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """End all brokers, and remove their data."""
        members, self._members = self._members, {}
        self._cut.clear()
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
        """End a broker as ``kill -9`` does; the others hear of it at once, as its session ends with its process."""
        self._member(broker_id).kill()

    def restart(self, broker_id: int) -> None:
        """Start a broker on the data and the port it had: again, after a clean stop, if it runs. Returns when all
        brokers that are up know it."""
        member = self._member(broker_id)
        member.thaw()
        if member.is_running:
            member.restart()
        else:
            member.start()
        self._wait(self._all_know_all, f"broker {broker_id} to be known to the others")

    def freeze(self, broker_id: int, *, expires: bool = True) -> None:
        """Stop a broker in the middle of everything, as SIGSTOP does: its connections stay open, and nothing answers.

        With ``expires`` its session ends at once, as it would after ``zookeeper.session.timeout.ms``: the others go on
        without it. A broker that is thawed does not know that yet."""
        member = self._member(broker_id)
        member.freeze()
        if expires:
            member.expire_session()

    def thaw(self, broker_id: int) -> None:
        """Let a frozen broker go on."""
        self._member(broker_id).thaw()

    def lose_disk(self, broker_id: int) -> None:
        """Kill a broker and remove all its data; :meth:`restart` brings it back empty, in a new log directory."""
        member = self._member(broker_id)
        if member.is_running:
            member.kill()
        shutil.rmtree(member.data_dir, ignore_errors=True)

    def advance(self, milliseconds: int) -> None:
        """Move the clocks of all brokers on, by steps so short that no follower that copies seems to lag. Deadlines on
        the way are handled, in order, before this returns. An hour takes a few seconds."""
        if not self._has_virtual_time:
            raise RuntimeError("advance() needs Cluster(virtual_time=True)")
        longest_ms = max(1, int(self._config.get("replica.lag.time.max.ms", _LAG_MS)) // _STEPS_A_LAG)
        while milliseconds > 0:
            step_ms = min(milliseconds, longest_ms)
            for member in self._members.values():
                member.advance(step_ms)
            milliseconds -= step_ms

    def isolate(self, broker_id: int, from_: int | None = None) -> None:
        """Cut a broker off from another, or from all others, both ways: packets are dropped, connections stay open.
        Clients reach it, and so does the coordination tree."""
        self._member(broker_id)
        others = list(self._members) if from_ is None else [self._member(from_).broker_id]
        self._cut |= {frozenset((broker_id, other)) for other in others if other != broker_id}
        self._spread_cuts()

    def heal(self) -> None:
        """End all cuts: what was held back arrives."""
        self._cut.clear()
        self._spread_cuts()

    def leader(self, topic: str, partition: int = 0) -> int | None:
        """The broker that leads a partition, by the newest metadata that a broker has; None when there is none."""
        metadata = self._newest()
        state = None if metadata is None else metadata.image.partition(TopicPartition(TopicName(topic), partition))
        return None if state is None or state.leader < 0 else state.leader

    def elect(self, topic: str, partition: int, broker_id: int) -> None:
        """Make a replica the leader of its partition; returns when it leads. It stays the preferred leader.

        One that is not in sync, as after :meth:`restart`, is waited for: no other may lead without loss. Raises
        BrokerRefused where the broker has no replica, TimeoutError where it does not come into sync, or does not lead.
        """
        self._member(broker_id)
        name = TopicPartition(TopicName(topic), partition)
        with self._client() as client:
            put_first(client, name, broker_id)
            self._wait(lambda: self._is_in_sync(name, broker_id), f"broker {broker_id} to be in sync of {name}")
            elect_preferred(client, name)
        self._wait(lambda: self.leader(topic, partition) == broker_id, f"broker {broker_id} to lead {name}")

    # For the security.

    @property
    def link_servers(self) -> str:
        """The addresses at which brokers reach each other."""
        return ",".join(member.link_servers for member in self._members.values())

    def on_loops(self, work: Callable[[Server], None]) -> None:
        """Call ``work`` on the loop of each broker that is up and not frozen, and wait."""
        for member in self._members.values():
            if not member.is_frozen:
                member.on_loop(work)

    def settle(self) -> None:
        """Wait until all brokers that are up and not frozen have the same changes of metadata. Raises TimeoutError."""
        views = [member.metadata() for member in self._members.values()]
        newest = max((view.position for view in views if view is not None), default=0)
        self._wait(lambda: self._all_have(newest), "all brokers to know of it")

    # Inside.

    def _newest(self) -> Metadata | None:
        """The newest metadata that a broker has; None when all are down or frozen."""
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
            there = ", ".join(map(str, self._members)) or "none: the cluster is not running"
            raise ValueError(f"there is no broker {broker_id}; the brokers are {there}")
        return member

    def _all_know_all(self) -> bool:
        """True if every broker that is up has every such broker in its metadata, registered as it is now."""
        views = {broker_id: view.image for broker_id, one in self._members.items() if (view := one.metadata())}
        newest = {image.broker_epoch for image in views.values()}
        serving = [
            {broker.broker_id for broker in image.brokers.values() if not broker.fenced} for image in views.values()
        ]
        return len(newest) <= 1 and all(views.keys() <= known for known in serving)

    def _ports_cut_from(self, broker_id: int) -> list[int]:
        """The ports of the brokers that a broker is cut off from."""
        others = itertools.chain.from_iterable(pair - {broker_id} for pair in self._cut if broker_id in pair)
        return [self._members[other].link_port for other in others]

    def _spread_cuts(self) -> None:
        for broker_id, member in self._members.items():
            member.set_cut(self._ports_cut_from(broker_id))

    def _wait(self, condition: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + _TIMEOUT_S
        while not condition():
            if time.monotonic() > deadline:
                raise TimeoutError(f"waited {_TIMEOUT_S:.0f} s for {what}")
            time.sleep(_POLL_S)


def _defaults(brokers: int) -> dict[str, str]:
    replicas = min(3, brokers)
    return {
        "default.replication.factor": str(replicas),
        "min.insync.replicas": "2" if brokers > 2 else "1",
        "offsets.topic.replication.factor": str(replicas),
        "transaction.state.log.replication.factor": str(replicas),
        "transaction.state.log.min.isr": str(min(2, replicas)),
    }
