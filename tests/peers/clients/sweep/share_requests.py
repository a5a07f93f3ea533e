"""Requests of members of share groups (KIP-932), which the sweeps of share groups are made of."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from oncelog.wire.message import Message
from oncelog.wire.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
)
from oncelog.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from oncelog.wire.messages.list_groups import ListGroupsRequest
from oncelog.wire.messages.share_acknowledge import (
    AcknowledgementBatch,
    AcknowledgePartition,
    AcknowledgeTopic,
    ShareAcknowledgeRequest,
)
from oncelog.wire.messages.share_fetch import AcknowledgementBatch as FetchAcknowledgementBatch
from oncelog.wire.messages.share_fetch import FetchPartition, FetchTopic, ForgottenTopic, ShareFetchRequest
from oncelog.wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from tests.peers.clients.sweep.wire import UNRECORDED, Wire
from tests.waiting import wait_until

FIRST: Final = "AAAAAAAAAAAAAAAAAAAAAA"
SECOND: Final = "BAAAAAAAAAAAAAAAAAAAAA"
GROUP_RESOURCE: Final = 32
GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)
BATCH_OPTIMIZED, RECORD_LIMIT = 0, 1
NEWEST: Final = 2
"""The newest version of ShareFetch and of ShareAcknowledge."""

Acknowledgements = Sequence[tuple[int, int, list[int]]]
"""First offset, last offset, types."""
Partitions = Mapping[int, Acknowledgements]
"""Acknowledgements by partition; none for a partition that is only fetched."""


def every_version(kind: type[Message]) -> Iterator[int]:
    """Every version of the request that Apache Kafka has."""
    return iter(range(kind.MIN_VERSION, kind.MAX_VERSION + 1))


def configure(wire: Wire, group: str, **configs: str) -> None:
    """Set configurations of the group; names have ``_`` for a dot."""
    entries = [
        AlterableConfig(name=key.replace("_", "."), config_operation=0, value=value) for key, value in configs.items()
    ]
    resource = AlterConfigsResource(resource_type=GROUP_RESOURCE, resource_name=group, configs=entries)
    wire.call(IncrementalAlterConfigsRequest(resources=[resource]), 1)


def heartbeat(wire: Wire, group: str, member_id: str, epoch: int, topics: list[str] | None = None) -> Any:
    """A member's heartbeat; it names topics where it joins or changes what it subscribes to."""
    request = ShareGroupHeartbeatRequest(
        group_id=group, member_id=member_id, member_epoch=epoch, subscribed_topic_names=topics
    )
    return wire.call(request, 1)


def compute_at_once(wire: Wire, group: str, **configs: str) -> None:
    """Configure the group so that targets are computed with the heartbeat that asks for them: not on another thread,
    and not only once a second."""
    configure(wire, group, share_assignment_interval_ms="0", share_assignor_offload_enable="false", **configs)


def join(wire: Wire, group: str, member_id: str, *topics: str) -> int:
    """Join and wait for the partitions; the member's epoch then."""
    epoch = heartbeat(wire, group, member_id, 0, list(topics)).member_epoch
    await_initialised(wire, group, *topics)
    return int(heartbeat(wire, group, member_id, epoch).member_epoch)


def await_initialised(wire: Wire, group: str, *topics: str) -> None:
    """Return when the group's share partitions of these topics have a state: the coordinator makes it behind the
    heartbeat that has subscribed to them. Nothing of this is recorded."""
    groups = [DescribeShareGroupOffsetsRequestGroup(group_id=group, topics=None)]  # all that are initialised
    request = DescribeShareGroupOffsetsRequest(groups=groups)
    with wire.another(UNRECORDED) as waiting:
        wait_until(
            lambda: set(topics) <= {topic.topic_name for topic in waiting.call(request, 0).groups[0].topics},
            f"the state of {topics} in {group}",
        )


def group_type(wire: Wire, group: str) -> str | None:
    """The type of a group, None if there is none."""
    with wire.another(UNRECORDED) as asking:
        listed = asking.call(ListGroupsRequest(), 5).groups
    return next((each.group_type for each in listed if each.group_id == group), None)


def earliest_group(wire: Wire, group: str, *topics: str, member_id: str = FIRST, **configs: str) -> int:
    """A group that begins at the start of its topics, with one member; the member's epoch."""
    compute_at_once(wire, group, share_auto_offset_reset="earliest", **configs)
    return join(wire, group, member_id, *topics)


def share_fetch(
    wire: Wire,
    group: str | None,
    member_id: str | None,
    epoch: int,
    topic_id: bytes = b"",
    partitions: Partitions | Sequence[int] = (),
    *,
    version: int = NEWEST,
    forget: Sequence[int] = (),
    **fields: Any,
) -> Any:
    """A ShareFetch of one topic's partitions, with acknowledgements or without."""
    request = ShareFetchRequest(
        group_id=group,
        member_id=member_id,
        share_session_epoch=epoch,
        topics=fetch_topics(topic_id, partitions),
        forgotten_topics_data=[ForgottenTopic(topic_id=topic_id, partitions=list(forget))] if forget else [],
        **{"max_wait_ms": 1500, "min_bytes": 1, "max_records": 500, "batch_size": 500, **fields},
    )
    return wire.call(request, version)


def fetch_topics(topic_id: bytes, partitions: Partitions | Sequence[int]) -> list[FetchTopic]:
    """The topics of a ShareFetch: one, or none."""
    by_partition = partitions if isinstance(partitions, Mapping) else dict.fromkeys(partitions, ())
    parts = [
        FetchPartition(
            partition_index=index,
            acknowledgement_batches=[
                FetchAcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=types)
                for first, last, types in acknowledgements
            ],
        )
        for index, acknowledgements in by_partition.items()
    ]
    return [FetchTopic(topic_id=topic_id, partitions=parts)] if parts else []


def share_acknowledge(
    wire: Wire,
    group: str | None,
    member_id: str | None,
    epoch: int,
    topic_id: bytes = b"",
    partitions: Partitions | None = None,
    *,
    version: int = NEWEST,
    **fields: Any,
) -> Any:
    """A ShareAcknowledge of one topic's partitions."""
    parts = [
        AcknowledgePartition(
            partition_index=index,
            acknowledgement_batches=[
                AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=types)
                for first, last, types in acknowledgements
            ],
        )
        for index, acknowledgements in (partitions or {}).items()
    ]
    topics = [AcknowledgeTopic(topic_id=topic_id, partitions=parts)] if parts else []
    request = ShareAcknowledgeRequest(
        group_id=group, member_id=member_id, share_session_epoch=epoch, topics=topics, **fields
    )
    return wire.call(request, version)
