"""A coordinator of one group: our pure consumer group behind the messages of the protocol, with session time-outs."""

from __future__ import annotations

from typing import Final

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import GroupId, MemberId, TopicId, TopicName
from oncelog.core.groups.consumer.assignors import range as range_assignor
from oncelog.core.groups.consumer.assignors import uniform
from oncelog.core.groups.consumer.group import ConsumerGroup
from oncelog.core.groups.consumer.heartbeat import ConsumerHeartbeat, HeartbeatAnswer, decide_heartbeat, decide_leave
from oncelog.core.groups.consumer.removal import decide_expiry
from oncelog.core.groups.consumer.settings import GroupLimits
from oncelog.core.groups.modern.group import Refused
from oncelog.wire.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from tests.conformance.groups.core_group import TopicTable, TopicView

INTERVAL_MS: Final = 500
SESSION_MS: Final = 3_000
ASSIGNORS: Final = {"uniform": uniform.assign, "range": range_assignor.assign}


class CoreCoordinator:
    """The group, and when its members were heard last. ``now_ms`` is the caller's to move."""

    def __init__(self, topics: TopicTable, assignment_interval_ms: int) -> None:
        self.group: ConsumerGroup | None = None
        self.now_ms = 1_000
        self._topics = TopicView(topics)
        self._limits = GroupLimits(ASSIGNORS, assignment_interval_ms)
        self._heard_ms: dict[str, int] = {}

    def change_topics(self, topics: TopicTable) -> None:
        self._topics.replace(topics)
        if self.group is not None:
            self.group.metadata_refresh_epoch = None

    def expire(self) -> None:
        """Fence the members whose sessions are over."""
        group = self.group
        if group is None:
            return
        for name in list(group.members):
            if self._heard_ms.get(name, 0) + SESSION_MS < self.now_ms:
                decision = decide_expiry(group, MemberId(name), self._topics, self._limits, self.now_ms)
                for key, value in decision.records:
                    group.apply(key, value)  # type: ignore[arg-type]  # no conversion: no classic records

    def restart(self) -> None:
        """Another broker loads the group: all sessions start again."""
        if self.group is not None:
            self._heard_ms = dict.fromkeys(self.group.members, self.now_ms)

    def answer(self, request: ConsumerGroupHeartbeatRequest) -> ConsumerGroupHeartbeatResponse:
        try:
            answer = self._decided(request)
        except Refused as refused:
            return ConsumerGroupHeartbeatResponse(error_code=refused.code)
        self._heard_ms[request.member_id] = self.now_ms
        assignment = None
        if answer.assignment is not None:
            topics = [TopicPartitions(topic_id=t, partitions=sorted(p)) for t, p in answer.assignment.items()]
            assignment = Assignment(topic_partitions=topics)
        return ConsumerGroupHeartbeatResponse(
            member_id=answer.member_id,
            member_epoch=answer.epoch,
            heartbeat_interval_ms=INTERVAL_MS,
            assignment=assignment,
        )

    def _decided(self, request: ConsumerGroupHeartbeatRequest) -> HeartbeatAnswer:
        """Decide a heartbeat and apply its records. Raises Refused."""
        if self.group is None and request.member_epoch != 0:
            raise Refused(ErrorCode.GROUP_ID_NOT_FOUND, "no such group")
        names, owned = request.subscribed_topic_names, request.topic_partitions
        heartbeat = ConsumerHeartbeat(
            GroupId("g"),
            MemberId(request.member_id),
            request.member_epoch,
            request.instance_id,
            rebalance_timeout_ms=request.rebalance_timeout_ms,
            topics=None if names is None else frozenset(TopicName(name) for name in names),
            owned=None if owned is None else {TopicId(t.topic_id): frozenset(t.partitions) for t in owned},
        )
        decide = decide_leave if heartbeat.epoch < 0 else decide_heartbeat
        decision = decide(self.group, heartbeat, self._topics, self._limits, self.now_ms)
        self.group = self.group or ConsumerGroup(GroupId("g"))
        for key, value in decision.records:
            self.group.apply(key, value)  # type: ignore[arg-type]  # no conversion: no classic records
        return decision.answer
