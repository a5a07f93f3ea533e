"""Questions about consumer groups and their offsets."""

from __future__ import annotations

from typing import Any

from tests.conformance.authorization.questions.asking import Known, Question, make, named
from tests.conformance.authorization.world import ELSE, GROUP, HIDDEN, TOPIC, UNKNOWN


def offset_commit(version: int, known: Known) -> Any:
    part = make("offset_commit.OffsetCommitRequestPartition", partition_index=0, committed_offset=1)
    topics = named((TOPIC, HIDDEN, UNKNOWN), known, version >= 10)
    return make(
        "offset_commit.OffsetCommitRequest",
        group_id=GROUP,
        topics=[make("offset_commit.OffsetCommitRequestTopic", partitions=[part], **topic) for topic in topics],
    )


def _offset_fetch(version: int, known: Known, *, everything: bool) -> Any:
    topics = named((TOPIC, HIDDEN, UNKNOWN), known, version >= 10)
    if version < 8:
        some = [make("offset_fetch.OffsetFetchRequestTopic", partition_indexes=[0], **topic) for topic in topics]
        return make("offset_fetch.OffsetFetchRequest", group_id=GROUP, topics=None if everything else some)
    of_group = [make("offset_fetch.OffsetFetchRequestTopics", partition_indexes=[0], **topic) for topic in topics]
    groups = [
        make("offset_fetch.OffsetFetchRequestGroup", group_id=group, topics=None if everything else of_group)
        for group in (GROUP, ELSE)
    ]
    return make("offset_fetch.OffsetFetchRequest", groups=groups)


def offset_fetch(version: int, known: Known) -> Any:
    return _offset_fetch(version, known, everything=False)


def offset_fetch_all(version: int, known: Known) -> Any:
    return _offset_fetch(version, known, everything=True) if version >= 2 else None


def find_coordinator(key: str, key_type: int) -> Question:
    def question(version: int, _known: Known) -> Any:
        if version < 1 and key_type:
            return None
        keys = [key, "nobodys"] if version >= 4 else []
        return make("find_coordinator.FindCoordinatorRequest", key=key, key_type=key_type, coordinator_keys=keys)

    return question


def join_group(_version: int, _known: Known) -> Any:
    """With a session time-out that is refused after the right was asked for."""
    return make(
        "join_group.JoinGroupRequest",
        group_id=GROUP,
        session_timeout_ms=1,
        rebalance_timeout_ms=1,
        protocol_type="consumer",
        protocols=[make("join_group.JoinGroupRequestProtocol", name="range", metadata=b"")],
    )


def heartbeat(_version: int, _known: Known) -> Any:
    return make("heartbeat.HeartbeatRequest", group_id=GROUP, generation_id=1, member_id="m")


def leave_group(_version: int, _known: Known) -> Any:
    members = [make("leave_group.MemberIdentity", member_id="m")]
    return make("leave_group.LeaveGroupRequest", group_id=GROUP, member_id="m", members=members)


def sync_group(_version: int, _known: Known) -> Any:
    return make(
        "sync_group.SyncGroupRequest",
        group_id=GROUP,
        generation_id=1,
        member_id="m",
        protocol_type="consumer",
        protocol_name="range",
    )


def describe_groups(_version: int, _known: Known) -> Any:
    return make("describe_groups.DescribeGroupsRequest", groups=[GROUP, "nobodys"], include_authorized_operations=True)


def consumer_group_describe(_version: int, _known: Known) -> Any:
    return make(
        "consumer_group_describe.ConsumerGroupDescribeRequest",
        group_ids=[GROUP, "nobodys"],
        include_authorized_operations=True,
    )


def consumer_group_heartbeat(*topics: str) -> Question:
    """With an epoch that is refused after the rights were asked for."""

    def question(_version: int, _known: Known) -> Any:
        return make(
            "consumer_group_heartbeat.ConsumerGroupHeartbeatRequest",
            group_id=GROUP,
            member_id="m",
            member_epoch=5,
            subscribed_topic_names=list(topics),
            topic_partitions=None,
        )

    return question


def list_groups(_version: int, _known: Known) -> Any:
    return make("list_groups.ListGroupsRequest")


def delete_groups(_version: int, _known: Known) -> Any:
    return make("delete_groups.DeleteGroupsRequest", groups_names=[GROUP, "nobodys"])


def offset_delete(_version: int, _known: Known) -> Any:
    part = make("offset_delete.OffsetDeleteRequestPartition", partition_index=5)
    topics = [
        make("offset_delete.OffsetDeleteRequestTopic", name=name, partitions=[part])
        for name in (TOPIC, HIDDEN, UNKNOWN)
    ]
    return make("offset_delete.OffsetDeleteRequest", group_id=GROUP, topics=topics)
