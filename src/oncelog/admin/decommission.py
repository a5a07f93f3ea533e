"""Taking all replicas off a broker, a few partitions at a time, so that it can be stopped for good.

The rule: nothing is remembered between two steps. Each looks at the cluster, counts what is left, and begins as many
moves as there is room for; so a decommission that was interrupted goes on where the cluster is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from oncelog.admin.cluster import registered_brokers
from oncelog.admin.reassignment_plan import plan_departure
from oncelog.admin.reassignments import PartitionOutcome, ReassignmentRow, Replicas, list_reassignments, reassign
from oncelog.base.ids import TopicName, TopicPartition
from oncelog.client.blocking.client import Client
from oncelog.client.machine.metadata import TopicInfo


@dataclass(frozen=True, slots=True)
class Departure:
    """Partitions that are left on a broker that is to go, and new replicas for those that are not yet moving."""

    left: int
    moving: int
    plan: dict[TopicPartition, Replicas]
    registered: tuple[int, ...]
    """The brokers of the cluster."""


def plan_decommission(client: Client, broker_id: int) -> Departure:
    """The replicas that a broker still has, and the brokers to which they go. Raises PlanRefused, BrokerRefused."""
    # Reassignments first: one that ends in between is then seen as it ended.
    reassignments = list_reassignments(client)
    topics = client.metadata(None)
    brokers = registered_brokers(client)
    racks = {one.broker_id: one.rack for one in brokers if not one.is_fenced}
    targets = target_assignment(topics, reassignments)
    holding = {
        TopicPartition(topic.name, index)
        for topic in topics.values()
        for index, one in topic.partitions.items()
        if broker_id in one.replicas
    }
    plan = plan_departure(targets, racks, broker_id)
    registered = tuple(sorted(one.broker_id for one in brokers))
    return Departure(len(holding | set(plan)), len(holding - set(plan)), plan, registered)


def continue_decommission(client: Client, broker_id: int, at_once: int) -> tuple[Departure, list[PartitionOutcome]]:
    """Begin moves until ``at_once`` partitions are on their way; what was left before, and the moves that were refused.

    Raises PlanRefused, BrokerRefused.
    """
    found = plan_decommission(client, broker_id)
    begin = dict(list(found.plan.items())[: max(0, at_once - found.moving)])
    outcomes = reassign(client, begin) if begin else []
    return found, [one for one in outcomes if one.error is not None]


def target_assignment(
    topics: Mapping[TopicName, TopicInfo], reassignments: list[ReassignmentRow]
) -> dict[TopicPartition, Replicas]:
    """The replicas of each partition, as they will be when what is under way has ended."""
    moving = {(one.topic, one.partition): one.target for one in reassignments}
    return {
        TopicPartition(topic.name, index): moving.get((topic.name, index), one.replicas)
        for topic in topics.values()
        for index, one in topic.partitions.items()
    }
