"""Offsets of groups of the consumer protocol, and requests about such groups (KIP-848)."""

from __future__ import annotations

from typing import Any, Final

from oncelog.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from oncelog.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from oncelog.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions
from oncelog.wire.messages.delete_groups import DeleteGroupsRequest
from oncelog.wire.messages.describe_groups import DescribeGroupsRequest
from oncelog.wire.messages.heartbeat import HeartbeatRequest
from oncelog.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from oncelog.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from oncelog.wire.messages.list_groups import ListGroupsRequest
from oncelog.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from oncelog.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from oncelog.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics
from oncelog.wire.messages.sync_group import SyncGroupRequest
from oncelog.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from tests.peers.clients.sweep.transactions import Producer, end, init
from tests.peers.clients.sweep.wire import Sweep, Wire, versions

TOPIC: Final = "sk-one"
OTHER: Final = "sk-other"
GROUP: Final = "sk-group"
FIRST: Final = "AAAAAAAAAAAAAAAAAAAAAA"
SECOND: Final = "BAAAAAAAAAAAAAAAAAAAAA"
GROUP_RESOURCE: Final = 32
V2_SINCE: Final = 5


def heartbeat(wire: Wire, group: str, member_id: str, epoch: int, **fields: Any) -> Any:
    request = ConsumerGroupHeartbeatRequest(group_id=group, member_id=member_id, member_epoch=epoch, **fields)
    return wire.call(request, 1)


def join(wire: Wire, group: str, member_id: str, topic: str = TOPIC) -> int:
    """Join and return the member's epoch."""
    answer = heartbeat(
        wire,
        group,
        member_id,
        0,
        rebalance_timeout_ms=60_000,
        subscribed_topic_names=[topic],
        server_assignor="range",
        topic_partitions=[],
    )
    return int(answer.member_epoch)


def owning(topic_id: bytes, *partitions: int) -> list[TopicPartitions]:
    return [TopicPartitions(topic_id=topic_id, partitions=list(partitions))]


def _set_interval(wire: Wire, group: str) -> None:
    """Targets are computed at once."""
    config = AlterableConfig(name="consumer.assignment.interval.ms", config_operation=0, value="0")
    resource = AlterConfigsResource(resource_type=GROUP_RESOURCE, resource_name=group, configs=[config])
    wire.call(IncrementalAlterConfigsRequest(resources=[resource]), 1)


def _commit(
    wire: Wire, version: int, topic_id: bytes, epoch: int, member_id: str = "", *partitions: int, group: str = GROUP
) -> None:
    parts = [
        OffsetCommitRequestPartition(partition_index=index, committed_offset=version, committed_metadata="note")
        for index in partitions or (0,)
    ]
    topics = [OffsetCommitRequestTopic(name=TOPIC, topic_id=topic_id, partitions=parts)]
    request = OffsetCommitRequest(
        group_id=group, generation_id_or_member_epoch=epoch, member_id=member_id, topics=topics
    )
    wire.call(request, version)


def _fetch(wire: Wire, version: int, topic_id: bytes, group: str = GROUP, **member: Any) -> None:
    topics = [OffsetFetchRequestTopics(name=TOPIC, topic_id=topic_id, partition_indexes=[0, 1, 9])]
    for wanted in (topics, None):
        requests = [OffsetFetchRequestGroup(group_id=group, topics=wanted, **member)]
        wire.call(OffsetFetchRequest(groups=requests), version)


def _offsets(wire: Wire) -> None:
    topic_id = wire.topic(TOPIC, 2)
    _set_interval(wire, GROUP)
    epoch = join(wire, GROUP, FIRST)
    for version in versions(OffsetCommitRequest):
        for wrong in (epoch, epoch + 1, epoch - 1, 0, -1):
            for member_id in (FIRST, "nobody", ""):
                _commit(wire, version, topic_id, wrong, member_id)
        _commit(wire, version, topic_id, epoch, FIRST, 0, 1, 9)
        _commit(wire, version, topic_id, 3, "nobody", group="sk-none")
    for version in range(8, 11):
        _fetch(wire, version, topic_id)
        for member in (FIRST, "nobody", ""):
            for number in (epoch, epoch + 1, epoch - 1, -1):
                _fetch(wire, version, topic_id, member_id=member, member_epoch=number)
        _fetch(wire, version, topic_id, "sk-none", member_id=FIRST, member_epoch=1)


def _older_epochs(wire: Wire) -> None:
    """Commits of an epoch before: while a partition is being given up, and after."""
    topic_id = wire.topic(TOPIC, 2)
    _set_interval(wire, GROUP)
    first = join(wire, GROUP, FIRST)
    second = join(wire, GROUP, SECOND)

    def commit_all() -> None:
        for epoch in (first, second, second + 1):
            for partitions in ((0,), (1,), (0, 1)):
                for member_id in (FIRST, SECOND):
                    _commit(wire, 10, topic_id, epoch, member_id, *partitions)

    commit_all()
    heartbeat(wire, GROUP, FIRST, first, topic_partitions=None)  # has to give up a partition
    commit_all()
    heartbeat(wire, GROUP, FIRST, first, topic_partitions=owning(topic_id, 0))
    commit_all()
    heartbeat(wire, GROUP, SECOND, second, topic_partitions=None)
    commit_all()


def _transactional_offsets(wire: Wire) -> None:
    topic_id = wire.topic(TOPIC, 2)
    _set_interval(wire, GROUP)
    epoch = join(wire, GROUP, FIRST)
    for version in versions(TxnOffsetCommitRequest):
        name = f"sk-transaction-{version}"
        init(wire, name)
        producer = init(wire, name)
        if version < V2_SINCE:
            added = AddOffsetsToTxnRequest(
                transactional_id=name, producer_id=producer.id, producer_epoch=producer.epoch, group_id=GROUP
            )
            wire.call(added, 3)
        for number in (epoch + 1, epoch - 1, -1, epoch):
            for member_id in ("nobody", "", FIRST):
                _send(wire, version, producer, topic_id, number, member_id)
        _send(wire, version, producer, topic_id, 3, "nobody", group="sk-none")
        end(wire, producer, committed=True, version=5 if version >= V2_SINCE else 3)


def _send(
    wire: Wire, version: int, producer: Producer, topic_id: bytes, epoch: int, member_id: str, group: str = GROUP
) -> None:
    part = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=version, committed_metadata="note")
    request = TxnOffsetCommitRequest(
        transactional_id=producer.name,
        group_id=group,
        producer_id=producer.id,
        producer_epoch=producer.epoch,
        generation_id=epoch,
        member_id=member_id,
        topics=[TxnOffsetCommitRequestTopic(name=TOPIC, topic_id=topic_id, partitions=[part])],
    )
    wire.call(request, version)


def _describe_and_list(wire: Wire, group: str) -> None:
    for version in versions(DescribeGroupsRequest):
        wire.call(DescribeGroupsRequest(groups=[group, "sk-none"]), version)
    for types in ([], ["consumer"], ["Consumer"], ["classic"], ["share", "classic"], ["x"]):
        wire.call(ListGroupsRequest(types_filter=types), 5)
    for version in (3, 4, 5):
        for states in ([], ["stable"], ["Empty"], ["Assigning", "reconciling"], ["Dead"]):
            wire.call(ListGroupsRequest(states_filter=states), version)


def _delete_offsets(wire: Wire, group: str) -> None:
    topics = [
        OffsetDeleteRequestTopic(name=name, partitions=[OffsetDeleteRequestPartition(partition_index=0)])
        for name in (TOPIC, OTHER)
    ]
    wire.call(OffsetDeleteRequest(group_id=group, topics=topics), 0)


def _groups(wire: Wire) -> None:
    topic_id = wire.topic(TOPIC, 2)
    wire.topic(OTHER)
    _set_interval(wire, GROUP)
    epoch = join(wire, GROUP, FIRST)
    _commit(wire, 9, topic_id, epoch, FIRST, 0, 1)
    _describe_and_list(wire, GROUP)
    _delete_offsets(wire, GROUP)
    for version in versions(DeleteGroupsRequest):
        wire.call(DeleteGroupsRequest(groups_names=[GROUP, "sk-none"]), version)
    # Requests of the classic protocol for a member that does not have it.
    wire.call(HeartbeatRequest(group_id=GROUP, generation_id=epoch, member_id=FIRST), 4)
    wire.call(SyncGroupRequest(group_id=GROUP, generation_id=epoch, member_id=FIRST), 5)
    wire.call(LeaveGroupRequest(group_id=GROUP, members=[MemberIdentity(member_id="nobody")]), 5)
    heartbeat(wire, GROUP, FIRST, -1)
    _describe_and_list(wire, GROUP)
    _delete_offsets(wire, GROUP)
    _commit(wire, 9, topic_id, -1)
    _commit(wire, 9, topic_id, epoch, FIRST)
    _fetch(wire, 9, topic_id)
    for version in versions(DeleteGroupsRequest):
        wire.call(DeleteGroupsRequest(groups_names=[GROUP]), version)
    _fetch(wire, 9, topic_id)
    _describe_and_list(wire, GROUP)


def _invalid_heartbeats(wire: Wire) -> None:
    valid: dict[str, Any] = {
        "group_id": GROUP,
        "member_id": FIRST,
        "rebalance_timeout_ms": 60_000,
        "subscribed_topic_names": [TOPIC],
        "topic_partitions": [],
    }
    invalid: list[dict[str, Any]] = [
        {"group_id": ""},
        {"group_id": " "},
        {"instance_id": ""},
        {"rack_id": ""},
        {"rack_id": "\0 \t"},
        {"instance_id": "\0"},
        {"rebalance_timeout_ms": -1},
        {"topic_partitions": None},
        {"topic_partitions": [TopicPartitions(partitions=[0])]},
        {"subscribed_topic_names": None},
        {"server_assignor": "x"},
        {"member_epoch": -3},
        {"member_epoch": -(2**31)},
        {"member_epoch": 2**31 - 1},
        {"member_epoch": -2},
        {"member_epoch": -1},
        {"member_epoch": -1, "member_id": ""},
        {"member_epoch": 1},
        {"member_epoch": 1, "member_id": ""},
    ]
    for version in versions(ConsumerGroupHeartbeatRequest):
        for fields in invalid:
            wire.call(ConsumerGroupHeartbeatRequest(**{**valid, **fields}), version)
    wire.call(ConsumerGroupHeartbeatRequest(**{**valid, "member_id": ""}), 1)
    wire.call(ConsumerGroupHeartbeatRequest(**{**valid, "subscribed_topic_regex": "("}), 1)


def _describe(wire: Wire) -> None:
    for version in versions(ConsumerGroupDescribeRequest):
        request = ConsumerGroupDescribeRequest(group_ids=[GROUP, "sk-none", ""], include_authorized_operations=True)
        wire.call(request, version)


def _heartbeats(wire: Wire) -> None:
    """Members join, move partitions, leave and come back."""
    topic_id = wire.topic(TOPIC, 2)
    _set_interval(wire, GROUP)
    # Apache Kafka 4.4 would compute targets on another thread, in its own time.
    config = AlterableConfig(name="consumer.assignor.offload.enable", config_operation=0, value="false")
    resource = AlterConfigsResource(resource_type=GROUP_RESOURCE, resource_name=GROUP, configs=[config])
    wire.call(IncrementalAlterConfigsRequest(resources=[resource]), 1)
    _invalid_heartbeats(wire)
    epoch = join(wire, GROUP, FIRST)
    _describe(wire)
    heartbeat(wire, GROUP, FIRST, epoch, topic_partitions=owning(topic_id, 0, 1))
    heartbeat(wire, GROUP, FIRST, epoch, topic_partitions=None)
    for numbers in ((-1,), (0, 0, 0), (999, 2**31 - 1), (-(2**31), 1)):
        heartbeat(wire, GROUP, FIRST, epoch, topic_partitions=owning(topic_id, *numbers))
        heartbeat(wire, GROUP, FIRST, epoch - 1, topic_partitions=owning(topic_id, *numbers))
    for wrong in (epoch - 1, epoch + 1):
        heartbeat(wire, GROUP, FIRST, wrong, topic_partitions=None)
    second = join(wire, GROUP, SECOND)
    heartbeat(wire, GROUP, FIRST, epoch, topic_partitions=owning(topic_id, 0, 1))
    _describe(wire)
    epoch = int(heartbeat(wire, GROUP, FIRST, epoch, topic_partitions=owning(topic_id, 0)).member_epoch)
    heartbeat(wire, GROUP, SECOND, second, topic_partitions=[])
    _describe(wire)
    heartbeat(wire, GROUP, FIRST, -1, topic_partitions=None)
    heartbeat(wire, GROUP, FIRST, epoch, topic_partitions=None)
    heartbeat(wire, GROUP, SECOND, second, topic_partitions=owning(topic_id, 1))
    heartbeat(wire, GROUP, SECOND, -1, topic_partitions=None)
    _describe(wire)
    _static_members(wire)


def _static_members(wire: Wire) -> None:
    fields: dict[str, Any] = {
        "instance_id": "i",
        "rebalance_timeout_ms": 60_000,
        "subscribed_topic_names": [TOPIC],
        "topic_partitions": [],
    }
    heartbeat(wire, GROUP, FIRST, -2, instance_id="i", topic_partitions=None)
    epoch = int(heartbeat(wire, GROUP, FIRST, 0, **fields).member_epoch)
    heartbeat(wire, GROUP, SECOND, 0, **fields)
    heartbeat(wire, GROUP, SECOND, epoch, instance_id="i", topic_partitions=None)
    heartbeat(wire, GROUP, FIRST, -2, instance_id="i", topic_partitions=None)
    _describe(wire)
    heartbeat(wire, GROUP, SECOND, 0, **fields)
    heartbeat(wire, GROUP, FIRST, epoch, instance_id="i", topic_partitions=None)
    heartbeat(wire, GROUP, SECOND, -1, instance_id="i", topic_partitions=None)


SWEEPS: Final[dict[str, Sweep]] = {
    "consumer-group-offsets": _offsets,
    "consumer-group-older-epochs": _older_epochs,
    "transactions-offset-commit-by-epoch": _transactional_offsets,
    "consumer-group-administration": _groups,
    "consumer-group-heartbeats": _heartbeats,
}
