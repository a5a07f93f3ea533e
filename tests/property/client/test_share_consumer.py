"""Share consumers beside fake leaders in virtual time: lost requests and answers, lost sessions, moved leaders, closes.

The leaders refuse what Apache Kafka refuses. Rules checked: an acknowledgement has exactly one result; a record whose
acceptance succeeded is never delivered again; a delivery count rises; in the end, without faults, every record is
accepted, no session is open and nothing is locked.
"""

from __future__ import annotations

import contextlib
import random
from typing import Any

import pytest

from oncelog.base.errors import ErrorCode
from oncelog.client.errors import BrokerRefused, ClientError, OutOfTurn
from oncelog.client.machine.share.values import Acknowledge, ShareRecord, ShareSettings
from oncelog.wire.messages.share_acknowledge import ShareAcknowledgeRequest
from oncelog.wire.messages.share_fetch import ShareFetchRequest
from tests.unit.client.programs.fake_brokers import BlockingRunner, FakeBrokers
from tests.unit.client.programs.fake_share_group import LOCK_MS, FakeShareGroup
from tests.unit.client.programs.test_share_consumer import Consumer

STEPS = 120
PARTITIONS = 3
KINDS = (Acknowledge.ACCEPT, Acknowledge.ACCEPT, Acknowledge.RELEASE, Acknowledge.RENEW, Acknowledge.REJECT)
At = tuple[int, int]
"""Partition and offset."""


class Member:
    """A consumer, and the records that its caller has and has not acknowledged."""

    def __init__(self, brokers: FakeBrokers, settings: ShareSettings) -> None:
        self.consumer = Consumer(BlockingRunner(brokers), settings)
        self.held: dict[At, ShareRecord] = {}
        self.deliveries: dict[At, int] = {}
        self.awaited: dict[tuple[At, Acknowledge], int] = {}
        """Acknowledgements without a result yet."""


class History:
    def __init__(self, seed: int) -> None:
        self.entropy = random.Random(seed)
        self.brokers = FakeBrokers()
        self.group = FakeShareGroup(self.brokers, PARTITIONS)
        self.members: list[Member] = []
        self.done: dict[At, int] = {}
        """By accepted record: the most deliveries then. A moved leader may have delivered it to others meanwhile."""

    def run(self) -> None:
        for _ in range(STEPS):
            self._disturb()
            if not self.members:
                self._add()
            self._step(self.entropy.choice(self.members))
        self._calm()
        while self.members:
            self._close(self.members[0])
        assert not self.group.sessions
        last = Member(self.brokers, ShareSettings(acknowledgement="explicit"))
        self.members.append(last)
        for _ in range(40):
            for record in self._poll(last, 1_000):
                self._acknowledge(last, record, Acknowledge.ACCEPT)
            self._commit(last)
        self._close(last)
        states = {state for index in range(PARTITIONS) for state in self.group.states(index)}
        assert states <= {"accepted", "rejected"}
        assert not self.group.sessions

    def _calm(self) -> None:
        self.group.lost.clear()
        self.group.ignored.clear()
        self.group.fetch_codes.clear()
        self.group.acknowledge_codes.clear()

    def _disturb(self) -> None:
        entropy, group = self.entropy, self.group
        match entropy.randrange(16):
            case 0 | 1 | 2:
                group.append(entropy.randrange(PARTITIONS), entropy.randint(1, 5))
            case 3:
                group.lost.add(entropy.choice([ShareFetchRequest, ShareAcknowledgeRequest]))
            case 4:
                group.ignored.add(entropy.choice([ShareFetchRequest, ShareAcknowledgeRequest]))
            case 5:
                group.fetch_codes.append(
                    entropy.choice([ErrorCode.SHARE_SESSION_NOT_FOUND, ErrorCode.INVALID_SHARE_SESSION_EPOCH])
                )
            case 6:
                group.acknowledge_codes.append(
                    entropy.choice([ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.INVALID_RECORD_STATE])
                )
            case 7:
                self._move_leader(entropy.randrange(PARTITIONS))
            case 8:
                group.epochs.clear()
                group.told.clear()
            case 9:
                self.brokers.now_ms += entropy.choice([10, 1_000, LOCK_MS])
            case 10 if self.members:
                self._close(entropy.choice(self.members))
            case 11 if len(self.members) < 3:
                self._add()
            case 12:
                group.sessions.clear()  # the locks stay

    def _add(self) -> None:
        acquire: Any = self.entropy.choice(["batch_optimized", "record_limit"])
        settings = ShareSettings(
            acknowledgement="explicit", acquire=acquire, max_records=self.entropy.randint(1, 4), max_wait_ms=100
        )
        self.members.append(Member(self.brokers, settings))

    def _move_leader(self, index: int) -> None:
        self.brokers.leaders["t"][index] = self.entropy.randint(1, 3)
        for (_, partition, _), record in self.group.records.items():
            if partition == index and record.state == "acquired":
                record.state = "available"

    def _step(self, member: Member) -> None:
        for record in self._poll(member, self.entropy.choice([0, 50, 300])):
            at = record.partition, record.offset
            assert record.delivery_count <= self.done.get(at, record.delivery_count)
        for at in list(member.held):
            if self.entropy.random() < 0.6:
                kind = self.entropy.choice(
                    [Acknowledge.ACCEPT, Acknowledge.ACCEPT, Acknowledge.RELEASE, Acknowledge.RENEW]
                )
                self._acknowledge(member, member.held[at], kind)
        if self.entropy.random() < 0.4:
            self._commit(member)

    def _poll(self, member: Member, wait_ms: int) -> list[ShareRecord]:
        try:
            records = member.consumer.poll(wait_ms)
        except ClientError:
            return []
        for record in records:
            at = record.partition, record.offset
            assert record.delivery_count > member.deliveries.get(at, 0)
            member.deliveries[at] = record.delivery_count
            member.held[at] = record
        self._results(member)
        return records

    def _acknowledge(self, member: Member, record: ShareRecord, kind: Acknowledge) -> None:
        at = record.partition, record.offset
        try:
            member.consumer.acknowledge(record, kind)
        except OutOfTurn:
            member.held.pop(at)
            return
        if kind is not Acknowledge.RENEW:
            member.held.pop(at)
            member.awaited[at, kind] = member.awaited.get((at, kind), 0) + 1

    def _commit(self, member: Member) -> None:
        for _ in range(5):
            # Failures in a row that clocks far apart saw are an error: the caller tries again.
            with contextlib.suppress(BrokerRefused):
                member.consumer.programs.results += member.consumer.commit(60_000)
                break
        self._results(member)
        assert not member.awaited

    def _results(self, member: Member) -> None:
        for result in member.consumer._take_results():
            for offset in range(result.first_offset, result.last_offset + 1):
                at = result.partition.partition, offset
                if result.kind is Acknowledge.RENEW:
                    continue
                member.awaited[at, result.kind] -= 1
                if not member.awaited[at, result.kind]:
                    del member.awaited[at, result.kind]
                if result.error is None and result.kind is Acknowledge.ACCEPT:
                    self.done[at] = self.group.records["t", *at].deliveries

    def _close(self, member: Member) -> None:
        self.members.remove(member)
        member.consumer.programs.results += member.consumer.close()
        self._results(member)
        assert not member.awaited
        for broker in self.brokers.addresses:
            self.group.disconnect(broker, member.consumer.member_id)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(30))
def test_no_acknowledgement_is_lost_and_no_accepted_record_comes_again(seed: int) -> None:
    History(seed).run()
