"""A cluster of nodes driven by hand: one tree, one time, and a wire between them.

Everything that can happen at once happens before a call returns: changes of the tree reach all nodes, packets arrive,
in one order, the same in every run. ``advance`` moves the time of all. A test that wants to look between two steps sets
``hold`` and calls ``step`` itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from oncelog.coordination.memory import MemoryTree
from oncelog.node.kernel.events import (
    ConnectToBroker,
    Continued,
    DeadlineReached,
    DisconnectFromBroker,
    Event,
    SendToBroker,
)
from tests.scenario.cluster.election_rules import ElectionRules
from tests.scenario.cluster.wire import Wire
from tests.scenario.node.driver import START_MS, Driver, Peer

SMALL = {
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
}
"""Small internal topics, each on one broker: nodes that start in no time."""


class ClusterDriver(Driver):
    """One node of a cluster."""

    def __init__(self, cluster: Cluster, broker_id: int, config: Mapping[str, str]) -> None:
        self.cluster = cluster
        super().__init__(config, broker_id=broker_id, address=(f"broker-{broker_id}", 9092), tree=cluster.tree)

    def dispatch(self, event: Event) -> None:
        """One event and all that follows from it, on the other nodes, too."""
        super().dispatch(event)
        self.cluster.settle()

    def do(self, call: Callable[[], object]) -> None:
        """Call a part of the node as if an event did: at this time, and its effects are carried out."""
        self.dispatch(Continued())
        call()
        self.dispatch(Continued())

    def new_connection_id(self) -> int:
        """The number of a connection that another node opens."""
        return next(self._connection_ids)

    def _connect_to_broker(self, effect: ConnectToBroker) -> None:
        self.cluster.wire.connect(self, effect)

    def _send_to_broker(self, effect: SendToBroker) -> None:
        self.cluster.wire.send_from(self, effect.link_id, effect.chunks)

    def _disconnect_from_broker(self, effect: DisconnectFromBroker) -> None:
        self.cluster.wire.disconnect(self, effect.link_id)


class Cluster:
    """``Cluster(3)`` starts brokers 1, 2 and 3. A key of ``config`` with an empty text is not set at all."""

    def __init__(self, count: int, config: Mapping[str, str] | None = None) -> None:
        self.tree = MemoryTree()
        self.rules = ElectionRules(self.tree)
        self.wire = Wire()
        self.now_ms = START_MS
        self.hold = False
        """Nothing arrives by itself: the test calls :meth:`step`."""
        self.config = {key: text for key, text in {**SMALL, **(config or {})}.items() if text}
        self._drivers: dict[int, ClusterDriver] = {}
        self._settling = False
        for broker_id in range(1, count + 1):
            self.start(broker_id)

    def __getitem__(self, broker_id: int) -> ClusterDriver:
        return self._drivers[broker_id]

    @property
    def running(self) -> list[ClusterDriver]:
        """Drivers of the nodes that run, by broker id."""
        return [self._drivers[broker_id] for broker_id in sorted(self.wire.nodes)]

    def connect(self, broker_id: int) -> Peer:
        """A new client connection to a broker."""
        return self[broker_id].connect()

    def start(self, broker_id: int) -> ClusterDriver:
        """Start a broker, anew with the disk that it had."""
        settling, self._settling = self._settling, True
        driver = self._drivers.get(broker_id)
        if driver is None:
            driver = self._drivers[broker_id] = ClusterDriver(self, broker_id, self.config)
            driver.now_ms = self.now_ms
        else:
            driver.now_ms = self.now_ms
            driver.start()
        self.wire.nodes[broker_id] = driver
        self._settling = settling
        self.settle()
        return driver

    def kill(self, broker_id: int, *, session_ends: bool = True) -> None:
        """End a broker's process: what it wrote stays. Its session with the tree ends now, or with
        :meth:`end_session`."""
        driver = self[broker_id]
        driver.held.clear()
        del self.wire.nodes[broker_id]
        self.wire.node_died(driver)
        if session_ends:
            self.end_session(broker_id)
        self.settle()

    def end_session(self, broker_id: int) -> None:
        """End the session of a broker with the tree."""
        self[broker_id].session.close()
        self.settle()

    def restart(self, broker_id: int) -> ClusterDriver:
        """Kill and start a broker."""
        self.kill(broker_id)
        return self.start(broker_id)

    def cut(self, number: int, other: int) -> None:
        """Hold what two brokers send to each other; one way only: ``wire.cut``."""
        self.wire.cut(number, other)
        self.wire.cut(other, number)

    def heal(self, number: int, other: int) -> None:
        """End a cut of both directions; what was held arrives."""
        self.wire.heal(number, other)
        self.wire.heal(other, number)
        self.settle()

    def advance(self, milliseconds: int) -> None:
        """Move time on, stopping at every deadline of every node."""
        target_ms = self.now_ms + milliseconds
        while True:
            due = {driver: driver.node.next_deadline_ms() for driver in self.running}
            at_ms = min((at for at in due.values() if at is not None), default=target_ms + 1)
            if at_ms > target_ms:
                break
            self._set_time(max(self.now_ms, at_ms))
            for driver, deadline_ms in due.items():
                if deadline_ms == at_ms and driver.broker_id in self.wire.nodes:
                    driver.dispatch(DeadlineReached())
        self._set_time(target_ms)
        self.settle()

    def settle(self) -> None:
        """Let everything happen that can at this time."""
        if self._settling or self.hold:
            return
        self._settling = True
        while self.step():
            pass
        self._settling = False

    def step(self) -> bool:
        """Let the next thing happen: changes of the tree arrive everywhere, alarms that are due ring, or one packet
        arrives; False if nothing can."""
        for driver in self.running:
            driver.dispatch_changes()
        for driver in self.running:
            at_ms = driver.node.next_deadline_ms()
            if at_ms is not None and at_ms <= self.now_ms:
                driver.dispatch(DeadlineReached())
                return True
        return self.wire.step()

    def _set_time(self, now_ms: int) -> None:
        self.now_ms = now_ms
        for driver in self._drivers.values():
            driver.now_ms = now_ms
