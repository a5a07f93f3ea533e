"""Taking all replicas off a broker, a few partitions at a time, so that it can be stopped for good.

The rule: a step looks at the cluster, counts what is left, and begins as many moves as there is room for; so a
decommission that was interrupted goes on where the cluster is. All that steps remember is which moves have been under
way, because metadata are behind the controller.
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

_LOOKS: Final = 60
_PASSING: Final = (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_REPLICATION_FACTOR)
"""Refusals that the next look settles: a topic that was deleted meanwhile; a plan by metadata in which a move has not
ended that has, and with it the partition has a replica more (KIP-860)."""


@dataclass(frozen=True, slots=True)
class Departure:
    """Partitions that are left on a broker that is to go, and new replicas for those that are not yet moving."""

    left: int
    moving: int
    plan: dict[TopicPartition, Replicas]
    registered: tuple[int, ...]
    """The brokers of the cluster."""


class MovesUnderWay:
    """Moves that were begun or listed, for as long as metadata may not show that they have ended.

    The controller lists moves, but any broker answers for the replicas, and learns later that a move has ended. Planned
    anew, the partition would be given one replica more: it counts as moved where it was to go. A move that has not
    shown in ``_LOOKS`` looks was taken back.
    """

    def __init__(self) -> None:
        self._targets: dict[TopicPartition, Replicas] = {}
        self._looks: Counter[TopicPartition] = Counter()

    def note(self, targets: Mapping[TopicPartition, Replicas]) -> None:
        """These are under way now."""
        self._targets.update(targets)
        for partition in targets:
            del self._looks[partition]

    def unseen(
        self, listed: Mapping[TopicPartition, Replicas], holding: Set[TopicPartition]
    ) -> dict[TopicPartition, Replicas]:
        """Targets of moves that have ended, being ``listed`` no more, of partitions that the broker still has by the
        metadata (``holding``). To be asked once a look."""
        self.note(listed)
        unseen = (self._targets.keys() & holding) - listed.keys()
        self._looks.update(unseen)
        return {partition: self._targets[partition] for partition in unseen if self._looks[partition] <= _LOOKS}


@operation
def plan_decommission(cluster: Cluster, broker_id: int, under_way: MovesUnderWay | None = None) -> Program[Departure]:
    """The replicas that a broker still has, and the brokers to which they go. Raises PlanRefused, BrokerRefused."""
    # Reassignments first: one that ends in between is then seen as it ended.
    reassignments = yield from list_reassignments(cluster)
    topics = yield from cluster.metadata(None)
    return departure(
        broker_id, topics, reassignments, (yield from registered_brokers(cluster)), under_way or MovesUnderWay()
    )


@operation
def move_off(
    cluster: Cluster, broker_id: int, at_once: int, under_way: MovesUnderWay
) -> Program[tuple[Departure, list[PartitionOutcome]]]:
    """Begin moves off a broker until ``at_once`` partitions are on their way. Returns the state before that, and the
    moves that were refused. ``under_way`` is the same for all steps of one decommission.

    Raises PlanRefused, BrokerRefused.
    """
    found = yield from plan_decommission(cluster, broker_id, under_way)
    begin = dict(list(found.plan.items())[: max(0, at_once - found.moving)])
    outcomes = (yield from reassign(cluster, begin, may_change_factor=False)) if begin else []
    refused = {(outcome.topic, outcome.partition) for outcome in outcomes if outcome.error is not None}
    under_way.note({at: new for at, new in begin.items() if tuple(at) not in refused})
    return found, [outcome for outcome in outcomes if outcome.error_code not in _PASSING]


def departure(
    broker_id: int,
    topics: Mapping[TopicName, TopicInfo],
    reassignments: list[ReassignmentRow],
    brokers: list[BrokerRow],
    under_way: MovesUnderWay,
) -> Departure:
    """The plan for a cluster that is as given. Raises PlanRefused."""
    racks = {broker.broker_id: broker.rack for broker in brokers if not broker.is_fenced}
    holding = {
        TopicPartition(topic.name, index)
        for topic in topics.values()
        for index, one in topic.partitions.items()
        if broker_id in one.replicas
    }
    listed = {
        TopicPartition(TopicName(reassignment.topic), reassignment.partition): reassignment.target
        for reassignment in reassignments
    }
    leaving = {at: target for at, target in listed.items() if broker_id not in target}
    targets = {**target_assignment(topics, listed), **under_way.unseen(leaving, holding)}
    plan = plan_departure(targets, racks, broker_id)
    registered = tuple(sorted(broker.broker_id for broker in brokers))
    return Departure(len(holding | set(plan)), len(holding - set(plan)), plan, registered)


def target_assignment(
    topics: Mapping[TopicName, TopicInfo], listed: Mapping[TopicPartition, Replicas]
) -> dict[TopicPartition, Replicas]:
    """The replicas of each partition, as they will be when what is under way has ended."""
    return {
        at: listed.get(at, one.replicas)
        for topic in topics.values()
        for index, one in topic.partitions.items()
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
        """Begin moves; the state before that, and the moves that were refused. Raises PlanRefused, BrokerRefused."""
        return move_off(self._client, self._broker_id, self._at_once, self._under_way)
