"""Throttles of replication on any cluster (KIP-73): a rate for brokers, and the replicas that it holds for.

The rule is that of ``kafka-reassign-partitions --throttle``: of a partition that moves, the replicas that are there are
throttled where they lead, those that come where they follow. Nothing takes a throttle away by itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from oncelog.admin.configs import ResourceType, alter_configs, describe_configs
from oncelog.base.ids import TopicPartition
from oncelog.client.blocking.client import Client

RATES: Final = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
"""Keys of brokers, in bytes a second."""
LEADERS: Final = "leader.replication.throttled.replicas"
FOLLOWERS: Final = "follower.replication.throttled.replicas"

Move = tuple[Sequence[int], Sequence[int]]
"""The replicas that a partition has, and those that it is to have."""


def throttle(client: Client, moves: Mapping[TopicPartition, Move], bytes_per_second: int) -> None:
    """Throttle moves that are to begin, or are under way. Raises BrokerRefused."""
    topics: dict[str, dict[str, list[str]]] = {}
    brokers: set[int] = set()
    for at, (now, wanted) in sorted(moves.items()):
        replicas = topics.setdefault(at.topic, {LEADERS: [], FOLLOWERS: []})
        replicas[LEADERS] += [f"{at.partition}:{broker}" for broker in now]
        replicas[FOLLOWERS] += [f"{at.partition}:{broker}" for broker in wanted if broker not in now]
        brokers.update(now, wanted)
    for name, lists in topics.items():
        change = {key: ",".join(replicas) for key, replicas in lists.items()}
        alter_configs(client, ResourceType.TOPIC, name, change=change)
    for broker in sorted(brokers):
        change = dict.fromkeys(RATES, str(bytes_per_second))
        alter_configs(client, ResourceType.BROKER, str(broker), change=change)


def unthrottle(client: Client, topics: Iterable[str], brokers: Iterable[int]) -> tuple[list[str], list[int]]:
    """Take the throttles of topics and brokers away; those that had one. Raises BrokerRefused."""
    freed = [name for name in topics if _is_set(client, ResourceType.TOPIC, name, (LEADERS, FOLLOWERS))]
    released = [broker for broker in brokers if _is_set(client, ResourceType.BROKER, str(broker), RATES)]
    for name in freed:
        alter_configs(client, ResourceType.TOPIC, name, delete=(LEADERS, FOLLOWERS))
    for broker in released:
        alter_configs(client, ResourceType.BROKER, str(broker), delete=RATES)
    return freed, released


def _is_set(client: Client, kind: ResourceType, name: str, keys: Sequence[str]) -> bool:
    return any(row.value and not row.is_default for row in describe_configs(client, kind, name, keys))
