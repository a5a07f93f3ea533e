"""Hand-made members of a group, which commit offsets when they must not."""

# After they left, were removed or replaced, for a partition that is theirs no longer, or under another member's id.
# Every such commit must be refused, and a refused commit must have no effect: the member fetches the offset afterwards
# (W16). Its own requests are those of a correct member, if a slow one.

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Final, NamedTuple

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import Offset, TopicName, TopicPartition
from oncelog.client.aio.client import ANY, AsyncClient
from oncelog.client.aio.link import AsyncLink
from oncelog.client.errors import BrokerRefused
from oncelog.client.machine.offsets import LAST_VERSION_BY_NAME, Committed, Membership, offset_commit_request
from oncelog.client.programs.group import committed_offsets
from oncelog.sim.virtual.world import ClientHost
from oncelog.sim.workloads.kit.requests import has_several_brokers
from oncelog.sim.workloads.kit.workload import PASSING, WorkloadContext
from oncelog.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from oncelog.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)

JOINING_EPOCH: Final = 0
LEAVING_EPOCH: Final = -1
LEAVING_STATIC_EPOCH: Final = -2
REBALANCE_TIMEOUT_MS: Final = 6_000
# More than the session time-out of these groups.
SILENCE_MS: Final = 7_000
# No member gets that far in a run.
FUTURE_EPOCHS: Final = 1_000
_REFUSED: Final = frozenset(
    {
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.STALE_MEMBER_EPOCH,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.GROUP_ID_NOT_FOUND,
        # A broker that has not heard of an added partition yet.
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)
_REMOVED: Final = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.GROUP_ID_NOT_FOUND})
_CHANGED_COORDINATOR: Final = frozenset({ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE})


class _Identity(NamedTuple):
    member_id: str
    epoch: int
    instance_id: str | None = None


class FormerMember:
    # A program's memberships, one after another.

    def __init__(
        self,
        context: WorkloadContext,
        host: ClientHost,
        client: AsyncClient,
        group: str,
        topic: str,
        entropy: random.Random,
    ) -> None:
        self._context = context
        self._host = host
        self._client = client
        self._group = group
        self._topic = topic
        self._entropy = entropy
        self._topic_id = bytes(16)
        self._lives = 0
        self._commits = 0

    async def join_and_commit(self, left_ms: int, instance_id: str | None) -> None:
        # Be a member for a while, and commit afterwards; ``left_ms``: the latest end. Raises ClientError.
        self._topic_id = (await self._client.topic(self._topic)).topic_id
        membership = _HandMade(self, self._next_id(), instance_id)
        if await membership.join():
            until_ms = self._host.now_ms + self._entropy.randint(200, max(300, min(left_ms, 5_000)))
            while self._host.now_ms < until_ms and await membership.step():
                await self._host.pause(self._entropy, 700)
            await self._end(membership)
        if self._entropy.random() < 0.3:
            await self._commit_as_another()

    async def _end(self, membership: _HandMade) -> None:
        if not membership.is_member:
            await self.commit(membership.identity)
            return
        before, way = membership.identity, self._entropy.random()
        if way < 0.15:
            await self._host.sleep(SILENCE_MS)
            while await membership.step():
                await self._host.sleep(SILENCE_MS)
            await self.commit(before)
        elif way < 0.9:
            is_static = before.instance_id is not None
            if await membership.leave(LEAVING_STATIC_EPOCH if is_static else LEAVING_EPOCH) and is_static:
                # The instance comes back under another member id.
                successor = _HandMade(self, self._next_id(), before.instance_id)
                if not await successor.join():
                    return
                await self.commit(before)
                await self._host.pause(self._entropy, 1_000)
                before = successor.identity
                await successor.leave(LEAVING_EPOCH)
            await self.commit(before)

    def _next_id(self) -> str:
        self._lives += 1
        return f"{self._host.name}/{self._lives}"

    async def _commit_as_another(self) -> None:
        # A commit of a future epoch under the id of a live member.
        link = await self.link()
        response = (await link.call(ConsumerGroupDescribeRequest(group_ids=[self._group]))).groups[0]
        if response.members:
            member = self._entropy.choice(response.members)
            await self.commit(_Identity(member.member_id, member.member_epoch + FUTURE_EPOCHS))

    async def commit(self, identity: _Identity, partitions: Iterable[int] = ()) -> None:
        # Commit what must be refused, and fetch the offset. Raises ClientError.
        index = self._entropy.choice(sorted(partitions) or [0])
        partition = TopicPartition(TopicName(self._topic), index)
        self._commits += 1
        # Once a member goes back to the beginning, once far beyond every record.
        offset = Offset(self._entropy.choice((0, 10**9 + self._commits)))
        member = Membership(identity.epoch, identity.member_id, identity.instance_id)
        request = offset_commit_request(self._group, {partition: Committed(offset)}, member)
        response = await (await self.link()).call(request, LAST_VERSION_BY_NAME)
        code = response.topics[0].partitions[0].error_code
        self._context.expect(f"OffsetCommit of the former member {identity}", code, _REFUSED)
        self._raise_if_moved(code)
        await committed_offsets(self._client, self._group, [partition], require_stable=True)

    async def heartbeat(
        self, identity: _Identity, owned: Iterable[int] | None = None, *, joins: bool = False
    ) -> ConsumerGroupHeartbeatResponse:
        # Raises ClientError, also for errors that may pass.
        partitions = None if owned is None else sorted(owned)
        listed = None
        if partitions is not None:
            listed = [TopicPartitions(topic_id=self._topic_id, partitions=partitions)] if partitions else []
        request = ConsumerGroupHeartbeatRequest(
            group_id=self._group,
            member_id=identity.member_id,
            member_epoch=identity.epoch,
            instance_id=identity.instance_id,
            rebalance_timeout_ms=REBALANCE_TIMEOUT_MS if joins else -1,
            subscribed_topic_names=[self._topic] if joins else None,
            subscribed_topic_regex="" if joins else None,
            topic_partitions=listed,
        )
        response = await (await self.link()).call(request)
        self._raise_if_moved(response.error_code)
        return response

    def partitions_in(self, response: ConsumerGroupHeartbeatResponse) -> set[int] | None:
        # The assigned partitions of the topic; None if the response has no assignment.
        if response.assignment is None:
            return None
        topics = response.assignment.topic_partitions
        return {index for topic in topics if topic.topic_id == self._topic_id for index in topic.partitions}

    async def link(self) -> AsyncLink:
        # A link to the group's coordinator.
        client = self._client
        broker = await client.coordinator(self._group) if has_several_brokers(client) else ANY
        return await client.link(broker)

    def _raise_if_moved(self, code: int) -> None:
        if code in _CHANGED_COORDINATOR:
            self._client.forget_coordinator(self._group)
        if code in PASSING:
            raise BrokerRefused(code, f"group {self._group!r}")

    def draws(self, probability: float) -> bool:
        return self._entropy.random() < probability


class _HandMade:
    # One membership. It takes what it is assigned, and gives it up after a while.

    def __init__(self, program: FormerMember, member_id: str, instance_id: str | None) -> None:
        self.identity = _Identity(member_id, JOINING_EPOCH, instance_id)
        self.is_member = False
        self._program = program
        self._owned: set[int] = set()
        self._assigned: set[int] = set()

    async def join(self) -> bool:
        # Returns False if the group does not want it.
        self.identity = self.identity._replace(epoch=JOINING_EPOCH)
        self._owned, self._assigned = set(), set()
        response = await self._program.heartbeat(self.identity, (), joins=True)
        self.is_member = not response.error_code
        if self.is_member:
            self._follow(response)
        return self.is_member

    async def step(self) -> bool:
        # A heartbeat, mostly with the owned partitions. Returns False after the end of the membership.
        program, before = self._program, self.identity
        if program.draws(0.2):
            response = await program.heartbeat(before)
            lost: set[int] = set()
        else:
            # Partitions that others wait for are given up late.
            lost = self._owned - self._assigned if program.draws(0.4) else set()
            if lost or self._owned <= self._assigned:
                self._owned = set(self._assigned)
            response = await program.heartbeat(before, self._owned)
        if response.error_code:
            self.is_member = False
            return response.error_code not in _REMOVED and await self.join()
        self._follow(response)
        lost -= self._assigned
        if lost and self.identity.epoch > before.epoch:
            # The partition is this member's no longer: the epoch before is too old for it.
            await program.commit(before, lost)
        return True

    async def leave(self, epoch: int) -> bool:
        response = await self._program.heartbeat(self.identity._replace(epoch=epoch))
        self.is_member = False
        return not response.error_code

    def _follow(self, response: ConsumerGroupHeartbeatResponse) -> None:
        self.identity = self.identity._replace(epoch=response.member_epoch)
        assigned = self._program.partitions_in(response)
        if assigned is not None:
            self._assigned = assigned
