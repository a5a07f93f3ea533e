"""A coordinator of one group: our pure consumer group behind the messages of the protocol, with session time-outs."""

from __future__ import annotations

from typing import Final

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import MemberId
from oncelog.core.groups.consumer.heartbeat import fence
from oncelog.core.groups.consumer.settings import Refused
from oncelog.wire.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from tests.conformance.groups.core_group import CoreGroup, TopicTable

INTERVAL_MS: Final = 500
SESSION_MS: Final = 3_000


class CoreCoordinator:
    """The group, and when its members were heard last. ``now_ms`` is the caller's to move."""

    def __init__(self, topics: TopicTable, assignment_interval_ms: int) -> None:
        self.core = CoreGroup(topics, assignment_interval_ms, 100)
        self._heard_ms: dict[str, int] = {}

    def expire(self) -> None:
        """Fence the members whose sessions are over."""
        group, now_ms = self.core.group, self.core.now_ms
        if group is None:
            return
        for name in list(group.members):
            if self._heard_ms.get(name, 0) + SESSION_MS < now_ms:
                self.core.apply(fence(group, [MemberId(name)], self.core.topics))

    def restart(self) -> None:
        """Another broker loads the group: all sessions start again."""
        if self.core.group is not None:
            self._heard_ms = dict.fromkeys(self.core.group.members, self.core.now_ms)

    def answer(self, request: ConsumerGroupHeartbeatRequest) -> ConsumerGroupHeartbeatResponse:
        if self.core.group is None and request.member_epoch != 0:
            return ConsumerGroupHeartbeatResponse(error_code=ErrorCode.GROUP_ID_NOT_FOUND)
        owned = request.topic_partitions
        try:
            decision = self.core.heartbeat(
                {
                    "member": request.member_id,
                    "epoch": request.member_epoch,
                    "instance": request.instance_id,
                    "timeout": request.rebalance_timeout_ms,
                    "topics": request.subscribed_topic_names,
                    "owned": None if owned is None else {t.topic_id.hex(): t.partitions for t in owned},
                }
            )
        except Refused as refused:
            return ConsumerGroupHeartbeatResponse(error_code=refused.code)
        self._heard_ms[request.member_id] = self.core.now_ms
        decided = decision.answer
        assignment = None
        if decided.assignment is not None:
            topics = [TopicPartitions(topic_id=t, partitions=sorted(p)) for t, p in decided.assignment.items()]
            assignment = Assignment(topic_partitions=topics)
        return ConsumerGroupHeartbeatResponse(
            member_id=decided.member_id,
            member_epoch=decided.epoch,
            heartbeat_interval_ms=INTERVAL_MS,
            assignment=assignment,
        )
