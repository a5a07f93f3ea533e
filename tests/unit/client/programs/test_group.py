"""A member's requests to its coordinator, by both drivers and in virtual time."""

from __future__ import annotations

import pytest

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import TopicName, TopicPartition
from oncelog.client.errors import BrokerRefused, ConnectionLost, UnknownTopic
from oncelog.client.machine.assigned_partitions import AssignedPartitions
from oncelog.client.machine.group import GroupMember, GroupSettings, State
from oncelog.client.machine.offsets import Committed
from oncelog.client.programs.classic_member import ClassicMemberPrograms
from oncelog.client.programs.group import commit_offsets, committed_offsets
from oncelog.client.programs.log_offsets import offsets_at
from oncelog.wire.messages.find_coordinator import FindCoordinatorRequest
from oncelog.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from oncelog.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse, JoinGroupResponseMember
from oncelog.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
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
from oncelog.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from tests.unit.client.programs.fake_answers import COORDINATOR, coordinated
from tests.unit.client.programs.fake_brokers import CONFIG, FakeBrokers, Runner
from tests.unit.client.programs.fake_brokers import runner as runner

T0, T1 = (TopicPartition(TopicName("t"), index) for index in range(2))


class Coordinator:
    """The answers of a coordinator to the one member of a group."""

    def __init__(self, brokers: FakeBrokers) -> None:
        self.offsets: dict[int, int] = {}
        self.commit_codes: list[int] = []
        self.share = b""
        self.left = 0
        brokers.leaders["t"] = {0: 1, 1: 3}
        coordinated(brokers)
        brokers.answers |= {
            JoinGroupRequest: self._join,
            SyncGroupRequest: self._sync,
            HeartbeatRequest: lambda *_: HeartbeatResponse(),
            LeaveGroupRequest: self._leave,
            OffsetCommitRequest: self._commit,
            OffsetFetchRequest: self._fetch,
            ListOffsetsRequest: self._list,
        }

    def _join(self, _: int, message: JoinGroupRequest) -> JoinGroupResponse:
        member = JoinGroupResponseMember(member_id="m", metadata=message.protocols[0].metadata)
        return JoinGroupResponse(generation_id=1, leader="m", member_id="m", members=[member])

    def _sync(self, _: int, message: SyncGroupRequest) -> SyncGroupResponse:
        return SyncGroupResponse(assignment=message.assignments[0].assignment)

    def _leave(self, *_: object) -> LeaveGroupResponse:
        self.left += 1
        return LeaveGroupResponse()

    def _commit(self, _: int, message: OffsetCommitRequest) -> OffsetCommitResponse:
        code = self.commit_codes.pop(0) if self.commit_codes else 0
        parts = [part for topic in message.topics for part in topic.partitions]
        if not code:
            self.offsets |= {part.partition_index: part.committed_offset for part in parts}
        answers = [
            OffsetCommitResponsePartition(partition_index=part.partition_index, error_code=code) for part in parts
        ]
        return OffsetCommitResponse(topics=[OffsetCommitResponseTopic(name="t", partitions=answers)])

    def _fetch(self, _: int, message: OffsetFetchRequest) -> OffsetFetchResponse:
        parts = [
            OffsetFetchResponsePartitions(partition_index=index, committed_offset=offset)
            for index, offset in self.offsets.items()
        ]
        topics = [OffsetFetchResponseTopics(name="t", partitions=parts)]
        return OffsetFetchResponse(groups=[OffsetFetchResponseGroup(group_id="g", topics=topics)])

    def _list(self, broker: int, message: ListOffsetsRequest) -> ListOffsetsResponse:
        topics = [
            ListOffsetsTopicResponse(
                name=topic.name,
                partitions=[
                    ListOffsetsPartitionResponse(partition_index=part.partition_index, offset=100 * broker)
                    for part in topic.partitions
                ],
            )
            for topic in message.topics
        ]
        return ListOffsetsResponse(topics=topics)


def test_a_response_without_a_partition_that_was_asked_for_is_an_error(runner: Runner) -> None:
    Coordinator(runner.brokers)
    runner.brokers.answers[ListOffsetsRequest] = lambda *_: ListOffsetsResponse()
    with pytest.raises(BrokerRefused, match=r"offsets of t-[01]: the leader's response does not have the partition"):
        runner.run(offsets_at(runner.cluster, {T0: -1, T1: -1}))


def joined(runner: Runner) -> ClassicMemberPrograms:
    """The programs of a member that has joined and holds both partitions."""
    member = GroupMember("g", ["t"], GroupSettings())
    assigned = AssignedPartitions("g", None, "earliest", runner.now_ms())
    programs = runner.within(lambda: ClassicMemberPrograms(runner.cluster, member, assigned, False))
    while (request := member.next_request(runner.now_ms())) is not None:
        runner.run(programs.exchange(request))
    assert (member.state, member.assignment) == (State.STABLE, (T0, T1))
    assigned.assign(member.assignment, member.generation, member.member_id)
    return programs


def test_a_member_joins_over_a_connection_of_its_own_and_begins_where_it_should(runner: Runner) -> None:
    coordinator = Coordinator(runner.brokers)
    coordinator.offsets = {0: 5}
    programs = joined(runner)
    assert set(runner.brokers.asked(JoinGroupRequest) + runner.brokers.asked(SyncGroupRequest)) == {COORDINATOR}
    assert runner.run(programs.start_positions((T0, T1))) == {T0: 5, T1: 300}
    assert runner.run(programs.reset_positions(T0)) == {T0: 100}
    runner.run(programs.leave())
    programs.close()
    assert coordinator.left == 1


def test_a_leader_that_could_not_look_topics_up_assigns_with_the_next_call(runner: Runner) -> None:
    Coordinator(runner.brokers)
    member = GroupMember("g", ["t"], GroupSettings())
    assigned = AssignedPartitions("g", None, "earliest", runner.now_ms())
    programs = runner.within(lambda: ClassicMemberPrograms(runner.cluster, member, assigned, False))
    runner.run(runner.cluster.coordinator("g"))
    runner.run(programs.check_topics())
    runner.run(runner.cluster.link(COORDINATOR))
    runner.brokers.metadata_error = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    with pytest.raises(BrokerRefused):
        runner.run(programs.exchange(member.next_request(runner.now_ms())))
    assert (member.state, member.next_request(runner.now_ms())) == (State.ASSIGNING, None)
    runner.brokers.metadata_error = 0
    runner.run(programs.exchange(None))
    assert member.state is State.SYNCING


def test_a_lost_coordinator_is_looked_up_and_connected_again(runner: Runner) -> None:
    Coordinator(runner.brokers)
    programs = joined(runner)
    before = len(runner.brokers.asked(FindCoordinatorRequest))
    failures = [ConnectionLost("the connection broke")]

    def heartbeat(*_: object) -> HeartbeatResponse:
        if failures:
            raise failures.pop()
        return HeartbeatResponse()

    runner.brokers.answers[HeartbeatRequest] = heartbeat
    runner.run(programs.exchange(programs.member.next_request(runner.now_ms() + 10_000)))
    assert len(runner.brokers.asked(FindCoordinatorRequest)) == before + 1
    assert programs.member.state is State.STABLE


def test_a_topic_that_has_grown_calls_for_a_rebalance(runner: Runner) -> None:
    Coordinator(runner.brokers)
    programs = joined(runner)
    runner.brokers.leaders["t"][2] = 1
    runner.run(programs.check_topics())
    assert programs.member.state is State.STABLE  # it is not time yet
    programs.topics_due_ms = runner.now_ms()
    runner.run(programs.check_topics())
    assert programs.member.state is State.UNJOINED


def test_a_commit_is_done_refused_or_made_again(runner: Runner) -> None:
    coordinator = Coordinator(runner.brokers)
    programs = joined(runner)
    programs.assigned.processed(T0, 3)
    assert runner.run(programs.commit())
    assert (coordinator.offsets, programs.assigned.has_uncommitted) == ({0: 3}, False)

    programs.assigned.processed(T0, 4)
    coordinator.commit_codes = [ErrorCode.GROUP_AUTHORIZATION_FAILED]
    with pytest.raises(BrokerRefused):
        runner.run(programs.commit())
    assert programs.assigned.has_uncommitted
    assert runner.run(programs.commit())
    assert coordinator.offsets == {0: 4}

    programs.assigned.processed(T0, 5)
    coordinator.commit_codes = [ErrorCode.ILLEGAL_GENERATION]
    assert not runner.run(programs.commit())
    assert (programs.member.state, programs.assigned.has_uncommitted) == (State.UNJOINED, False)


def test_a_commit_of_a_deleted_topic_is_given_up_soon(runner: Runner) -> None:
    coordinator = Coordinator(runner.brokers)
    coordinator.commit_codes = [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 1_000
    before_ms = runner.now_ms()
    with pytest.raises(UnknownTopic, match="commit of group 'g' in t-1: does not exist"):
        runner.run(commit_offsets(runner.cluster, "g", {T1: Committed(8)}))
    assert runner.now_ms() - before_ms < 2 * CONFIG.unknown_topic_grace_ms


def test_offsets_of_a_group_are_written_and_read(runner: Runner) -> None:
    coordinator = Coordinator(runner.brokers)
    coordinator.commit_codes = [ErrorCode.NOT_COORDINATOR]
    runner.run(commit_offsets(runner.cluster, "g", {T1: Committed(8)}))
    assert len(runner.brokers.asked(FindCoordinatorRequest)) == 2
    assert runner.run(committed_offsets(runner.cluster, "g")) == {T1: Committed(8)}
    runner.run(commit_offsets(runner.cluster, "g", {}))
    assert len(runner.brokers.asked(OffsetCommitRequest)) == 2
