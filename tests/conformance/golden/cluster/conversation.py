"""One conversation with three brokers: what is asked is written down with its answer, what is only looked at is not.

States of the cluster are waited for by looking (``until…``) at every broker that runs, so that what is asked next does
not depend on how quickly they hear of each other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from oncelog.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from oncelog.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.conformance.golden.cluster.clusters import Brokers
from tests.conformance.golden.cluster.corpus import BROKERS
from tests.peers.clients.sweep.wire import Wire
from tests.peers.recorder import Direction, Event
from tests.waiting import wait_until

_METADATA: int = 12


class RecordedWire(Wire):
    """A connection to one broker. The events are in the order of this side: a request, then its answer."""

    def __init__(self, address: str, broker_id: int, events: list[Event]) -> None:
        super().__init__(address)
        self._broker_id = broker_id
        self._events = events

    def send_bytes(self, frame: bytes) -> None:
        """Send, and write down what is sent."""
        self._events.append(Event(self._broker_id, Direction.REQUEST, frame[4:]))
        super().send_bytes(frame)

    def receive_frame(self) -> bytes | None:
        """The next frame, None when the broker closes the connection; written down."""
        frame = super().receive_frame()
        direction = Direction.CLOSED_BY_BROKER if frame is None else Direction.RESPONSE
        self._events.append(Event(self._broker_id, direction, frame or b""))
        return frame


class Conversation:
    """The messages to the brokers of a cluster. Events are numbered by broker where others are by connection."""

    def __init__(self, brokers: Brokers) -> None:
        self._brokers = brokers
        self.running = list(BROKERS)
        """The brokers that have not been stopped."""
        self.events: list[Event] = []
        self._wires: dict[int, RecordedWire] = {}
        self._looks: dict[int, Wire] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for wire in (*self._wires.values(), *self._looks.values()):
            wire.__exit__(kind, error, trace)

    def at(self, broker_id: int) -> RecordedWire:
        """The connection to a broker, on which everything is written down."""
        if broker_id not in self._wires:
            self._wires[broker_id] = RecordedWire(self._brokers.address(broker_id), broker_id, self.events)
        return self._wires[broker_id]

    def ask(self, broker_id: int, message: Any, version: int) -> Any:
        """The answer of a broker, written down; None when it closed the connection."""
        return self.at(broker_id).call(message, version)

    def ask_each(self, message: Any, version: int) -> None:
        """Ask every broker that runs."""
        for broker_id in self.running:
            self.ask(broker_id, message, version)

    def look(self, broker_id: int, message: Any, version: int) -> Any:
        """The answer of a broker, which is not written down."""
        if broker_id not in self._looks:
            self._looks[broker_id] = Wire(self._brokers.address(broker_id))
        return self._looks[broker_id].call(message, version)

    def stop(self, broker_id: int) -> None:
        """End a broker cleanly; returns when no other one counts it among the living."""
        self._leave(broker_id)
        self._brokers.stop(broker_id)
        self.until_brokers()

    def _leave(self, broker_id: int) -> None:
        self.running.remove(broker_id)
        for wires in (self._wires, self._looks):
            if broker_id in wires:
                wires.pop(broker_id).__exit__(None, None, None)

    def start(self, broker_id: int) -> None:
        """Start a broker again; returns when all count it among the living."""
        self._brokers.start(broker_id)
        self.running = sorted([*self.running, broker_id])
        self.until_brokers()

    def freeze(self, broker_id: int) -> None:
        """Let a broker stand still; the others do not know of it yet."""
        self._leave(broker_id)
        self._brokers.freeze(broker_id)

    def expire(self, broker_id: int) -> None:
        """Wait until a broker that stands still is no longer counted among the living."""
        self._brokers.expire(broker_id)
        self.until_brokers()

    def thaw(self, broker_id: int) -> None:
        """Let a broker go on; returns when all count it among the living."""
        self._brokers.thaw(broker_id)
        self.running = sorted([*self.running, broker_id])
        self.until_brokers()

    def settle(self) -> None:
        """Let what brokers tell of themselves become what they do."""
        self._brokers.settle()

    def topic(self, name: str, assignment: Mapping[int, Sequence[int]], **configs: str) -> bytes:
        """Create a topic with these replicas of each partition; returned is its id, when all replicas are in sync."""
        topic = CreatableTopic(
            name=name,
            num_partitions=-1,
            replication_factor=-1,
            assignments=[
                CreatableReplicaAssignment(partition_index=index, broker_ids=list(replicas))
                for index, replicas in assignment.items()
            ],
            configs=[CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()],
        )
        created = self.ask(1, CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 7).topics[0]
        topic_id: bytes = created.topic_id
        for index, replicas in assignment.items():
            self.until_partition(name, index, leader=replicas[0], replicas=replicas, isr=replicas)
        return topic_id

    # Waiting.

    def until(self, broker_id: int, message: Any, version: int, holds: Callable[[Any], object], text: str) -> None:
        """Look at a broker until its answer is as it has to be."""
        wait_until(lambda: holds(self.look(broker_id, message, version)), f"broker {broker_id}: {text}")

    def until_brokers(self) -> None:
        """Wait until every broker that runs counts exactly those among the living."""
        everything = MetadataRequest(topics=[], allow_auto_topic_creation=False)
        for broker_id in self.running:
            self.until(
                broker_id,
                everything,
                _METADATA,
                lambda answer: sorted(broker.node_id for broker in answer.brokers) == self.running,
                f"knows {self.running}",
            )
        self._brokers.settle()

    def until_partition(
        self,
        topic: str,
        partition: int = 0,
        *,
        leader: int | None = None,
        replicas: Sequence[int] | None = None,
        isr: Sequence[int] | None = None,
    ) -> None:
        """Wait until every broker that runs says so of a partition; the order of the in-sync set is nobody's matter."""

        def is_so(answer: Any) -> bool:
            result = answer.topics[0]
            if result.error_code or partition >= len(result.partitions):
                return False
            state = next(item for item in result.partitions if item.partition_index == partition)
            return (
                leader in (None, state.leader_id)
                and replicas in (None, state.replica_nodes)
                and (isr is None or sorted(isr) == sorted(state.isr_nodes))
            )

        replicas = None if replicas is None else list(replicas)
        request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
        for broker_id in self.running:
            self.until(broker_id, request, _METADATA, is_so, f"{topic}-{partition} {leader=} {replicas=} {isr=}")
        self._brokers.settle()
