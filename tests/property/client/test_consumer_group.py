"""Members of the consumer protocol beside the pure coordinator, in virtual time, with lost requests and responses.

Rules checked at every step: a partition has at most one owner whose commit the coordinator would accept, and a request
is one that a broker takes. In the end, without faults, every partition has one owner, as the coordinator says.
"""

from __future__ import annotations

import random
from collections import Counter

import pytest

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import MemberId, TopicName, TopicPartition
from oncelog.client.errors import BrokerRefused
from oncelog.client.machine.consumer_group import ConsumerGroupMember, State
from oncelog.client.machine.group import GroupSettings
from oncelog.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse
from tests.property.client.core_coordinator import CoreCoordinator

STEPS = 400
Answer = tuple[int, ConsumerGroupHeartbeatResponse | None]
"""When a response arrives; None: it is lost, and the client's time is up."""


class Client:
    """A member, and the consumer that owns its partitions."""

    def __init__(self, member: ConsumerGroupMember) -> None:
        self.member = member
        self.answer: Answer | None = None
        self.is_dead = False


class History:
    """A group and its clients, drawn by a seed."""

    def __init__(self, seed: int) -> None:
        self.entropy = random.Random(seed)
        self.topics = {f"t{index}": (bytes([index + 1] * 16).hex(), self.entropy.randint(1, 5)) for index in range(2)}
        self.coordinator = CoreCoordinator(self.topics, self.entropy.choice([0, 1000]))
        self.clients: list[Client] = []
        self.number = 0
        self.faults = True

    def run(self) -> None:
        for _ in range(STEPS):
            self.coordinator.now_ms += self.entropy.choice([1, 20, 100, 400])
            self._disturb()
            self._step_all()
        self.faults = False
        if not any(not client.is_dead for client in self.clients):
            self._add_client()
        for _ in range(STEPS):
            self.coordinator.now_ms += 100
            self._step_all()
        self._check_end()

    def _disturb(self) -> None:
        match self.entropy.randrange(60):
            case 0 | 1 | 2 if len(self.clients) < 6:
                self._add_client()
            case 3 if self.clients:
                self.entropy.choice(self.clients).is_dead = True
            case 4 if self.clients:
                client = self.entropy.choice(self.clients)
                self._send(client, client.member.leave())
                client.is_dead = True
            case 5:
                name = self.entropy.choice([*self.topics, f"t{len(self.topics)}"])
                topic_id, count = self.topics.get(name, (bytes([len(self.topics) + 1] * 16).hex(), 0))
                self.topics = {**self.topics, name: (topic_id, count + 1)}
                self.coordinator.change_topics(self.topics)
            case 6 if self.entropy.random() < 0.3:
                self.coordinator.group = None  # deleted under its members
            case 7 if self.clients:
                client = self.entropy.choice(self.clients)
                client.member.give_up()

    def _add_client(self) -> None:
        self.number += 1
        name = f"m{self.number}"
        topics = ["t0", "t1", "t2", "t3"]
        settings = GroupSettings(instance_id=name if self.entropy.random() < 0.3 else None)
        self.clients.append(Client(ConsumerGroupMember("g", topics, None, settings, name)))

    def _step_all(self) -> None:
        self.coordinator.expire()
        self.clients = [client for client in self.clients if not client.is_dead]
        for client in self.clients:
            if not self.faults or self.entropy.random() < 0.7:
                self._own(client)
            self._talk(client)
            self._check()

    def _own(self, client: Client) -> None:
        """Release, learn and take, as slowly as a busy consumer does."""
        member = client.member
        if member.revocable:
            member.release(self.entropy.sample(member.revocable, self.entropy.randint(1, len(member.revocable))))
        elif member.unnamed_topics:
            names = {bytes.fromhex(topic_id): TopicName(name) for name, (topic_id, _) in self.topics.items()}
            member.learn({topic_id: names[topic_id] for topic_id in member.unnamed_topics[:1]})
        elif member.takeable:
            member.take(self.entropy.sample(member.takeable, self.entropy.randint(1, len(member.takeable))))

    def _talk(self, client: Client) -> None:
        member, now_ms = client.member, self.coordinator.now_ms
        if client.answer is not None:
            arrives_ms, response = client.answer
            if arrives_ms > now_ms:
                return
            client.answer = None
            if response is not None:
                try:
                    member.answered(response, now_ms)
                except BrokerRefused as refused:
                    assert refused.code == ErrorCode.UNRELEASED_INSTANCE_ID, refused  # noqa: PT017
        request = member.next_request(now_ms)
        if request is not None:
            self._send(client, request)

    def _send(self, client: Client, request: ConsumerGroupHeartbeatRequest | None) -> None:
        if request is None:
            return
        _check_request(request)
        fault = self.entropy.random() if self.faults else 1.0
        delay_ms = self.entropy.choice([1, 50, 700]) if self.faults else 1
        response = None if fault < 0.05 else self.coordinator.answer(request)
        client.answer = self.coordinator.now_ms + delay_ms, None if fault < 0.1 else response

    def _check(self) -> None:
        members = {} if self.coordinator.group is None else self.coordinator.group.members
        owners: Counter[TopicPartition] = Counter()
        for client in self.clients:
            known = members.get(MemberId(client.member.member_id))
            if known is not None and known.epoch == client.member.epoch and not client.member.is_lost:
                owners.update(list(client.member.owned))
        assert all(count == 1 for count in owners.values()), owners

    def _check_end(self) -> None:
        group = self.coordinator.group
        assert group is not None
        owned = Counter(partition for client in self.clients for partition in client.member.owned)
        every = {TopicPartition(TopicName(name), p) for name, (_, count) in self.topics.items() for p in range(count)}
        assert owned == Counter({p for p in every if p.topic in {"t0", "t1", "t2", "t3"}})
        for client in self.clients:
            assert client.member.state is State.JOINED
            assert client.member.is_settled
            assert client.member.epoch == group.members[MemberId(client.member.member_id)].epoch == group.epoch


def _check_request(request: ConsumerGroupHeartbeatRequest) -> None:
    if request.member_epoch == 0:
        assert request.rebalance_timeout_ms > 0
        assert request.topic_partitions == []
        assert request.subscribed_topic_names
    assert request.member_id


@pytest.mark.parametrize("seed", range(8))
def test_a_partition_has_one_owner_and_in_the_end_every_partition_has(seed: int) -> None:
    History(seed).run()
