"""Helpers of the group handlers: call the coordinator, check fields, list an assignment. Not an API.

The group's shard decides its requests. Handlers translate between wire versions and the state machine's values, and
make the checks that Apache Kafka makes before it looks up the shard.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, TypeVar

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import GroupId, TopicId
from oncelog.base.units import INT16_MAX
from oncelog.core.controller.brokers.features import GROUP_VERSION, SHARE_VERSION
from oncelog.handlers.api import Operation
from oncelog.handlers.broker.context import Context, CoordinatorRefusal
from oncelog.handlers.broker.time_slices import ITEMS
from oncelog.handlers.broker.waits import Coordinate, NextSlice, Steps

if TYPE_CHECKING:
    from oncelog.core.groups.model import GroupDecision
    from oncelog.core.groups.shard import GroupShard
    from oncelog.wire.messages import consumer_group_heartbeat, share_group_heartbeat

R = TypeVar("R")
P = TypeVar("P", "consumer_group_heartbeat.TopicPartitions", "share_group_heartbeat.TopicPartitions")

_BLANKS: Final = "".join(map(chr, range(ord(" ") + 1)))
COORDINATOR_ERRORS: Final = {
    ErrorCode.COORDINATOR_NOT_AVAILABLE: "the coordinator's log did not take the records in time",
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: "the coordinator is reading its log; try again",
    ErrorCode.NOT_COORDINATOR: "another broker coordinates the group, or none does",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "not allowed for this group",
}
"""The errors of every API that a group coordinator decides."""


def ask(
    group_id: str,
    decide: Callable[[GroupShard, int, int], GroupDecision],
    refused: Callable[[ErrorCode], R],
    *,
    ends_with_client: bool = False,
) -> Generator[Coordinate, R, R]:
    try:
        return (yield Coordinate(GroupId(group_id), decide, ends_with_client))
    except CoordinatorRefusal as refusal:
        return refused(refusal.error_code)


def serves_consumer_protocol(context: Context) -> bool:
    """True if groups may use the consumer protocol (KIP-848): ``group.version`` and the configuration allow it."""
    is_enabled = "consumer" in context.cluster.config.get("group.coordinator.rebalance.protocols")
    return is_enabled and context.cluster.image.features.get(GROUP_VERSION, 0) >= 1


def share_version(context: Context) -> int:
    """The level of ``share.version``: 1 allows share groups (KIP-932), 2 their dead letters (KIP-1191)."""
    return context.cluster.image.features.get(SHARE_VERSION, 0)


def serves_share_groups(context: Context) -> bool:
    return share_version(context) >= 1


def fits_record(text: str) -> bool:
    """True if a string can be stored: the record schemas have 16-bit lengths."""
    return len(text) * 4 <= INT16_MAX or len(text.encode()) <= INT16_MAX


def is_blank(text: str) -> bool:
    # Java's trim: other Unicode space counts as text.
    return not text.strip(_BLANKS)


def describes_topics(names: Sequence[str] | None, context: Context) -> Steps[ErrorCode]:
    """TOPIC_AUTHORIZATION_FAILED unless the requester may describe every topic of a subscription."""
    distinct, is_denied = list(dict.fromkeys(names or ())), False
    for start in range(0, len(distinct), ITEMS):
        if start:
            yield NextSlice()
        # All of them are asked about: each denial is in the access log.
        allowed = [context.allows_topic(Operation.DESCRIBE, name) for name in distinct[start : start + ITEMS]]
        is_denied |= not all(allowed)
    return ErrorCode.TOPIC_AUTHORIZATION_FAILED if is_denied else ErrorCode.NONE


def blank_field(**fields: str | None) -> str | None:
    """The complaint about the first of the fields that is sent but blank."""
    blank = (name for name, text in fields.items() if text is not None and is_blank(text))
    return next((f"{name} can't be empty." for name in blank), None)


def assigned_topics(assignment: Mapping[TopicId, Iterable[int]], part: type[P]) -> Steps[list[P]]:
    """A member's assignment as its heartbeat's answer says it."""
    topics, parts = list(assignment.items()), list[P]()
    for start in range(0, len(topics), ITEMS):
        if start:
            yield NextSlice()
        parts += [part(topic_id=topic, partitions=sorted(numbers)) for topic, numbers in topics[start : start + ITEMS]]
    return parts
