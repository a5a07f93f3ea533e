"""Moves all replicas off a broker, a few partitions at a time, so that it can be stopped for good.

Each step reads the cluster, counts the remaining replicas, and starts as many moves as there is room for, so an
interrupted decommission continues from the state of the cluster.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Set
from dataclasses import dataclass
from typing import Final

from oncelog.admin.cluster import BrokerRow, registered_brokers
from oncelog.admin.reassignment_plan import plan_departure
from oncelog.admin.reassignments import PartitionOutcome, ReassignmentRow, Replicas, list_reassignments, reassign
from oncelog.base.errors import ErrorCode
from oncelog.base.ids import TopicName, TopicPartition
from oncelog.client.blocking.client import Client
from oncelog.client.machine.metadata import TopicInfo
from oncelog.client.programs import Cluster, Program, operation

_MAX_ROUNDS: Final = 60
_TRANSIENT: Final = (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_REPLICATION_FACTOR)
"""Refusals that the next step resolves: the topic was deleted meanwhile, or stale metadata still showed the extra
replica of a finished move (KIP-860)."""


@dataclass(frozen=True, slots=True)
class Departure:
    """The partitions left on a departing broker, and new replicas for those that are not moving yet."""

    left: int
    moving: int
    plan: dict[TopicPartition, Replicas]
    registered: tuple[int, ...]
    """The ids of all registered brokers."""


class MovesUnderWay:
    """Moves that were started or listed, kept until metadata shows that they have ended.

    Any broker answers for replicas, and may learn of a move after the controller has finished it. Planned again, such a
    partition would get one replica too many, so it counts as moved. A move that metadata has not shown within
    ``_MAX_ROUNDS`` rounds was cancelled.
    """

    def __init__(self) -> None:
        self._targets: dict[TopicPartition, Replicas] = {}
        self._rounds: Counter[TopicPartition] = Counter()

    def note(self, targets: Mapping[TopicPartition, Replicas]) -> None:
        """Add moves that are under way now."""
        self._targets.update(targets)
        for partition in targets:
            del self._rounds[partition]

    def unseen(
        self, listed: Mapping[TopicPartition, Replicas], holding: Set[TopicPartition]
    ) -> dict[TopicPartition, Replicas]:
        """The targets of moves no longer ``listed`` that metadata does not show yet: the broker is still in
        ``holding``. Call it once a round."""
        self.note(listed)
        unseen = (self._targets.keys() & holding) - listed.keys()
        self._rounds.update(unseen)
        return {partition: self._targets[partition] for partition in unseen if self._rounds[partition] <= _MAX_ROUNDS}


@operation
def plan_decommission(cluster: Cluster, broker_id: int, under_way: MovesUnderWay | None = None) -> Program[Departure]:
    """The replicas that a broker still has, and where they go. Raises PlanRefused, BrokerRefused."""
    # Reassignments first: a move that ends in between then shows its result in the metadata.

    reassignments = yield from list_reassignments(cluster)
    topics = yield from cluster.metadata(None)
    return departure(
        broker_id, topics, reassignments, (yield from registered_brokers(cluster)), under_way or MovesUnderWay()
    )


@operation
def move_off(
    cluster: Cluster, broker_id: int, at_once: int, under_way: MovesUnderWay
) -> Program[tuple[Departure, list[PartitionOutcome]]]:
    """Start moves off a broker until ``at_once`` partitions are moving. Returns the state before, and the refused
    moves. All steps of one decommission share ``under_way``.

    Raises PlanRefused, BrokerRefused.
    """
    state = yield from plan_decommission(cluster, broker_id, under_way)
    to_start = dict(list(state.plan.items())[: max(0, at_once - state.moving)])
    # Stale metadata must not raise the replication factor by accident.
    outcomes = (yield from reassign(cluster, to_start, may_change_factor=False)) if to_start else []
    refused = {(outcome.topic, outcome.partition) for outcome in outcomes if outcome.error is not None}
    under_way.note({at: new for at, new in to_start.items() if tuple(at) not in refused})
    return state, [outcome for outcome in outcomes if outcome.error_code not in _TRANSIENT]


def departure(
    broker_id: int,
    topics: Mapping[TopicName, TopicInfo],
    reassignments: list[ReassignmentRow],
    brokers: list[BrokerRow],
    under_way: MovesUnderWay,
) -> Departure:
    # Fenced brokers get no replicas: they may be down.
    racks = {broker.broker_id: broker.rack for broker in brokers if not broker.is_fenced}
    holding = {
        TopicPartition(topic.name, index)
        for topic in topics.values()
        for index, partition in topic.partitions.items()
        if broker_id in partition.replicas
    }
    listed = {
        TopicPartition(TopicName(reassignment.topic), reassignment.partition): reassignment.target
        for reassignment in reassignments
    }
    # A move towards this broker says nothing about its departure.
    leaving = {at: target for at, target in listed.items() if broker_id not in target}
    targets = {**target_assignment(topics, listed), **under_way.unseen(leaving, holding)}
    plan = plan_departure(targets, racks, broker_id)
    registered = tuple(sorted(broker.broker_id for broker in brokers))
    return Departure(len(holding | set(plan)), len(holding - set(plan)), plan, registered)


def target_assignment(
    topics: Mapping[TopicName, TopicInfo], listed: Mapping[TopicPartition, Replicas]
) -> dict[TopicPartition, Replicas]:
    """The replicas of each partition once all reassignments have ended."""
    return {
        at: listed.get(at, partition.replicas)
        for topic in topics.values()
        for index, partition in topic.partitions.items()
        for at in (TopicPartition(topic.name, index),)
    }


class Decommission:
    """The moves off one broker, step by step, with a blocking client; see ``move_off``."""

    def __init__(self, client: Client, broker_id: int, at_once: int) -> None:
        self._client = client
        self._broker_id = broker_id
        self._at_once = at_once
        self._under_way = MovesUnderWay()

    def step(self) -> tuple[Departure, list[PartitionOutcome]]:
        """Start moves. Returns the state before, and the refused moves. Raises PlanRefused, BrokerRefused."""
        return move_off(self._client, self._broker_id, self._at_once, self._under_way)
