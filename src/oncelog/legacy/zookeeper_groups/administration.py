"""Administration of groups in ZooKeeper: list, describe, reset, and move offsets to or from Kafka.

A group is running while one of its consumers is registered; its offsets are not changed then, because its consumers
would overwrite them. Brokers are asked only for log bounds and for offsets stored in Kafka. Moving offsets keeps the
source's; partitions in which the target is ahead are not moved back.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from oncelog.admin.groups import LagRow, ResetRow, ResetTo, describe_group, log_bounds, plan_from
from oncelog.base.errors import ErrorCode
from oncelog.base.ids import CONSUMER_OFFSETS, TopicName, TopicPartition
from oncelog.base.tree import OutcomeUnknown, SessionLost, TreeUnavailable
from oncelog.client.blocking.client import Client
from oncelog.client.config import ClientConfig
from oncelog.client.errors import BrokerRefused, ClientError, UnsupportedRequest
from oncelog.client.machine.offsets import Committed
from oncelog.client.programs.group import commit_offsets, committed_offsets
from oncelog.legacy.zookeeper_groups.connection import (
    ZooKeeperUnreachable,
    client_of,
    open_session,
    protocol_of,
    registered_brokers,
)
from oncelog.legacy.zookeeper_groups.machine.nodes import (
    CONSUMERS,
    TOPICS,
    check_group,
    group_path,
    ids_path,
    owners_path,
    read_topic,
    topic_path,
)
from oncelog.legacy.zookeeper_groups.machine.starting_offsets import Storage
from oncelog.legacy.zookeeper_groups.machine.subscription import Subscription, read_registration
from oncelog.legacy.zookeeper_groups.stored_offsets import all_offsets, write_offsets

if TYPE_CHECKING:
    from oncelog.legacy.zookeeper_groups.connection import ZooKeeperClient

RUNNING = "Running"
EMPTY = "Empty"
_SESSION_MS = 6_000


@dataclass(frozen=True, slots=True)
class ZooKeeperGroupRow:
    """A group in a list; ``topics`` are those with committed offsets or owned partitions."""

    group: str
    state: str
    members: int
    topics: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ZooKeeperMemberRow:
    """A registered consumer; the subscription is None if the node cannot be read."""

    member_id: str
    subscription: Subscription | None


@dataclass(frozen=True, slots=True)
class ZooKeeperGroup:
    group: str
    state: str
    members: list[ZooKeeperMemberRow]
    owners: dict[TopicPartition, str]
    offsets: dict[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class MoveRow:
    """A partition whose offset is moved; ``before`` is the target's old offset, None if it had none."""

    topic: str
    partition: int
    before: int | None
    offset: int


@contextmanager
def zookeeper_session(connect: str) -> Iterator[ZooKeeperClient]:
    """ZooKeeper's failures become ClientError. Raises ZooKeeperUnreachable."""
    session = open_session(connect, _SESSION_MS, _SESSION_MS)
    try:
        yield session
    except (TreeUnavailable, SessionLost, OutcomeUnknown) as error:
        raise ZooKeeperUnreachable(f"ZooKeeper at {connect}: {error}") from None
    finally:
        session.stop()


def cluster_client(session: ZooKeeperClient, settings: Mapping[str, str]) -> Client:
    """A client of the registered brokers. Raises ConfigError if there are none."""
    brokers = registered_brokers(session, protocol_of(settings))
    return client_of(brokers, ClientConfig.from_properties(settings))


def list_zookeeper_groups(session: ZooKeeperClient) -> list[ZooKeeperGroupRow]:
    return [
        ZooKeeperGroupRow(
            group,
            RUNNING if members else EMPTY,
            len(members),
            tuple(sorted({*session.children(f"{group_path(group)}/offsets"), *session.children(owners_path(group))})),
        )
        for group in sorted(session.children(CONSUMERS))
        for members in [session.children(ids_path(group))]
    ]


def describe_zookeeper_group(session: ZooKeeperClient, group: str) -> ZooKeeperGroup:
    """Describe a group. Raises BrokerRefused (GROUP_ID_NOT_FOUND) if it does not exist."""
    check_group(group)
    if session.exists(group_path(group)) is None:
        raise BrokerRefused(ErrorCode.GROUP_ID_NOT_FOUND, f"group {group!r} in ZooKeeper")
    ids = ids_path(group)
    registered = session.get_all(f"{ids}/{name}" for name in sorted(session.children(ids)))
    members = [
        ZooKeeperMemberRow(path.rpartition("/")[2], read_registration(node[0]))
        for path, node in registered
        if node is not None
    ]
    topics = session.children(owners_path(group))
    paths = [
        f"{path}/{name}"
        for path, names in session.children_of(owners_path(group, topic) for topic in sorted(topics))
        for name in names
    ]
    owners = {
        TopicPartition(TopicName(path.split("/")[-2]), int(path.rpartition("/")[2])): node[0].decode("utf-8", "replace")
        for path, node in session.get_all(paths)
        if node is not None and path.rpartition("/")[2].isdigit()
    }
    state = RUNNING if members else EMPTY
    return ZooKeeperGroup(group, state, members, owners, all_offsets(session, group))


def zookeeper_group_lag(client: Client, group: ZooKeeperGroup) -> list[LagRow]:
    """The lag of every partition that the group uses, by offsets in ZooKeeper, with the owning thread."""
    partitions = sorted({*group.offsets, *group.owners})
    begins, ends = log_bounds(client, partitions)
    rows = []
    for partition in partitions:
        offset, end = group.offsets.get(partition), ends.get(partition)
        lag = None if offset is None or end is None else max(0, end - offset)
        owner = group.owners.get(partition)
        rows.append(
            LagRow(
                group.group,
                partition.topic,
                partition.partition,
                offset,
                begins.get(partition),
                end,
                lag,
                owner,
                None,
                None,
            )
        )
    return rows


def plan_zookeeper_reset(
    session: ZooKeeperClient,
    client: Client,
    group: str,
    to: ResetTo,
    partitions: Iterable[TopicPartition] | None = None,
) -> list[ResetRow]:
    """The target offset of each partition: those given, or all in ZooKeeper."""
    check_group(group)
    committed = {partition: Committed(offset) for partition, offset in all_offsets(session, group).items()}
    return plan_from(client, committed, to, partitions)


def execute_zookeeper_reset(session: ZooKeeperClient, group: str, plan: Iterable[ResetRow]) -> None:
    """Write a plan's offsets. Raises BrokerRefused (NON_EMPTY_GROUP) while the group is running."""
    _require_stopped(session, group)
    offsets = {TopicPartition(TopicName(row.topic), row.partition): row.target for row in plan}
    write_offsets(session, group, offsets)
    _require_stopped(session, group)


def move_offsets(
    session: ZooKeeperClient, client: Client, group: str, source: Storage, *, force: bool = False
) -> list[MoveRow]:
    """Copy the offsets of a stopped group from one storage to the other.

    Raises BrokerRefused (NON_EMPTY_GROUP) while a consumer of it is registered in ZooKeeper or a member at its
    coordinator, and ClientError if there is nothing to move, or the target is ahead and not ``force``.
    """
    check_group(group)
    _require_stopped(session, group)
    _require_no_members(client, group)
    in_zookeeper = all_offsets(session, group)
    in_kafka: dict[TopicPartition, int] = {}
    if source is Storage.KAFKA or session.exists(topic_path(CONSUMER_OFFSETS)) is not None:
        # By partition: brokers before 0.10.2 cannot list all offsets of a group.
        partitions = in_zookeeper if source is Storage.ZOOKEEPER else _all_partitions(session)
        in_kafka = {
            partition: committed.offset for partition, committed in committed_offsets(client, group, partitions).items()
        }
    offsets, target = (in_zookeeper, in_kafka) if source is Storage.ZOOKEEPER else (in_kafka, in_zookeeper)
    if not offsets:
        raise ClientError(f"group {group!r} has no offsets in {source.value}; there is nothing to move")
    ahead = [partition for partition, offset in offsets.items() if target.get(partition, 0) > offset]
    if ahead and not force:
        first = ahead[0]
        raise ClientError(
            f"group {group!r}: {source.other.value} is ahead of {source.value} in {len(ahead)} partitions, in {first} "
            f"with {target[first]} against {offsets[first]}; --force moves it back, and records are read again"
        )
    if source is Storage.ZOOKEEPER:
        commit_offsets(client, group, {partition: Committed(offset) for partition, offset in offsets.items()})
    else:
        write_offsets(session, group, offsets)
    _require_stopped(session, group)
    return [MoveRow(p.topic, p.partition, target.get(p), offset) for p, offset in sorted(offsets.items())]


def _all_partitions(session: ZooKeeperClient) -> list[TopicPartition]:
    topics = session.get_all(topic_path(topic) for topic in sorted(session.children(TOPICS)))
    return [
        partition
        for path, node in topics
        if node is not None
        for partition in read_topic(path.rpartition("/")[2], node[0])
    ]


def _require_stopped(session: ZooKeeperClient, group: str) -> None:
    members = session.children(ids_path(group))
    if members:
        names = ", ".join(sorted(members)[:3])
        raise BrokerRefused(
            ErrorCode.NON_EMPTY_GROUP,
            f"group {group!r}",
            f"{len(members)} of its consumers are running ({names}); stop them first",
        )


def _require_no_members(client: Client, group: str) -> None:
    """Raise BrokerRefused while the group has members at its coordinator; brokers of 0.8 have no group members."""
    try:
        description = describe_group(client, group)
    except UnsupportedRequest:
        return
    except BrokerRefused as error:
        if error.code == ErrorCode.GROUP_ID_NOT_FOUND:
            return
        raise
    if description.members:
        raise BrokerRefused(
            ErrorCode.NON_EMPTY_GROUP,
            f"group {group!r}",
            f"it has {len(description.members)} members at its coordinator; stop them first",
        )
