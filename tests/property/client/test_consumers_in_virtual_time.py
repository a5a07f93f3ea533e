"""Asyncio consumers of one group beside the pure coordinator: nothing is lost, and no offset goes back.

The brokers are fakes in virtual time: responses are delayed or lost, connections break, the coordinator moves and
forgets what it has not written, consumers die, return, and work longer than they may.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import MemberId, TopicId, TopicName, TopicPartition
from oncelog.client.aio.group import AsyncGroupConsumer
from oncelog.client.errors import ClientError, ConnectionLost
from oncelog.client.machine.consumed_records import read_fetched
from oncelog.client.machine.group import GroupSettings
from oncelog.client.machine.positions import FetchSettings
from oncelog.core.groups.consumer.offset_checks import check_commit, check_fetch
from oncelog.core.groups.modern.group import Refused
from oncelog.records.builder import build_batch
from oncelog.records.record import Record
from oncelog.wire.message import Request
from oncelog.wire.message import Response as ResponseMessage
from oncelog.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse
from oncelog.wire.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from oncelog.wire.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from oncelog.wire.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from oncelog.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from oncelog.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from tests.property.client.core_coordinator import CoreCoordinator
from tests.unit.client.programs.fake_brokers import AsyncRunner, FakeBrokers

PARTITIONS, RECORDS, BATCH = 6, 200, 10
TOPIC_ID = b"t".ljust(16)
QUIET_S, END_S = 60, 400
BATCHES = {
    first: bytes(build_batch([Record(-1, 0, None, b"%d" % n) for n in range(first, first + BATCH)], base_offset=first))
    for first in range(0, RECORDS, BATCH)
}
Answer = Callable[[int, Any], ResponseMessage | None]


class World:
    """One topic, one group and its consumers, drawn by a seed."""

    def __init__(self, seed: int) -> None:
        self.entropy = random.Random(seed)
        self.brokers = FakeBrokers()
        self.brokers.leaders["t"] = {index: index % 3 + 1 for index in range(PARTITIONS)}
        self.runner = AsyncRunner(self.brokers)
        # The fake clients have no chance, and so one member id.
        self.runner.cluster.environment.jitter = self.entropy.randint  # type: ignore[method-assign]  # see above
        self.coordinator = CoreCoordinator({"t": (TOPIC_ID.hex(), PARTITIONS)}, self.entropy.choice([0, 1000]))
        self.coordinating = 1
        self.written = 0
        """Records in each partition by now."""
        self.committed: dict[int, int] = {}
        self.seen: Counter[tuple[int, int]] = Counter()
        self.owners: dict[str, AsyncGroupConsumer] = {}
        self.faults = True
        self.broken: list[str] = []
        """Broken rules: an error in an answer would only end a client's task."""
        answers: dict[type[Request[Any]], Answer] = {
            FindCoordinatorRequest: self._find,
            ConsumerGroupHeartbeatRequest: self._heartbeat,
            OffsetCommitRequest: self._commit,
            OffsetFetchRequest: self._fetch_offsets,
            ListOffsetsRequest: self._list_offsets,
            FetchRequest: self._fetch,
        }
        self.brokers.answers |= {kind: self._disturbed(answer) for kind, answer in answers.items()}

    async def run(self) -> None:
        consumers = [asyncio.create_task(self._live(f"c{number}")) for number in range(3)]
        async with asyncio.timeout(END_S):
            while self._now_s() < QUIET_S:
                self.written = min(RECORDS, self.written + BATCH * self.entropy.randint(0, 1))
                if self.entropy.random() < 0.1:
                    self.coordinating = self.entropy.randint(1, 3)
                    self.coordinator.restart()
                await asyncio.sleep(0.5)
            self.faults, self.written = False, RECORDS
            while self.committed != dict.fromkeys(range(PARTITIONS), RECORDS):
                assert not any(consumer.done() for consumer in consumers), consumers
                await asyncio.sleep(0.5)
        for consumer in consumers:
            consumer.cancel()
        await asyncio.gather(*consumers, return_exceptions=True)
        assert self.broken == []
        assert len(self.seen) == PARTITIONS * RECORDS, "every record was read"

    async def _live(self, name: str) -> None:
        lives = 0
        while True:
            lives += 1
            with contextlib.suppress(ClientError):
                await self._consume(f"{name}.{lives}")

    async def _consume(self, name: str) -> None:
        entropy = self.entropy
        settings = GroupSettings(
            rebalance_timeout_ms=2_000, instance_id=name.split(".")[0] if name.startswith("c0") else None
        )
        consumer = AsyncGroupConsumer(
            self.runner.client,
            "g",
            ["t"],
            protocol="consumer",
            settings=settings,
            fetch=FetchSettings(max_wait_ms=100),
        )
        self.owners[name] = consumer
        try:
            while not self.faults or entropy.random() > 0.005:
                for fetched in await self._poll(consumer):
                    for record in read_fetched(fetched):
                        self.seen[fetched.partition.partition, record.offset] += 1
                    consumer.processed(fetched.partition, fetched.next_offset)
                if self.faults and entropy.random() < 0.01:
                    await asyncio.sleep(entropy.choice([1, 4, 8]))
        finally:
            del self.owners[name]
            await consumer.close(commit=entropy.random() < 0.5)

    async def _poll(self, consumer: AsyncGroupConsumer) -> list[Any]:
        """Poll, at times with too little patience."""
        poll = asyncio.create_task(consumer.poll(self.entropy.choice([20, 200])))
        if self.faults and self.entropy.random() < 0.2:
            await asyncio.wait([poll], timeout=self.entropy.choice([0.0, 0.005, 0.05]))
            poll.cancel()
        return [] if (await asyncio.wait([poll]))[0] and poll.cancelled() else poll.result()

    def _now_s(self) -> float:
        return self.runner.now_ms() / 1000

    def _disturbed(self, answer: Answer) -> Answer:
        def disturbed(broker: int, message: Any) -> ResponseMessage | None:
            self.coordinator.now_ms = self.runner.now_ms() + 1_000
            self.coordinator.expire()
            self._check_owners()
            fault = self.entropy.random() if self.faults else 1.0
            self.brokers.slow_ms[broker] = self.entropy.choice([0, 0, 50, 700]) if self.faults else 0
            if fault < 0.01:
                raise ConnectionLost("before it arrived")
            response = answer(broker, message)
            if fault < 0.02:
                raise ConnectionLost("before its response arrived")
            return None if fault < 0.03 else response

        return disturbed

    def _check_owners(self) -> None:
        """A partition has at most one consumer whose commit would be accepted."""
        group = self.coordinator.group
        owners: Counter[TopicPartition] = Counter()
        for consumer in self.owners.values():
            held = consumer.group_metadata
            member = None if group is None else group.members.get(MemberId(held.member_id))
            if member is not None and member.epoch == held.generation:
                owners.update(consumer.assignment)
        if any(count > 1 for count in owners.values()):
            self.broken.append(f"two owners: {owners}")

    def _find(self, _: int, message: FindCoordinatorRequest) -> FindCoordinatorResponse:
        return FindCoordinatorResponse(
            coordinators=[Coordinator(key=key, node_id=self.coordinating) for key in message.coordinator_keys]
        )

    def _heartbeat(self, broker: int, message: ConsumerGroupHeartbeatRequest) -> ConsumerGroupHeartbeatResponse:
        if broker != self.coordinating:
            return ConsumerGroupHeartbeatResponse(error_code=ErrorCode.NOT_COORDINATOR)
        return self.coordinator.answer(message)

    def _commit(self, broker: int, message: OffsetCommitRequest) -> OffsetCommitResponse:
        group = self.coordinator.group
        answers: list[OffsetCommitResponsePartition] = []
        code, check = ErrorCode.NOT_COORDINATOR if broker != self.coordinating else ErrorCode.NONE, None
        if group is None:
            code = code or ErrorCode.GROUP_ID_NOT_FOUND
        else:
            epoch = message.generation_id_or_member_epoch
            try:
                check = check_commit(
                    group, MemberId(message.member_id), message.group_instance_id, epoch, knows_epochs=True
                )
            except Refused as refused:
                code = code or refused.code
        for partition in message.topics[0].partitions:
            index, offset = partition.partition_index, partition.committed_offset
            refusal = code or (check(TopicName("t"), TopicId(TOPIC_ID), index) if check else ErrorCode.NONE)
            if not refusal:
                if offset < self.committed.get(index, 0):
                    self.broken.append(f"the offset of {index} goes back to {offset}: {self.committed}")
                self.committed[index] = offset
            answers.append(OffsetCommitResponsePartition(partition_index=index, error_code=refusal))
        return OffsetCommitResponse(topics=[OffsetCommitResponseTopic(name="t", partitions=answers)])

    def _fetch_offsets(self, broker: int, message: OffsetFetchRequest) -> OffsetFetchResponse:
        requests, group = message.groups[0], self.coordinator.group
        code = ErrorCode.NOT_COORDINATOR if broker != self.coordinating else ErrorCode.NONE
        if not code and group is not None:
            try:
                check_fetch(
                    group, None if requests.member_id is None else MemberId(requests.member_id), requests.member_epoch
                )
            except Refused as refused:
                code = refused.code
        partitions = [
            OffsetFetchResponsePartitions(partition_index=index, committed_offset=self.committed.get(index, -1))
            for topic in requests.topics or ()
            for index in topic.partition_indexes
        ]
        topics = [] if code else [OffsetFetchResponseTopics(name="t", partitions=partitions)]
        return OffsetFetchResponse(groups=[OffsetFetchResponseGroup(group_id="g", error_code=code, topics=topics)])

    def _list_offsets(self, _: int, message: ListOffsetsRequest) -> ListOffsetsResponse:
        starts = [
            ListOffsetsPartitionResponse(partition_index=part.partition_index, offset=0)
            for part in message.topics[0].partitions
        ]
        return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="t", partitions=starts)])

    def _fetch(self, _: int, message: FetchRequest) -> FetchResponse:
        partitions = [
            PartitionData(
                partition_index=part.partition,
                high_watermark=self.written,
                records=BATCHES[part.fetch_offset // BATCH * BATCH] if part.fetch_offset < self.written else b"",
            )
            for part in message.topics[0].partitions
        ]
        topics = [FetchableTopicResponse(topic="t", topic_id=TOPIC_ID, partitions=partitions)]
        return FetchResponse(responses=topics)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
def test_every_record_is_read_and_no_offset_goes_back(seed: int) -> None:
    world = World(seed)
    try:
        world.runner.loop.run(world.run())
        assert world.runner.loop.failures == []
    finally:
        world.runner.loop.end()
