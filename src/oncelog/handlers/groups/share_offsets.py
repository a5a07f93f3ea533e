"""DescribeShareGroupOffsets, versions 0 and 1 (KIP-932): where the partitions of share groups start, and their lags.

Null topics ask for all partitions with share state, without those of topics that the requester may not describe. A
partition without state, and one whose state cannot be read, starts at −1. The lag (KIP-1226) counts the records from
the start to the end of what consumers can read that are not settled yet; −1 where that is not known.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import NO_TOPIC_ID, GroupId, LeaderEpoch, Offset, TopicId, TopicName, TopicPartition
from oncelog.core.groups.model import GroupDecision
from oncelog.core.share_state.model import ShareKey, SummarizeState
from oncelog.handlers.api import Operation
from oncelog.handlers.broker.context import Context
from oncelog.handlers.broker.waits import AskLogEnds, Steps
from oncelog.handlers.groups.requests import COORDINATOR_ERRORS, ask, serves_share_groups
from oncelog.handlers.groups.share_in_flight import describe_led
from oncelog.handlers.groups.share_states import TEXTS, persist
from oncelog.wire.messages import describe_share_group_offsets as wire

if TYPE_CHECKING:
    from oncelog.core.groups.modern.members import Partitions

ERRORS: Final[Mapping[ErrorCode, str]] = {
    **COORDINATOR_ERRORS,
    ErrorCode.UNSUPPORTED_VERSION: "the feature share.version forbids it",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "not allowed to describe the topic",
    ErrorCode.LEADER_NOT_AVAILABLE: "the partition has no leader to tell its end",
    ErrorCode.UNKNOWN_SERVER_ERROR: "a topic without partitions, or a negative one, is named",
    ErrorCode.NETWORK_EXCEPTION: "the partition's leader did not answer",
}
_NO_OFFSET: Final = -1
_LARGEST: Final = 2**63 - 1
_UNKNOWN: Final = -1
_ANY_LEADER: Final = LeaderEpoch(0)


class _Summary(Protocol):
    """A share coordinator's knowledge of a partition."""

    @property
    def error_code(self) -> ErrorCode: ...

    @property
    def leader_epoch(self) -> int: ...

    @property
    def start_offset(self) -> int: ...

    @property
    def delivery_complete_count(self) -> int: ...


class _Part(NamedTuple):
    name: TopicName
    topic: TopicId
    partition: int
    exists: bool = True
    """False for a partition that its topic does not have: no share coordinator is asked."""


def handle(
    request: wire.DescribeShareGroupOffsetsRequest, context: Context
) -> Steps[wire.DescribeShareGroupOffsetsResponse]:
    if request.led_here:
        return (yield from describe_led(request, context))
    groups, whole = [], set[str]()
    for group in request.groups:
        # Asked for everything of a group again, as a request may thirty thousand times: answered once.
        if group.topics is None and group.group_id in whole:
            continue
        if group.topics is None:
            whole.add(group.group_id)
        described = yield from _group(group, context)
        groups.append(described)
    return wire.DescribeShareGroupOffsetsResponse(groups=groups)


def _group(
    group: wire.DescribeShareGroupOffsetsRequestGroup, context: Context
) -> Steps[wire.DescribeShareGroupOffsetsResponseGroup]:
    group_id = GroupId(group.group_id)
    answer = wire.DescribeShareGroupOffsetsResponseGroup(group_id=group_id)
    refusal = ErrorCode.NONE
    if not serves_share_groups(context):
        refusal = ErrorCode.UNSUPPORTED_VERSION
    elif not context.allows_group(Operation.DESCRIBE, group_id):
        refusal = ErrorCode.GROUP_AUTHORIZATION_FAILED
    if refusal is not ErrorCode.NONE:
        answer.error_code = refusal
        return answer
    if group.topics is None:
        parts: list[_Part] | ErrorCode = yield from _all_parts(group_id, context)
        if isinstance(parts, ErrorCode):
            answer.error_code = parts
            return answer
        answer.topics = yield from _topics(group_id, parts)
        return answer
    named, unknown, denied = _named_parts(group.topics, context)
    if named is None:
        answer.error_code, answer.error_message = ErrorCode.UNKNOWN_SERVER_ERROR, TEXTS[ErrorCode.UNKNOWN_SERVER_ERROR]
        return answer
    answer.topics = yield from _topics(group_id, named)
    answer.topics += [*unknown, *denied]
    return answer


def _all_parts(group_id: GroupId, context: Context) -> Steps[list[_Part] | ErrorCode]:
    """The partitions with share state whose topics exist and may be described."""
    partitions: Partitions | ErrorCode = yield from ask(
        group_id,
        lambda shard, token, now_ms: GroupDecision(reply=shard.share.partitions(group_id), waits_for_pending=True),
        ErrorCode,
    )
    if isinstance(partitions, ErrorCode):
        return partitions
    names = context.cluster.image.topic_names
    visible = [topic for topic in partitions if topic in names]
    visible = [topic for topic in visible if context.allows_topic_silently(Operation.DESCRIBE, names[topic])]
    return [_Part(names[topic], topic, number) for topic in visible for number in sorted(partitions[topic])]


def _named_parts(
    topics: Sequence[wire.DescribeShareGroupOffsetsRequestTopic], context: Context
) -> tuple[
    list[_Part] | None,
    list[wire.DescribeShareGroupOffsetsResponseTopic],
    list[wire.DescribeShareGroupOffsetsResponseTopic],
]:
    """Partitions of existing topics, and the answers about topics that do not exist and that are denied. None instead
    of partitions that no share coordinator can have: Apache Kafka fails then.
    """
    parts: dict[_Part, None] = {}
    is_possible = True
    unknown, denied = [], []
    for topic in topics:
        name = TopicName(topic.topic_name)
        image = context.cluster.image.topics.get(name)
        if not context.allows_topic(Operation.DESCRIBE, name):
            denied.append(
                _without_state(topic, ErrorCode.TOPIC_AUTHORIZATION_FAILED, TEXTS[ErrorCode.TOPIC_AUTHORIZATION_FAILED])
            )
        elif image is None:
            unknown.append(_without_state(topic))
        else:
            count = len(image.partitions)
            parts |= {_Part(name, image.topic_id, number, number < count): None for number in topic.partitions}
            is_possible &= bool(topic.partitions) and min(topic.partitions) >= 0
    return list(parts) if is_possible else None, unknown, denied


def _without_state(
    topic: wire.DescribeShareGroupOffsetsRequestTopic,
    error_code: ErrorCode = ErrorCode.NONE,
    message: str | None = None,
) -> wire.DescribeShareGroupOffsetsResponseTopic:
    return wire.DescribeShareGroupOffsetsResponseTopic(
        topic_name=topic.topic_name,
        topic_id=NO_TOPIC_ID,
        partitions=[
            wire.DescribeShareGroupOffsetsResponsePartition(
                partition_index=number, start_offset=_NO_OFFSET, error_code=error_code, error_message=message
            )
            for number in topic.partitions
        ],
    )


def _topics(group_id: GroupId, parts: Sequence[_Part]) -> Steps[list[wire.DescribeShareGroupOffsetsResponseTopic]]:
    if not parts:
        return []
    existing = [part for part in parts if part.exists]
    read: Sequence[_Summary] = yield from persist(
        [SummarizeState(ShareKey(group_id, part.topic, part.partition), _ANY_LEADER) for part in existing]
    )
    summaries = dict(zip(existing, read, strict=True))
    counted = [TopicPartition(part.name, part.partition) for part in existing if _has_lag(summaries[part])]
    ends: Mapping[TopicPartition, Offset | ErrorCode] = {}
    if counted:
        ends = yield AskLogEnds(counted)
    topics: dict[TopicId, wire.DescribeShareGroupOffsetsResponseTopic] = {}
    for part in parts:
        topic = topics.setdefault(
            part.topic, wire.DescribeShareGroupOffsetsResponseTopic(topic_name=part.name, topic_id=part.topic)
        )
        end = ends.get(TopicPartition(part.name, part.partition))
        topic.partitions.append(_partition(part.partition, summaries.get(part), end))
    return list(topics.values())


def _has_lag(summary: _Summary) -> bool:
    is_known = summary.error_code is ErrorCode.NONE
    return is_known and summary.start_offset != _NO_OFFSET and summary.delivery_complete_count != _UNKNOWN


def _partition(
    number: int, summary: _Summary | None, end: Offset | ErrorCode | None
) -> wire.DescribeShareGroupOffsetsResponsePartition:
    part = wire.DescribeShareGroupOffsetsResponsePartition(partition_index=number)
    if isinstance(end, ErrorCode):
        part.error_code, part.error_message = end, TEXTS.get(end)
        return part
    if summary is None or summary.error_code is not ErrorCode.NONE:
        part.start_offset = _NO_OFFSET
        return part
    part.start_offset, part.leader_epoch = summary.start_offset, summary.leader_epoch
    if end is not None:
        # Negative if the start is above the end, as by Apache Kafka. A state may begin at any number.
        lag = end - summary.start_offset - summary.delivery_complete_count
        part.lag = max(-_LARGEST, min(lag, _LARGEST))
    return part
