"""The throttle of ``oncelog topic reassign``: set before replicas move, removed when they have moved."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Annotated

import typer

from oncelog.base.ids import TopicName, TopicPartition
from oncelog.base.text import counted

if TYPE_CHECKING:
    from oncelog.admin.reassignments import Replicas
    from oncelog.client.blocking.client import Client

Rate = Annotated[
    int | None,
    typer.Option(
        "--throttle",
        metavar="BYTES",
        min=1,
        help="Most bytes a second that each broker sends or copies for the move; alone: for the moves under way.",
    ),
]
Unthrottle = Annotated[bool, typer.Option("--unthrottle", help="Remove the throttles, nothing else.")]


def throttle_plan(client: Client, plan: Mapping[TopicPartition, Replicas], rate: int) -> None:
    """Throttles moves that are about to start. Raises BrokerRefused."""
    from oncelog.admin.reassignments import throttle

    moves = {}
    for partition, replicas in plan.items():
        existing = client.topic(partition.topic).partitions
        if partition.partition in existing:  # others are refused when they are to move
            moves[partition] = (existing[partition.partition].replicas, replicas)
    throttle(client, moves, rate)


def throttle_under_way(client: Client, rate: int) -> int:
    """Throttles moves under way and returns the number of partitions. Raises BrokerRefused."""
    from oncelog.admin.reassignments import list_reassignments, throttle

    moves = {
        TopicPartition(TopicName(reassignment.topic), reassignment.partition): (
            tuple(broker for broker in reassignment.replicas if broker not in reassignment.adding),
            reassignment.target,
        )
        for reassignment in list_reassignments(client)
    }
    throttle(client, moves, rate)
    return len(moves)


def unthrottle_moved(client: Client, topics: Iterable[str]) -> None:
    """Removes the throttles of moved topics, and those of brokers once nothing moves. Raises BrokerRefused."""
    from oncelog.admin.cluster import registered_brokers
    from oncelog.admin.reassignments import list_reassignments, unthrottle

    moving = {reassignment.topic for reassignment in list_reassignments(client)}
    brokers = [] if moving else [broker.broker_id for broker in registered_brokers(client)]
    unthrottle(client, sorted(set(topics) - moving), brokers)


def unthrottle_all(client: Client) -> str:
    """Removes all throttles and returns a sentence about it. Raises BrokerRefused."""
    from oncelog.admin.cluster import registered_brokers
    from oncelog.admin.configs import ResourceType, values_of
    from oncelog.admin.reassignments import FOLLOWERS, LEADERS, unthrottle
    from oncelog.admin.topics import list_topics

    names = [topic.name for topic in list_topics(client)]
    throttled = {
        name
        for key in (LEADERS, FOLLOWERS)
        for name, value in values_of(client, ResourceType.TOPIC, names, key).items()
        if value
    }
    topics, brokers = unthrottle(client, sorted(throttled), [broker.broker_id for broker in registered_brokers(client)])
    if not topics and not brokers:
        return "nothing is throttled"

    return f"throttles removed from {counted(len(topics), 'topic')} and {counted(len(brokers), 'broker')}"
