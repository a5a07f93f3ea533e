"""A member of the consumer protocol told a story by its coordinator."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import TopicName, TopicPartition
from oncelog.client.errors import BrokerRefused
from oncelog.client.machine.consumer_group import ConsumerGroupMember, State
from oncelog.client.machine.group import GroupSettings
from oncelog.wire.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)

T, AGAIN = b"t" * 16, b"T" * 16
"""The ids of topic t, and of another topic t after its deletion."""
P0, P1, P2 = (TopicPartition(TopicName("t"), index) for index in range(3))
INTERVAL_MS = 5_000


def answer(epoch: int, *partitions: int, topic: bytes = T, changed: bool = True) -> ConsumerGroupHeartbeatResponse:
    listed = [TopicPartitions(topic_id=topic, partitions=list(partitions))] if partitions else []
    return ConsumerGroupHeartbeatResponse(
        member_epoch=epoch,
        heartbeat_interval_ms=INTERVAL_MS,
        assignment=Assignment(topic_partitions=listed) if changed else None,
    )


def refusal(code: ErrorCode, message: str | None = None) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(error_code=code, error_message=message)


def request(member: ConsumerGroupMember, now_ms: int = 0) -> ConsumerGroupHeartbeatRequest:
    message = member.next_request(now_ms)
    assert message is not None
    return message


def listed(message: ConsumerGroupHeartbeatRequest) -> dict[bytes, list[int]] | None:
    owned = message.topic_partitions
    return None if owned is None else {topic.topic_id: topic.partitions for topic in owned}


def new_member(**settings: object) -> ConsumerGroupMember:
    return ConsumerGroupMember("g", ["t"], None, GroupSettings(**settings), "m")  # type: ignore[arg-type]  # by name


def holding(*partitions: int, **settings: object) -> ConsumerGroupMember:
    """A member in epoch 1 that owns ``partitions`` and has reported them."""
    member = new_member(**settings)
    request(member)
    member.answered(answer(1, *partitions), 0)
    member.learn({T: TopicName("t")})
    member.take(member.takeable)
    request(member)
    member.answered(answer(1, changed=False), 0)
    assert member.next_request(INTERVAL_MS - 1) is None
    return member


@pytest.mark.parametrize(("instance", "named"), [(None, None), ("i", "")])
def test_a_static_member_by_name_says_that_it_has_no_pattern(instance: str | None, named: str | None) -> None:
    """The coordinator keeps that of the instance's member before, as Apache Kafka does."""
    member = new_member(instance_id=instance)
    assert request(member).subscribed_topic_regex == named


def test_a_join_has_all_fields_and_later_heartbeats_what_changed() -> None:
    member = new_member(remote_assignor="range", rack_id="r", rebalance_timeout_ms=7_000)
    join = request(member)
    assert (join.member_id, join.member_epoch, join.rebalance_timeout_ms) == ("m", 0, 7_000)
    assert (join.subscribed_topic_names, join.server_assignor, join.rack_id, listed(join)) == (["t"], "range", "r", {})
    member.answered(answer(1, 0, 1), 0)
    assert (member.takeable, member.unnamed_topics) == ((), (T,))
    member.learn({T: TopicName("t")})
    assert member.takeable == (P0, P1)
    assert member.take([P0, P1, P2]) == (P0, P1)
    report = request(member)
    assert (report.member_epoch, listed(report), report.subscribed_topic_names) == (1, {T: [0, 1]}, None)
    assert (report.rebalance_timeout_ms, report.server_assignor, report.rack_id) == (-1, None, None)
    member.answered(answer(1, changed=False), 0)
    assert member.next_request(INTERVAL_MS - 1) is None
    assert listed(request(member, INTERVAL_MS)) is None
    assert member.is_settled


def test_after_a_lost_response_a_heartbeat_has_all_fields_at_once() -> None:
    member = holding(0)
    assert listed(request(member, INTERVAL_MS)) is None
    again = request(member, INTERVAL_MS)  # the first was not answered
    assert (listed(again), again.subscribed_topic_names, again.member_epoch) == ({T: [0]}, ["t"], 1)
    with pytest.raises(BrokerRefused):
        member.answered(refusal(ErrorCode.NOT_COORDINATOR), INTERVAL_MS)
    assert request(member, INTERVAL_MS).subscribed_topic_names == ["t"]


def test_partitions_are_reported_as_given_up_once_all_of_them_are() -> None:
    member = holding(0, 1, 2)
    request(member, INTERVAL_MS)
    member.answered(answer(1, 2), INTERVAL_MS)
    assert member.revocable == (P0, P1)
    assert member.next_request(INTERVAL_MS) is None
    member.release([P0])
    assert listed(request(member, 2 * INTERVAL_MS)) is None, "without a list the coordinator waits"
    member.answered(answer(1, changed=False), 2 * INTERVAL_MS)
    member.release([P1])
    assert listed(request(member, 2 * INTERVAL_MS)) == {T: [2]}


def test_a_target_that_changes_back_is_acknowledged() -> None:
    """The coordinator waits for a list without what it took back, even if the member never had it."""
    member = holding(0)
    request(member, INTERVAL_MS)
    member.answered(answer(2, 0, 1), INTERVAL_MS)
    request(member, INTERVAL_MS)
    member.answered(answer(2, 0), INTERVAL_MS)
    assert listed(request(member, INTERVAL_MS)) == {T: [0]}
    member.answered(answer(3, changed=False), INTERVAL_MS)
    assert member.next_request(INTERVAL_MS) is None


def test_nothing_is_taken_while_a_list_is_on_its_way() -> None:
    """The coordinator gives away at once what the list lacks."""
    member = holding(0)
    request(member, INTERVAL_MS)
    member.answered(answer(2, 0, 1), INTERVAL_MS)
    assert listed(request(member, INTERVAL_MS)) == {T: [0]}
    assert member.take([P1]) == ()
    member.answered(answer(3, 0), INTERVAL_MS)
    assert (member.takeable, member.revocable) == ((), ())


@pytest.mark.parametrize(
    "code", [ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.GROUP_ID_NOT_FOUND]
)
@pytest.mark.parametrize("by_commit", [False, True])
def test_a_member_that_is_none_gives_up_its_partitions_and_joins_again(code: ErrorCode, by_commit: bool) -> None:
    member = holding(0)
    request(member, INTERVAL_MS)
    if by_commit:
        member.refused(code)
        member.answered(answer(5, 1), INTERVAL_MS)  # of before: it changes nothing
    else:
        member.answered(refusal(code), INTERVAL_MS)
    assert (member.is_lost, member.revocable, member.state) == (True, (P0,), State.UNJOINED)
    assert (member.next_request(INTERVAL_MS), member.heartbeat_due_ms) == (None, None)
    member.release([P0])
    join = request(member, INTERVAL_MS)
    assert (member.is_lost, join.member_id, join.member_epoch, listed(join)) == (False, "m", 0, {})


def test_codes_that_a_join_cannot_mend_are_raised_with_the_brokers_words() -> None:
    codes = [
        ErrorCode.UNRELEASED_INSTANCE_ID,
        ErrorCode.UNSUPPORTED_ASSIGNOR,
        ErrorCode.INVALID_REGULAR_EXPRESSION,
        ErrorCode.GROUP_ID_NOT_FOUND,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.GROUP_MAX_SIZE_REACHED,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.UNSUPPORTED_VERSION,
    ]
    for code in codes:
        member = new_member()
        request(member)
        with pytest.raises(BrokerRefused, match="group 'g': because") as caught:
            member.answered(refusal(code, "because"), 0)
        assert caught.value.code == code
        assert request(member).member_epoch == 0, "the next poll tries again"


def test_topics_that_may_not_be_read_now_cost_no_partition() -> None:
    member = holding(0)
    request(member, INTERVAL_MS)
    with pytest.raises(BrokerRefused):
        member.answered(refusal(ErrorCode.TOPIC_AUTHORIZATION_FAILED), INTERVAL_MS)
    again = request(member, INTERVAL_MS)
    assert (again.member_epoch, listed(again), member.revocable) == (1, {T: [0]}, ())


def test_a_fenced_instance_loses_its_partitions_and_does_not_join_again() -> None:
    member = holding(0, instance_id="i")
    request(member, INTERVAL_MS)
    for _ in range(2):
        with pytest.raises(BrokerRefused, match="another member with the same instance id has taken over"):
            member.answered(refusal(ErrorCode.FENCED_INSTANCE_ID), INTERVAL_MS)
        member.release(member.revocable)
        again = request(member, INTERVAL_MS)
        assert (again.member_epoch, again.instance_id, listed(again)) == (1, "i", {})
        assert member.takeable == ()


@pytest.mark.parametrize(("instance", "epoch"), [(None, -1), ("i", -2)])
def test_a_member_leaves_and_a_static_one_keeps_its_place(instance: str | None, epoch: int) -> None:
    assert new_member(instance_id=instance).leave() is None
    member = holding(0, instance_id=instance)
    request(member, INTERVAL_MS)
    goodbye = member.leave()
    assert goodbye is not None
    assert (goodbye.member_epoch, goodbye.instance_id, goodbye.topic_partitions) == (epoch, instance, None)
    member.answered(answer(2, 1), INTERVAL_MS)
    assert (member.state, member.next_request(INTERVAL_MS), member.leave()) == (State.LEFT, None, None)


def test_a_busy_member_leaves_loses_its_partitions_and_comes_back() -> None:
    member = holding(0)
    goodbye = member.give_up()
    assert goodbye is not None
    assert (goodbye.member_epoch, member.is_lost) == (-1, True)
    member.release([P0])
    assert request(member).member_epoch == 0


def test_an_old_coordinator_makes_the_member_id() -> None:
    member = new_member()
    member.use_version(0)
    assert request(member).member_id == ""
    made = answer(1)
    made.member_id = "made"
    member.answered(made, 0)
    member.use_version(0)
    assert request(member).member_id == "made"


def test_an_empty_share_counts_after_a_heartbeat_that_left_it() -> None:
    member = holding()
    assert not member.is_settled
    request(member, INTERVAL_MS)
    member.answered(answer(1, changed=False), INTERVAL_MS)
    assert member.is_settled


def test_a_topic_created_again_is_another_topic() -> None:
    member = holding(0)
    request(member, INTERVAL_MS)
    member.answered(answer(2, 0, topic=AGAIN), INTERVAL_MS)
    member.learn({AGAIN: TopicName("t")})
    assert (member.revocable, member.takeable) == ((P0,), ())
    member.release([P0])
    assert member.take(member.takeable) == (P0,)
    assert listed(request(member, INTERVAL_MS)) == {AGAIN: [0]}


def test_an_interval_of_nothing_leaves_time_for_other_things() -> None:
    member = new_member()
    hurried = answer(1)
    hurried.heartbeat_interval_ms = 0
    turn: Callable[[int], ConsumerGroupHeartbeatRequest | None] = member.next_request
    assert turn(0) is not None
    member.answered(hurried, 0)
    assert turn(0) is not None  # the acknowledgement
    member.answered(ConsumerGroupHeartbeatResponse(member_epoch=1), 0)
    assert turn(0) is None


def test_a_start_position_is_too_old_after_the_partition_was_away() -> None:
    """Its number changes when it is assigned again, is lost, or may have been away during a lost response."""
    member = holding(0)
    request(member, INTERVAL_MS)
    member.answered(answer(2, 0, 1), INTERVAL_MS)
    numbers = [member.assigned_since(P1)]
    request(member, INTERVAL_MS)
    member.answered(answer(2, changed=False), INTERVAL_MS)
    assert member.assigned_since(P1) == numbers[0], "nothing has changed"
    for partitions in ([0], [0, 1]):
        member.heartbeat_soon()
        request(member, INTERVAL_MS)
        member.answered(answer(3, *partitions), INTERVAL_MS)
    numbers.append(member.assigned_since(P1))
    request(member, INTERVAL_MS)  # its response is lost
    request(member, INTERVAL_MS)
    member.answered(answer(3, 0, 1), INTERVAL_MS)
    numbers.append(member.assigned_since(P1))
    member.fence()
    assert (member.assigned_since(P1), len(set(numbers)), None in numbers) == (None, 3, False)
