"""Heartbeats of share groups, and requests about such groups and their start offsets (KIP-932)."""

from __future__ import annotations

from typing import Any, Final

from oncelog.wire.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
)
from oncelog.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from oncelog.wire.messages.delete_groups import DeleteGroupsRequest
from oncelog.wire.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
)
from oncelog.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from oncelog.wire.messages.describe_groups import DescribeGroupsRequest
from oncelog.wire.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsRequestTopic,
)
from oncelog.wire.messages.list_groups import ListGroupsRequest
from oncelog.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from oncelog.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from oncelog.wire.messages.share_group_describe import ShareGroupDescribeRequest
from oncelog.wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from tests.peers.clients.sweep.consumer_groups import heartbeat as consumer_heartbeat
from tests.peers.clients.sweep.share_requests import (
    ACCEPT,
    FIRST,
    GROUP_RESOURCE,
    REJECT,
    RELEASE,
    SECOND,
    compute_at_once,
    configure,
    earliest_group,
    every_version,
    heartbeat,
    join,
    share_acknowledge,
    share_fetch,
)
from tests.peers.clients.sweep.wire import Sweep, Wire

TOPIC: Final = "sg-one"
OTHER: Final = "sg-other"
GROUP: Final = "sg-group"
CONSUMERS: Final = "sg-consumers"
CLASSIC: Final = "sg-classic"


def _describe(wire: Wire, *groups: str) -> None:
    for version in every_version(ShareGroupDescribeRequest):
        for authorized in (False, True):
            request = ShareGroupDescribeRequest(group_ids=list(groups), include_authorized_operations=authorized)
            wire.call(request, version)


def _invalid_heartbeats(wire: Wire) -> None:
    valid: dict[str, Any] = {"group_id": GROUP, "member_id": FIRST, "subscribed_topic_names": [TOPIC]}
    invalid: list[dict[str, Any]] = [
        {"group_id": ""},
        {"group_id": " "},
        {"member_id": ""},
        {"member_id": " "},
        {"member_id": "x" * 37},
        {"rack_id": ""},
        {"rack_id": "\0 \t"},
        {"subscribed_topic_names": None},
        {"subscribed_topic_names": []},
        {"member_epoch": 1},
        {"member_epoch": -1},
        {"member_epoch": -2},
        {"member_epoch": 2**31 - 1},
        {"member_epoch": -(2**31)},
        {"member_epoch": 1, "subscribed_topic_names": None},
    ]
    for version in every_version(ShareGroupHeartbeatRequest):
        for fields in invalid:
            wire.call(ShareGroupHeartbeatRequest(**{**valid, **fields}), version)


def _heartbeats(wire: Wire) -> None:
    """Members join, change what they subscribe to, are fenced, leave and come back. With one partition, since Apache
    Kafka spreads several over the members in the order of a hash table."""
    wire.topic(TOPIC)
    wire.topic(OTHER)
    compute_at_once(wire, GROUP)
    _invalid_heartbeats(wire)
    _describe(wire, GROUP)
    epoch = join(wire, GROUP, FIRST, TOPIC)
    _describe(wire, GROUP, "sg-none", "")
    for wrong in (epoch - 1, epoch - 2, epoch + 1, 2**31 - 1):
        heartbeat(wire, GROUP, FIRST, wrong)
    second = join(wire, GROUP, SECOND, TOPIC, OTHER)
    heartbeat(wire, GROUP, FIRST, epoch)
    heartbeat(wire, GROUP, "C" * 22, epoch)
    _describe(wire, GROUP)
    epoch = int(heartbeat(wire, GROUP, FIRST, epoch, [OTHER]).member_epoch or epoch)
    heartbeat(wire, GROUP, FIRST, epoch, ["sg-none"])
    _describe(wire, GROUP)
    heartbeat(wire, GROUP, FIRST, 0, [TOPIC])
    heartbeat(wire, GROUP, SECOND, -1)
    heartbeat(wire, GROUP, SECOND, -1)
    heartbeat(wire, GROUP, SECOND, second)
    _describe(wire, GROUP)
    heartbeat(wire, GROUP, FIRST, -1, [TOPIC])
    _describe(wire, GROUP)


def _sizes(wire: Wire) -> None:
    """No more members than a group may have."""
    wire.topic(TOPIC)
    compute_at_once(wire, GROUP)
    join(wire, GROUP, FIRST, TOPIC)
    for number in range(200):
        heartbeat(wire, GROUP, f"member-{number}", 0, [TOPIC])


def _commit(wire: Wire, group: str) -> None:
    parts = [OffsetCommitRequestPartition(partition_index=0, committed_offset=0)]
    topics = [OffsetCommitRequestTopic(name=TOPIC, partitions=parts)]
    for epoch, member_id in ((-1, ""), (1, FIRST)):
        request = OffsetCommitRequest(
            group_id=group, generation_id_or_member_epoch=epoch, member_id=member_id, topics=topics
        )
        wire.call(request, 9)


def _other_types(wire: Wire) -> None:
    """Requests of one type of group for groups of another, and lists of all types."""
    wire.topic(TOPIC)
    compute_at_once(wire, GROUP)
    epoch = join(wire, GROUP, FIRST, TOPIC)
    _commit(wire, CLASSIC)
    consumer_heartbeat(
        wire,
        CONSUMERS,
        FIRST,
        0,
        rebalance_timeout_ms=60_000,
        subscribed_topic_names=[TOPIC],
        topic_partitions=[],
    )
    for group in (CLASSIC, CONSUMERS):
        heartbeat(wire, group, SECOND, 0, [TOPIC])
        heartbeat(wire, group, SECOND, 1)
        heartbeat(wire, group, SECOND, -1)
    consumer_heartbeat(
        wire, GROUP, SECOND, 0, rebalance_timeout_ms=60_000, subscribed_topic_names=[TOPIC], topic_partitions=[]
    )
    consumer_heartbeat(wire, GROUP, FIRST, epoch)
    _commit(wire, GROUP)
    for member_id, number in (("", -1), (FIRST, epoch)):
        groups = [OffsetFetchRequestGroup(group_id=GROUP, topics=None, member_id=member_id, member_epoch=number)]
        wire.call(OffsetFetchRequest(groups=groups), 9)
    _describe(wire, GROUP, CONSUMERS, CLASSIC)
    wire.call(ConsumerGroupDescribeRequest(group_ids=[GROUP]), 1)
    for version in (5, 6):
        wire.call(DescribeGroupsRequest(groups=[GROUP, CONSUMERS]), version)
    for types in ([], ["share"], ["Share"], ["share", "consumer"]):
        wire.call(ListGroupsRequest(types_filter=types), 5)
    for states in (["stable"], ["Empty"], ["Dead"]):
        wire.call(ListGroupsRequest(states_filter=states, types_filter=["share"]), 5)
    wire.call(ListGroupsRequest(), 3)
    wire.call(DeleteGroupsRequest(groups_names=[GROUP, CONSUMERS]), 2)
    heartbeat(wire, GROUP, FIRST, -1)
    for group in (GROUP, "sg-none"):
        _offsets(wire, group, (TOPIC, [0]))
    wire.call(DeleteGroupsRequest(groups_names=[GROUP]), 2)
    wire.call(ListGroupsRequest(types_filter=["share"]), 5)
    _describe(wire, GROUP)
    _offsets(wire, GROUP, (TOPIC, [0]))


def _offsets(wire: Wire, group: str, *topics: tuple[str, list[int]], all_topics: bool = False) -> None:
    wanted = [DescribeShareGroupOffsetsRequestTopic(topic_name=name, partitions=parts) for name, parts in topics]
    groups = [DescribeShareGroupOffsetsRequestGroup(group_id=group, topics=None if all_topics else wanted)]
    for version in every_version(DescribeShareGroupOffsetsRequest):
        wire.call(DescribeShareGroupOffsetsRequest(groups=groups), version)


def _alter(wire: Wire, group: str, topic: str, **offsets: int) -> None:
    parts = [
        AlterShareGroupOffsetsRequestPartition(partition_index=int(index[1:]), start_offset=offset)
        for index, offset in offsets.items()
    ]
    topics = [AlterShareGroupOffsetsRequestTopic(topic_name=topic, partitions=parts)]
    wire.call(AlterShareGroupOffsetsRequest(group_id=group, topics=topics), 0)


def _delete(wire: Wire, group: str, *topics: str) -> None:
    wanted = [DeleteShareGroupOffsetsRequestTopic(topic_name=name) for name in topics]
    wire.call(DeleteShareGroupOffsetsRequest(group_id=group, topics=wanted), 0)


def _start_offsets(wire: Wire) -> None:
    """Describe, alter and delete start offsets: with members and without, in the window and out of it. A negative
    partition and an empty list of them are unexpected errors in Apache Kafka."""
    topic_id = wire.topic(TOPIC, 2)
    wire.topic(OTHER)
    wire.produce(TOPIC, *(b"%d" % number for number in range(10)))
    earliest_group(wire, GROUP, TOPIC)
    batches = [(0, 2, [ACCEPT]), (3, 3, [RELEASE]), (4, 4, [REJECT])]
    with wire.another() as member:  # its end makes the leader forget the share partition, so that it reads it anew
        share_fetch(member, GROUP, FIRST, 0, topic_id, [0], max_records=10)
        share_acknowledge(member, GROUP, FIRST, 1, topic_id, {0: batches})
        share_fetch(member, GROUP, FIRST, -1)
    queries: list[list[tuple[str, list[int]]]] = [
        [],
        [(TOPIC, [0, 1])],
        [(OTHER, [0])],
        [("sg-none", [0])],
    ]
    for topics in queries:
        _offsets(wire, GROUP, *topics)
    _offsets(wire, GROUP, all_topics=True)
    _alter(wire, GROUP, TOPIC, p0=1)
    _delete(wire, GROUP, TOPIC)
    heartbeat(wire, GROUP, FIRST, -1)
    _offsets(wire, GROUP, (TOPIC, [0, 1]))
    _alter(wire, GROUP, TOPIC, p0=5)
    _offsets(wire, GROUP, (TOPIC, [0, 1]))
    for offset in (0, 10, 99, -1, -2, -5):
        _alter(wire, GROUP, TOPIC, p0=offset)
    _alter(wire, GROUP, TOPIC, p7=1)
    _alter(wire, GROUP, OTHER, p0=0)
    _alter(wire, GROUP, "sg-none", p0=0)
    _alter(wire, "sg-none", TOPIC, p0=0)
    _alter(wire, "", TOPIC, p0=0)
    _alter(wire, GROUP, TOPIC)
    _alter(wire, GROUP, TOPIC, p0=6)
    _offsets(wire, GROUP, all_topics=True)
    join(wire, GROUP, FIRST, TOPIC)
    share_fetch(wire, GROUP, FIRST, 0, topic_id, [0])
    share_fetch(wire, GROUP, FIRST, -1)
    heartbeat(wire, GROUP, FIRST, -1)
    _delete(wire, GROUP)
    _delete(wire, GROUP, "sg-none")
    _delete(wire, GROUP, OTHER, TOPIC)
    _delete(wire, GROUP, TOPIC)
    _delete(wire, "sg-none", TOPIC)
    _delete(wire, "", TOPIC)
    _offsets(wire, GROUP, all_topics=True)
    _offsets(wire, "", all_topics=True)


def _configs(wire: Wire) -> None:
    """The configurations of a share group: described, set, and refused."""
    right = {
        "share_auto_offset_reset": ("latest", "earliest", "by_duration:PT1H", "by_duration:-PT1H", "by_duration:", "x"),
        "share_isolation_level": ("read_committed", "read_uncommitted", "READ_COMMITTED", "x"),
        "share_session_timeout_ms": ("45000", "60000", "60001", "44999", "x"),
        "share_heartbeat_interval_ms": ("5000", "15000", "15001", "4999"),
        "share_record_lock_duration_ms": ("15000", "60000", "60001", "14999"),
        "share_delivery_count_limit": ("2", "10", "11", "1"),
        "share_partition_max_record_locks": ("100", "10000", "99", "10001"),
        "share_renew_acknowledge_enable": ("true", "false", "x"),
        "share_assignment_interval_ms": ("0", "15000", "15001", "-1"),
        "errors_deadletterqueue_topic_name": ("dlq.one", "", "..", "a/b"),
        "errors_deadletterqueue_copy_record_enable": ("true", "x"),
    }
    for key, values in right.items():
        for value in values:
            configure(wire, GROUP, **{key: value})
    resource = DescribeConfigsResource(resource_type=GROUP_RESOURCE, resource_name=GROUP)
    wire.call(DescribeConfigsRequest(resources=[resource], include_synonyms=True), 4)


SWEEPS: Final[dict[str, Sweep]] = {
    "share-group-heartbeats": _heartbeats,
    "share-group-sizes": _sizes,
    "share-group-types": _other_types,
    "share-group-offsets": _start_offsets,
    "share-group-configs": _configs,
}
