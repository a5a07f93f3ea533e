"""A group member told a story by its coordinator, and the assignor it uses when it leads."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import TopicName, TopicPartition
from oncelog.client.errors import BrokerRefused
from oncelog.client.machine.assignor import (
    Subscriber,
    decode_member_assignment,
    member_assignment,
    member_subscription,
    range_assign,
)
from oncelog.client.machine.group import GroupMember, GroupSettings, State
from oncelog.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from oncelog.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse, JoinGroupResponseMember
from oncelog.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse

MINE = TopicPartition(TopicName("t"), 1)


def stable(member: GroupMember) -> GroupMember:
    """Follow another leader into generation 1."""
    assert isinstance(member.next_request(0), JoinGroupRequest)
    member.answered(JoinGroupResponse(error_code=ErrorCode.MEMBER_ID_REQUIRED, member_id="m"), 0)
    again = member.next_request(0)
    assert isinstance(again, JoinGroupRequest)
    assert again.member_id == "m"
    member.answered(JoinGroupResponse(generation_id=1, member_id="m", leader="other"), 0)
    assert isinstance(member.next_request(0), SyncGroupRequest)
    member.answered(SyncGroupResponse(assignment=member_assignment([MINE])), 0)
    assert member.state is State.STABLE
    return member


def new_member(**settings: object) -> GroupMember:
    return GroupMember("g", ["t"], GroupSettings(**settings))  # type: ignore[arg-type]  # fields by name


def test_a_follower_takes_what_it_is_given_and_heartbeats_when_due() -> None:
    member = stable(new_member(heartbeat_interval_ms=100))
    assert member.assignment == (MINE,)
    assert member.next_request(99) is None
    assert isinstance(member.next_request(100), HeartbeatRequest)
    member.answered(HeartbeatResponse(), 100)
    assert member.next_request(199) is None


def test_the_leader_assigns_for_everybody() -> None:
    member = new_member()
    members = [JoinGroupResponseMember(member_id=name, metadata=member_subscription(["t"])) for name in ("a", "b")]
    member.answered(JoinGroupResponse(generation_id=1, member_id="a", leader="a", members=members), 0)
    assert member.state is State.ASSIGNING
    assert member.next_request(0) is None
    assert member.topics_to_assign() == ["t"]
    member.assign({"t": 3})
    request = member.next_request(0)
    assert isinstance(request, SyncGroupRequest)
    shares = {
        assignment.member_id: decode_member_assignment(assignment.assignment) for assignment in request.assignments
    }
    assert {name: [p.partition for p in share] for name, share in shares.items()} == {"a": [0, 1], "b": [2]}


def test_a_rebalance_voids_the_assignment_and_keeps_the_member_id() -> None:
    member = stable(new_member())
    member.answered(HeartbeatResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS), 0)
    assert member.assignment == ()
    request = member.next_request(0)
    assert isinstance(request, JoinGroupRequest)
    assert request.member_id == "m"


def test_whoever_is_called_to_a_rebalance_may_stay_alive_before_joining() -> None:
    member = stable(new_member(heartbeat_interval_ms=100))
    assert member.keep_alive(1000) is None
    member.answered(HeartbeatResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS), 100)
    assert member.keep_alive(199) is None
    request = member.keep_alive(200)
    assert isinstance(request, HeartbeatRequest)
    assert (request.generation_id, request.member_id) == (1, "m")
    member.answered(HeartbeatResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID), 200)
    assert member.keep_alive(1000) is None


def test_an_evicted_member_joins_as_a_new_one() -> None:
    member = stable(new_member())
    member.refused(ErrorCode.UNKNOWN_MEMBER_ID)
    request = member.next_request(0)
    assert isinstance(request, JoinGroupRequest)
    assert (request.member_id, member.generation) == ("", -1)


def test_a_coordinator_that_is_loading_is_asked_again_by_the_caller() -> None:
    member = new_member()
    with pytest.raises(BrokerRefused) as caught:
        member.answered(JoinGroupResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS), 0)
    assert caught.value.code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert isinstance(member.next_request(0), JoinGroupRequest)


def test_a_static_member_does_not_leave() -> None:
    assert stable(new_member()).leave() is not None
    assert stable(new_member(instance_id="i")).leave() is None
    assert new_member().leave() is None


@given(st.integers(1, 6), st.dictionaries(st.sampled_from("tuv"), st.integers(0, 9), min_size=1))
def test_every_partition_goes_to_exactly_one_subscriber(members: int, counts: dict[str, int]) -> None:
    subscribers = [Subscriber(f"m{number}", None, frozenset(counts)) for number in range(members)]
    shares = range_assign(subscribers, counts)
    given_out = sorted(p for share in shares.values() for p in share)
    assert given_out == [TopicPartition(TopicName(t), i) for t in sorted(counts) for i in range(counts[t])]
    for topic in counts:
        sizes = [sum(p.topic == topic for p in share) for share in shares.values()]
        assert max(sizes) - min(sizes) <= 1


def test_static_members_come_first_by_instance_id() -> None:
    topics = frozenset("t")
    subscribers = [Subscriber("a", None, topics), Subscriber("z", "i2", topics), Subscriber("y", "i9", topics)]
    shares = range_assign(subscribers, {"t": 4})
    assert {name: [p.partition for p in share] for name, share in shares.items()} == {"z": [0, 1], "y": [2], "a": [3]}
