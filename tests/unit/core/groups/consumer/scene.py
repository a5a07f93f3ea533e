"""A group of ours with a topic of four partitions, for tests: members of both protocols join, and all are answered."""

from __future__ import annotations

from oncelog.base.ids import MemberId, TopicId, TopicName
from oncelog.core.groups.classic.group import ClassicGroup
from oncelog.core.groups.consumer.group import ConsumerGroup
from oncelog.core.groups.consumer.heartbeat import HeartbeatAnswer
from oncelog.core.groups.consumer.settings import MigrationPolicy
from oncelog.core.groups.model import JoinReply, JoinRequest, Protocol
from oncelog.records.internal.consumer_protocol import Subscription, encode_subscription
from tests.conformance.groups.core_group import GROUP, CoreGroup, Outcome

T = TopicId(b"t" * 16)
TOPICS = {"t": (T.hex(), 4)}
A, B, C = (MemberId(name) for name in "abc")
BIDIRECTIONAL = MigrationPolicy.BIDIRECTIONAL


class Scene(CoreGroup):
    """The group."""

    def __init__(
        self, interval_ms: int = 0, *, policy: MigrationPolicy = BIDIRECTIONAL, size: int = 100, classic_size: int = 100
    ) -> None:
        super().__init__(TOPICS, interval_ms, size, classic_size, policy)
        self._tokens = 0

    @property
    def consumer(self) -> ConsumerGroup:
        assert isinstance(self.group, ConsumerGroup)
        return self.group

    @property
    def classic(self) -> ClassicGroup:
        assert isinstance(self.group, ClassicGroup)
        return self.group

    def joins(self, member: MemberId, instance: str | None = None, **fields: object) -> Outcome:
        """A member of the new protocol joins."""
        operation = {"member": member, "epoch": 0, "timeout": 5000, "topics": ["t"], "owned": {}, "instance": instance}
        return self.heartbeat(operation | fields)

    def beats(self, member: MemberId, epoch: int, owned: set[int] | None = None) -> HeartbeatAnswer:
        answer = self.heartbeat(
            {"member": member, "epoch": epoch, "owned": None if owned is None else {T.hex(): owned}}
        ).answer
        assert isinstance(answer, HeartbeatAnswer)
        return answer

    def leaves(self, member: MemberId, instance: str | None = None) -> Outcome:
        return self.heartbeat({"member": member, "epoch": -1, "instance": instance})

    def classic_joins(
        self,
        member: MemberId,
        instance: str | None = None,
        *,
        metadata: bytes | None = None,
        protocols: tuple[str, ...] = ("range",),
        known: bool = False,
    ) -> tuple[JoinReply | None, Outcome]:
        """A JoinGroup of a classic member; the reply is None while it is parked."""
        self._tokens += 1
        if metadata is None:
            metadata = encode_subscription(Subscription((TopicName("t"),)))
        is_member = self.group is not None and member in self.group.members
        request = JoinRequest(
            GROUP,
            member if is_member else MemberId(""),
            member,
            instance,
            "client",
            "host",
            45_000,
            5000,
            "consumer",
            tuple(Protocol(name, metadata) for name in protocols),
            requires_known_member_id=known,
        )
        outcome = self.join(request, self._tokens)
        replies = [reply for token, reply in outcome.released if token == self._tokens]
        reply = replies[0] if replies else None
        assert reply is None or isinstance(reply, JoinReply)
        return reply, outcome

    def assigned(self, member: MemberId) -> set[int]:
        return set(self.consumer.members[member].assigned.get(T, {}))
