"""Moves replicas between brokers (KIP-455), throttles moves (KIP-73), and elects leaders (KIP-183, KIP-460).

Calls do not wait for moves: an accepted reassignment is over when it is no longer listed. Throttles are those of
``kafka-reassign-partitions --throttle``: current replicas are throttled as leaders, new ones as followers. No throttle
ends by itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from oncelog.admin.configs import ResourceType, alter_configs, describe_configs
from oncelog.base.errors import ErrorCode
from oncelog.base.ids import TopicPartition, by_topic
from oncelog.client.errors import BrokerRefused, UnsupportedRequest, explain
from oncelog.client.machine.retry import Remedy, remedy
from oncelog.client.programs import Cluster, Program, call, operation, raise_for_error
from oncelog.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from oncelog.wire.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from oncelog.wire.messages.list_partition_reassignments import ListPartitionReassignmentsRequest

Replicas = tuple[int, ...]
"""The brokers of a partition, preferred leader first."""
_PARTITIONS_PER_REQUEST: Final = 1000
"""Partitions in one request: a controller bounds what it changes in one commit."""
_FIRST_VERSION_WITH_TYPE: Final = 1
RATES: Final = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
"""Broker configs, in bytes per second."""
LEADERS: Final = "leader.replication.throttled.replicas"
FOLLOWERS: Final = "follower.replication.throttled.replicas"
Move = tuple[Sequence[int], Sequence[int]]
"""The replicas of a partition before and after a move."""


class Election(IntEnum):
    """The kinds of election. UNCLEAN may lose records: a replica that was not in sync may lead."""

    PREFERRED = 0
    UNCLEAN = 1


@dataclass(frozen=True, slots=True)
class ReassignmentRow:
    """A reassignment under way. ``replicas`` includes both old and new ones."""

    topic: str
    partition: int
    replicas: Replicas
    adding: Replicas
    removing: Replicas

    @property
    def target(self) -> Replicas:
        """The replicas after the move, in order."""
        return tuple(replica for replica in self.replicas if replica not in self.removing)


@dataclass(frozen=True, slots=True)
class PartitionOutcome:
    topic: str
    partition: int
    error: str | None = None
    error_code: int = 0


@operation
def list_reassignments(cluster: Cluster, *, timeout_ms: int = 30_000) -> Program[list[ReassignmentRow]]:
    """The reassignments under way, by topic and partition. Raises BrokerRefused."""
    message = ListPartitionReassignmentsRequest(topics=None, timeout_ms=timeout_ms)

    def attempt() -> Program[list[ReassignmentRow]]:
        response = yield from cluster.request(message, broker="controller")
        raise_for_error(response, "reassignments")
        return sorted(
            (
                ReassignmentRow(
                    topic.name,
                    partition.partition_index,
                    tuple(partition.replicas),
                    tuple(partition.adding_replicas),
                    tuple(partition.removing_replicas),
                )
                for topic in response.topics
                for partition in topic.partitions
            ),
            key=lambda row: (row.topic, row.partition),
        )

    return (yield from cluster.retrying(attempt))


@operation
def reassign(
    cluster: Cluster,
    targets: Mapping[TopicPartition, Replicas | None],
    *,
    may_change_factor: bool = True,
    timeout_ms: int = 30_000,
) -> Program[list[PartitionOutcome]]:
    """Start moving partitions to these replicas, or cancel the move under way (None), with an outcome for each. Without
    ``may_change_factor``, controllers from 4.1 on refuse another number of replicas (KIP-860)."""
    outcomes: list[PartitionOutcome] = []
    order = sorted(targets)
    for start in range(0, len(order), _PARTITIONS_PER_REQUEST):
        topics = [
            ReassignableTopic(
                name=topic,
                partitions=[
                    ReassignablePartition(partition_index=index, replicas=_wire(targets[TopicPartition(topic, index)]))
                    for index in indexes
                ],
            )
            for topic, indexes in by_topic(order[start : start + _PARTITIONS_PER_REQUEST]).items()
        ]
        message = AlterPartitionReassignmentsRequest(
            topics=topics, timeout_ms=timeout_ms, allow_replication_factor_change=may_change_factor
        )
        outcomes += yield from _reassign(cluster, message)
    return outcomes


def _reassign(cluster: Cluster, message: AlterPartitionReassignmentsRequest) -> Program[list[PartitionOutcome]]:
    def attempt() -> Program[list[PartitionOutcome]]:
        response = yield from cluster.request(
            message, broker="controller", timeout_ms=message.timeout_ms + cluster.config.request_timeout_ms
        )
        raise_for_error(response, "reassignment")
        for topic in response.responses:
            # The cached replicas are stale from now on.
            cluster.view.forget(topic.name)
        return [
            _outcome(topic.name, partition.partition_index, partition.error_code, partition.error_message)
            for topic in response.responses
            for partition in topic.partitions
        ]

    return (yield from cluster.retrying(attempt))


@operation
def elect_leaders(
    cluster: Cluster,
    election: Election,
    partitions: Iterable[TopicPartition] | None = None,
    *,
    timeout_ms: int = 30_000,
) -> Program[list[PartitionOutcome]]:
    """Elect leaders of these partitions, with an outcome for each; for None of all, with an outcome where one was
    needed.

    A partition that already has the right leader counts as done. Raises BrokerRefused, UnsupportedRequest.
    """
    topic_partitions = None
    if partitions is not None:
        grouped = by_topic(sorted(set(partitions)))
        topic_partitions = [
            TopicPartitions(topic=topic, partitions=list(indexes)) for topic, indexes in grouped.items()
        ]
    message = ElectLeadersRequest(election_type=election, topic_partitions=topic_partitions, timeout_ms=timeout_ms)

    def attempt() -> Program[list[PartitionOutcome]]:
        link = yield from cluster.link("controller")
        version = link.versions.choose(message)
        # Version 0 knows preferred elections only.
        if election is Election.UNCLEAN and version < _FIRST_VERSION_WITH_TYPE:
            raise UnsupportedRequest("unclean elections need Apache Kafka 2.4 or later, and this broker is older")
        response = yield from call(link, message, version, timeout_ms + cluster.config.request_timeout_ms)
        raise_for_error(response, f"{election.name.lower()} election")
        results = [
            (topic.topic, result) for topic in response.replica_election_results for result in topic.partition_result
        ]
        retriable = {result.error_code for _, result in results if remedy(result.error_code) is Remedy.REFRESH_METADATA}
        # Raising makes ``retrying`` look the controller up again.
        if ErrorCode.NOT_CONTROLLER in retriable:
            raise BrokerRefused(ErrorCode.NOT_CONTROLLER, f"{election.name.lower()} election")
        for topic, _ in results:
            cluster.view.forget(topic)
        return sorted(
            (
                _outcome(topic, result.partition_id, result.error_code, result.error_message)
                for topic, result in results
            ),
            key=lambda row: (row.topic, row.partition),
        )

    return (yield from cluster.retrying(attempt))


def _outcome(topic: str, partition: int, code: int, message: str | None) -> PartitionOutcome:
    done = code in (ErrorCode.NONE, ErrorCode.ELECTION_NOT_NEEDED)
    return PartitionOutcome(topic, partition, None if done else message or explain(code), code)


def _wire(replicas: Sequence[int] | None) -> list[int] | None:
    return None if replicas is None else list(replicas)


@operation
def throttle(cluster: Cluster, moves: Mapping[TopicPartition, Move], bytes_per_second: int) -> Program[None]:
    """Throttle moves that are about to start or under way. Raises BrokerRefused."""
    topics: dict[str, dict[str, list[str]]] = {}
    brokers: set[int] = set()
    for at, (now, new) in sorted(moves.items()):
        replicas = topics.setdefault(at.topic, {LEADERS: [], FOLLOWERS: []})
        replicas[LEADERS] += [f"{at.partition}:{broker}" for broker in now]
        # Replicas that only change their order copy nothing.
        replicas[FOLLOWERS] += [f"{at.partition}:{broker}" for broker in new if broker not in now]
        brokers.update(now, new)
    for name, lists in topics.items():
        change = {key: ",".join(replicas) for key, replicas in lists.items()}
        yield from alter_configs(cluster, ResourceType.TOPIC, name, change=change)
    for broker in sorted(brokers):
        change = dict.fromkeys(RATES, str(bytes_per_second))
        yield from alter_configs(cluster, ResourceType.BROKER, str(broker), change=change)


@operation
def unthrottle(cluster: Cluster, topics: Iterable[str], brokers: Iterable[int]) -> Program[tuple[list[str], list[int]]]:
    """Remove the throttles of topics and brokers. Returns those that had one. Raises BrokerRefused."""
    freed: list[str] = []
    released: list[int] = []
    for name in topics:
        freed += [name] if (yield from _is_set(cluster, ResourceType.TOPIC, name, (LEADERS, FOLLOWERS))) else []
    for broker in brokers:
        released += [broker] if (yield from _is_set(cluster, ResourceType.BROKER, str(broker), RATES)) else []
    for name in freed:
        yield from alter_configs(cluster, ResourceType.TOPIC, name, delete=(LEADERS, FOLLOWERS))
    for broker in released:
        yield from alter_configs(cluster, ResourceType.BROKER, str(broker), delete=RATES)
    return freed, released


def _is_set(cluster: Cluster, kind: ResourceType, name: str, keys: Sequence[str]) -> Program[bool]:
    rows = yield from describe_configs(cluster, kind, name, keys)
    return any(row.value and not row.is_default for row in rows)
