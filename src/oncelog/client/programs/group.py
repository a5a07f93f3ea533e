"""A group's committed offsets, and a group member's requests to its coordinator in either protocol.

One request of a member is outstanding at a time, and its machine decides what follows a refusal. The membership has a
connection of its own, because a join may wait on it for minutes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import Any

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import TopicPartition
from oncelog.client.errors import BrokerRefused, UnknownTopic
from oncelog.client.machine.assigned_partitions import AssignedPartitions
from oncelog.client.machine.offsets import (
    LAST_VERSION_BY_NAME,
    Committed,
    Membership,
    check_commit,
    committed_in,
    offset_commit_request,
    offset_fetch_request,
)
from oncelog.client.programs.cluster import Cluster
from oncelog.client.programs.coordinator_link import CoordinatorLink
from oncelog.client.programs.log_offsets import offsets_at
from oncelog.client.programs.operation import operation
from oncelog.client.programs.steps import Program
from oncelog.wire.message import Request


@operation
def committed_offsets(
    cluster: Cluster,
    group: str,
    partitions: Iterable[TopicPartition] | None = None,
    *,
    require_stable: bool = False,
    membership: Membership | None = None,
) -> Program[dict[TopicPartition, Committed]]:
    """The committed offsets of a group, for some partitions or all, without those that have none.

    ``require_stable`` waits for transactions with pending offsets (KIP-447), as a consumer must that starts from them.
    A ``membership`` of the consumer protocol is refused if its epoch is not the current one.
    """
    message = offset_fetch_request(group, partitions, require_stable=require_stable, member=membership)

    def attempt() -> Program[dict[TopicPartition, Committed]]:
        response = yield from cluster.at_coordinator(group, message, at_most=LAST_VERSION_BY_NAME)
        return committed_in(response, group)

    return (yield from cluster.retrying(attempt))


@operation
def commit_offsets(
    cluster: Cluster,
    group: str,
    offsets: Mapping[TopicPartition, Committed],
    membership: Membership | None = None,
) -> Program[None]:
    """Commit offsets for a group. Raises BrokerRefused for the first refused partition, UnknownTopic."""
    if not offsets:
        return
    message = offset_commit_request(group, offsets, membership or Membership())

    patient_until = cluster.now_ms() + cluster.config.unknown_topic_grace_ms

    def attempt() -> Program[None]:
        response = yield from cluster.at_coordinator(group, message, at_most=LAST_VERSION_BY_NAME)
        try:
            check_commit(response, group)
        except BrokerRefused as error:
            # A topic deleted meanwhile must not keep a member from giving up its partitions.
            if error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and cluster.now_ms() >= patient_until:
                raise UnknownTopic(error.subject) from None
            raise

    yield from cluster.retrying(attempt)


class MemberPrograms(ABC):
    """The programs of one group member. Its consumer runs those that are due:

    1. Release ``revocable`` partitions.
    2. Look up the ``start_positions`` of ``startable`` ones, then ``take`` these.
    3. ``advance`` the membership by one request, once ``pause_ms`` is 0.
    """

    def __init__(self, cluster: Cluster, group: str, assigned: AssignedPartitions, read_committed: bool) -> None:
        self.assigned = assigned
        self._cluster = cluster
        self._group = group
        self._read_committed = read_committed
        self._coordinator = CoordinatorLink(cluster, group)

    @property
    @abstractmethod
    def has_joined(self) -> bool:
        """True while the consumer is a member with an assignment, possibly an empty one."""

    @property
    @abstractmethod
    def revocable(self) -> tuple[TopicPartition, ...] | None:
        """The partitions to release now, possibly none of an assignment that is over; None if there is no need."""

    @property
    @abstractmethod
    def is_lost(self) -> bool:
        """True if the group has expelled the member: others may have its partitions, and commits are refused."""

    @property
    @abstractmethod
    def startable(self) -> tuple[TopicPartition, ...] | None:
        """The partitions to start now, possibly none of an empty assignment; None if there is no need."""

    @abstractmethod
    def pause_ms(self, now_ms: int) -> int:
        """The time until ``advance`` is due, if nothing is released or taken before."""

    @abstractmethod
    def advance(self) -> Program[None]:
        """Send the request that is due, if any, and apply its response. Raises ClientError; to be called again."""

    @abstractmethod
    def take(self, positions: dict[TopicPartition, int]) -> dict[TopicPartition, int] | None:
        """Assign started partitions. Returns those that still belong to the member; None if that is nothing new."""

    @abstractmethod
    def release(self, partitions: Iterable[TopicPartition]) -> None:
        """The consumer has given up ``partitions``."""

    @abstractmethod
    def commit(self) -> Program[bool]:
        """Commit the processed offsets. Returns False if that was refused and the member rejoins."""

    @abstractmethod
    def give_up(self) -> Program[None]:
        """The caller has not polled for the rebalance time-out: leave, if the protocol has others wait otherwise."""

    def start_positions(self, partitions: tuple[TopicPartition, ...]) -> Program[dict[TopicPartition, int]]:
        if not partitions:
            return {}
        committed = yield from self._committed(partitions)
        positions, missing = self.assigned.start(partitions, committed)
        return positions | (yield from self._listed(missing))

    def reset_positions(self, partition: TopicPartition) -> Program[dict[TopicPartition, int]]:
        """The position to continue at after one outside the log."""
        return (yield from self._listed(self.assigned.beginnings([partition])))

    def leave(self) -> Program[None]:
        """Leave the group, unless the member is static. Raises ClientError."""
        yield from self._coordinator.say(self._goodbye())

    def close(self) -> None:
        self._coordinator.close()

    @abstractmethod
    def _goodbye(self) -> Request[Any] | None:
        """The request that leaves the group; None if there is nothing to leave."""

    def _committed(self, partitions: tuple[TopicPartition, ...]) -> Program[dict[TopicPartition, Committed]]:
        return (yield from committed_offsets(self._cluster, self._group, partitions, require_stable=True))

    def _listed(self, timestamps: Mapping[TopicPartition, int]) -> Program[dict[TopicPartition, int]]:
        return (yield from offsets_at(self._cluster, timestamps, read_committed=self._read_committed))
