"""Moving replicas between brokers (KIP-455), throttled (KIP-73), and electing leaders (KIP-183, KIP-460).

Rules: nothing is waited for. A reassignment goes on in the cluster after it was accepted, and is over when it is no
longer listed; ``reassignment_plan`` says which replicas to move where. Throttles are those of
``kafka-reassign-partitions --throttle``: of a partition that moves, the present replicas are throttled where they lead,
those that come where they follow. Nothing takes a throttle away by itself.
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
"""The brokers of a partition; the first one is its preferred leader."""
_AT_ONCE: Final = 1000
"""Partitions in one request: what a controller changes in one commit is bounded."""
_FIRST_VERSION_WITH_TYPE: Final = 1
RATES: Final = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
"""Keys of brokers, in bytes a second."""
LEADERS: Final = "leader.replication.throttled.replicas"
FOLLOWERS: Final = "follower.replication.throttled.replicas"
Move = tuple[Sequence[int], Sequence[int]]
"""The replicas that a partition has, and those that it is to have."""


class Election(IntEnum):
    """The two kinds of election. UNCLEAN may lose records: a replica that was not in sync may lead."""

    PREFERRED = 0
    UNCLEAN = 1


@dataclass(frozen=True, slots=True)
class ReassignmentRow:
    """A reassignment under way. ``replicas`` are all that there are meanwhile."""

    topic: str
    partition: int
    replicas: Replicas
    adding: Replicas
    removing: Replicas

    @property
    def target(self) -> Replicas:
        """The replicas that will be left, in their order."""
        return tuple(replica for replica in self.replicas if replica not in self.removing)


@dataclass(frozen=True, slots=True)
class PartitionOutcome:
    """The outcome for one partition; ``error`` is None when it was done."""

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
    wanted: Mapping[TopicPartition, Replicas | None],
    *,
    may_change_factor: bool = True,
    timeout_ms: int = 30_000,
) -> Program[list[PartitionOutcome]]:
    """Begin to move partitions to these replicas, or take back what is under way (None); an outcome each. Without
    ``may_change_factor`` controllers from 4.1 on refuse as many replicas as the partition does not have (KIP-860)."""
    outcomes: list[PartitionOutcome] = []
    order = sorted(wanted)
    for at in range(0, len(order), _AT_ONCE):
        topics = [
            ReassignableTopic(
                name=topic,
                partitions=[
                    ReassignablePartition(partition_index=index, replicas=_wire(wanted[TopicPartition(topic, index)]))
                    for index in indexes
                ],
            )
            for topic, indexes in by_topic(order[at : at + _AT_ONCE]).items()
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
    """Elect leaders of these partitions, with an outcome each; for None of all, with an outcome where one was needed.

    A partition that has the leader it should have counts as done. Raises BrokerRefused, UnsupportedRequest.
    """
    asked = None
    if partitions is not None:
        grouped = by_topic(sorted(set(partitions)))
        asked = [TopicPartitions(topic=topic, partitions=list(indexes)) for topic, indexes in grouped.items()]
    message = ElectLeadersRequest(election_type=election, topic_partitions=asked, timeout_ms=timeout_ms)

    def attempt() -> Program[list[PartitionOutcome]]:
        link = yield from cluster.link("controller")
        version = link.versions.choose(message)
        if election is Election.UNCLEAN and version < _FIRST_VERSION_WITH_TYPE:
            raise UnsupportedRequest("unclean elections: the broker is too old for them")
        response = yield from call(link, message, version, timeout_ms + cluster.config.request_timeout_ms)
        raise_for_error(response, f"{election.name.lower()} election")
        results = [
            (topic.topic, result) for topic in response.replica_election_results for result in topic.partition_result
        ]
        passing = {one.error_code for _, one in results if remedy(one.error_code) is Remedy.REFRESH_METADATA}
        if ErrorCode.NOT_CONTROLLER in passing:
            raise BrokerRefused(ErrorCode.NOT_CONTROLLER, f"{election.name.lower()} election")
        for topic, _ in results:
            cluster.view.forget(topic)
        return sorted(
            (_outcome(topic, one.partition_id, one.error_code, one.error_message) for topic, one in results),
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
        yield from alter_configs(cluster, ResourceType.TOPIC, name, change=change)
    for broker in sorted(brokers):
        change = dict.fromkeys(RATES, str(bytes_per_second))
        yield from alter_configs(cluster, ResourceType.BROKER, str(broker), change=change)


@operation
def unthrottle(cluster: Cluster, topics: Iterable[str], brokers: Iterable[int]) -> Program[tuple[list[str], list[int]]]:
    """Take the throttles of topics and brokers away; those that had one. Raises BrokerRefused."""
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
