"""A fake coordinator of one group of the consumer protocol, with one member at a time."""

from __future__ import annotations

from oncelog.base.errors import ErrorCode
from oncelog.wire.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from oncelog.wire.messages.fetch import FetchRequest, FetchResponse
from oncelog.wire.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from oncelog.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse, OffsetFetchResponseGroup
from tests.unit.client.programs.fake_brokers import FakeBrokers
from tests.unit.client.programs.test_group import Coordinator

INTERVAL_MS = 2_000


def topic_id(name: str) -> bytes:
    """The id that the fake brokers give a topic."""
    return name.encode().ljust(16)


class ConsumerCoordinator(Coordinator):
    """Assigns ``target`` to its member, under an epoch that grows with each change; a stale epoch is refused."""

    def __init__(self, brokers: FakeBrokers) -> None:
        super().__init__(brokers)
        self.heartbeats: list[ConsumerGroupHeartbeatRequest] = []
        self.codes: list[int] = []
        """Refusals of the next heartbeats."""
        self.fetch_codes: list[int] = []
        self.epoch = 0
        self.target: dict[str, list[int]] = {"t": [0, 1]}
        self._told: dict[str, list[int]] | None = None
        brokers.answers |= {
            ConsumerGroupHeartbeatRequest: self._heartbeat,
            OffsetCommitRequest: self._commit_of_member,
            OffsetFetchRequest: self._fetch_of_member,
            FetchRequest: lambda *_: FetchResponse(),
        }

    @property
    def owned(self) -> dict[bytes, list[int]] | None:
        """The list in the last heartbeat that had one."""
        lists = [message.topic_partitions for message in self.heartbeats if message.topic_partitions is not None]
        return {topic.topic_id: topic.partitions for topic in lists[-1]} if lists else None

    def _heartbeat(self, _: int, message: ConsumerGroupHeartbeatRequest) -> ConsumerGroupHeartbeatResponse:
        self.heartbeats.append(message)
        if self.codes:
            return ConsumerGroupHeartbeatResponse(error_code=self.codes.pop(0))
        if message.member_epoch < 0:
            return ConsumerGroupHeartbeatResponse(member_epoch=message.member_epoch)
        is_full = message.subscribed_topic_names is not None
        assignment = None
        if is_full or self._told != self.target:
            self.epoch += self._told != self.target or message.member_epoch == 0
            self._told = {topic: list(partitions) for topic, partitions in self.target.items()}
            topics = [TopicPartitions(topic_id=topic_id(name), partitions=p) for name, p in self._told.items()]
            assignment = Assignment(topic_partitions=topics)
        return ConsumerGroupHeartbeatResponse(
            member_id=message.member_id,
            member_epoch=self.epoch,
            heartbeat_interval_ms=INTERVAL_MS,
            assignment=assignment,
        )

    def _commit_of_member(self, broker: int, message: OffsetCommitRequest) -> OffsetCommitResponse:
        if message.generation_id_or_member_epoch != self.epoch:
            self.commit_codes.insert(0, ErrorCode.STALE_MEMBER_EPOCH)
        return self._commit(broker, message)

    def _fetch_of_member(self, broker: int, message: OffsetFetchRequest) -> OffsetFetchResponse:
        code = self.fetch_codes.pop(0) if self.fetch_codes else 0
        if message.groups[0].member_epoch not in (-1, self.epoch):
            code = ErrorCode.STALE_MEMBER_EPOCH
        if code:
            return OffsetFetchResponse(groups=[OffsetFetchResponseGroup(group_id="g", error_code=code)])
        return self._fetch(broker, message)
