"""Questions about share groups (KIP-932), and between the brokers that keep their state."""

from __future__ import annotations

from typing import Any, Final

from tests.conformance.authorization.questions.asking import Known, Question, make
from tests.conformance.authorization.world import GROUP, HIDDEN, TOPIC, UNKNOWN
from tests.peers.clients.sweep.wire import NOWHERE

MEMBER: Final = "AAAAAAAAAAAAAAAAAAAAAA"
COORDINATED: Final = f"{GROUP}:AAAAAAAAAAAAAAAAAAAAAA:0"
"""A key of a share partition for FindCoordinator."""
SHARE: Final = 2
_KEYS_SINCE: Final = 6
_LEAVES: Final = -1
_NO_PARTITION: Final = -1


def find_share_coordinator(version: int, _known: Known) -> Any:
    if version < _KEYS_SINCE:
        return None
    return make("find_coordinator.FindCoordinatorRequest", key_type=SHARE, coordinator_keys=[COORDINATED])


def share_group_heartbeat(*topics: str) -> Question:
    """With an epoch that is refused after the rights were asked for."""

    def question(_version: int, _known: Known) -> Any:
        return make(
            "share_group_heartbeat.ShareGroupHeartbeatRequest",
            group_id=GROUP,
            member_id=MEMBER,
            member_epoch=5,
            subscribed_topic_names=list(topics),
        )

    return question


def share_group_describe(_version: int, _known: Known) -> Any:
    return make(
        "share_group_describe.ShareGroupDescribeRequest",
        group_ids=[GROUP, "nobodys"],
        include_authorized_operations=True,
    )


def share_fetch(*names: str) -> Question:
    """A new session that asks for no records."""

    def question(_version: int, known: Known) -> Any:
        topics = [
            make(
                "share_fetch.FetchTopic",
                topic_id=known.topic_ids.get(name, NOWHERE),
                partitions=[make("share_fetch.FetchPartition")],
            )
            for name in names
        ]
        return make("share_fetch.ShareFetchRequest", group_id=GROUP, member_id=MEMBER, max_records=0, topics=topics)

    return question


def share_acknowledge(_version: int, known: Known) -> Any:
    """The end of a session that is not there."""
    batch = make("share_acknowledge.AcknowledgementBatch", acknowledge_types=[1])
    partition = make("share_acknowledge.AcknowledgePartition", acknowledgement_batches=[batch])
    topic_id = known.topic_ids.get(HIDDEN, NOWHERE)
    topics = [make("share_acknowledge.AcknowledgeTopic", topic_id=topic_id, partitions=[partition])]
    return make(
        "share_acknowledge.ShareAcknowledgeRequest",
        group_id=GROUP,
        member_id="stranger",
        share_session_epoch=_LEAVES,
        topics=topics,
    )


def describe_share_group_offsets(*topics: str) -> Question:
    """Of some topics, or of all where none is named."""

    def question(_version: int, _known: Known) -> Any:
        wanted = [
            make("describe_share_group_offsets.DescribeShareGroupOffsetsRequestTopic", topic_name=name, partitions=[0])
            for name in topics
        ]
        group = make(
            "describe_share_group_offsets.DescribeShareGroupOffsetsRequestGroup",
            group_id=GROUP,
            topics=wanted or None,
        )
        return make("describe_share_group_offsets.DescribeShareGroupOffsetsRequest", groups=[group])

    return question


def alter_share_group_offsets(_version: int, _known: Known) -> Any:
    """Of partitions that are not there."""
    part = make("alter_share_group_offsets.AlterShareGroupOffsetsRequestPartition", partition_index=7)
    topics = [
        make("alter_share_group_offsets.AlterShareGroupOffsetsRequestTopic", topic_name=name, partitions=[part])
        for name in (TOPIC, HIDDEN, UNKNOWN)
    ]
    return make("alter_share_group_offsets.AlterShareGroupOffsetsRequest", group_id=GROUP, topics=topics)


def delete_share_group_offsets(_version: int, _known: Known) -> Any:
    topics = [
        make("delete_share_group_offsets.DeleteShareGroupOffsetsRequestTopic", topic_name=name)
        for name in (TOPIC, HIDDEN, UNKNOWN)
    ]
    return make("delete_share_group_offsets.DeleteShareGroupOffsetsRequest", group_id=GROUP, topics=topics)


def share_group_state(module: str, request: str, data: str) -> Question:
    """One of the requests between brokers, for a partition that no topic can have."""

    def question(_version: int, known: Known) -> Any:
        partition = make(f"{module}.PartitionData", partition=_NO_PARTITION)
        topic = make(f"{module}.{data}", topic_id=known.topic_ids.get(TOPIC, NOWHERE), partitions=[partition])
        return make(f"{module}.{request}", group_id=GROUP, topics=[topic])

    return question
