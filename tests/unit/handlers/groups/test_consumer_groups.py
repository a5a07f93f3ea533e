"""ConsumerGroupHeartbeat and ConsumerGroupDescribe on one shard; causes and messages are those of Apache Kafka."""

from __future__ import annotations

from typing import Any

import pytest

from oncelog.base.errors import ErrorCode as E
from oncelog.base.ids import CONSUMER_OFFSETS, GroupId, MemberId
from oncelog.core.configs.broker import BrokerConfig
from oncelog.core.groups.consumer.group import ConsumerGroup
from oncelog.core.groups.consumer.heartbeat import ConsumerHeartbeat
from oncelog.core.groups.consumer.regular_expressions import RESOLUTION_TIMEOUT_MS
from oncelog.core.groups.consumer.settings import group_limits
from oncelog.handlers.api import Operation
from oncelog.wire.messages import heartbeat as classic
from oncelog.wire.messages import leave_group as lg
from oncelog.wire.messages import sync_group as sg
from oncelog.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from oncelog.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions
from oncelog.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from tests.scenario.groups.driver import replayed, subscription
from tests.unit.handlers.groups.bench import T_ID, U_ID, Bench, image, topic

JOIN: dict[str, Any] = {
    "member_id": "a",
    "rebalance_timeout_ms": 60_000,
    "subscribed_topic_names": ["t"],
    "topic_partitions": [],
}


@pytest.fixture
def bench() -> Bench:
    return Bench()


def beat(bench: Bench, version: int = 1, **fields: Any) -> Any:
    fields = {"group_id": "g", "topic_partitions": None, **fields}
    return bench.ask(ConsumerGroupHeartbeatRequest(**fields), version)


def join(bench: Bench, member_id: str = "a", **fields: Any) -> Any:
    return beat(bench, **{**JOIN, "member_id": member_id, **fields})


def own(bench: Bench, member_id: str, epoch: int, owned: dict[bytes, list[int]], **fields: Any) -> Any:
    parts = [TopicPartitions(topic_id=topic_id, partitions=partitions) for topic_id, partitions in owned.items()]
    return beat(bench, member_id=member_id, member_epoch=epoch, topic_partitions=parts, **fields)


def partitions(answer: Any) -> dict[bytes, list[int]] | None:
    if answer.assignment is None:
        return None
    return {part.topic_id: part.partitions for part in answer.assignment.topic_partitions}


def describe(bench: Bench, version: int = 1, group: str = "g") -> Any:
    (described,) = bench.ask(ConsumerGroupDescribeRequest(group_ids=[group]), version).groups
    return described


def group_of(bench: Bench, group: str = "g") -> Any:
    return bench.driver.shard._groups.get(GroupId(group))


def test_the_first_member_gets_all_partitions_in_epoch_2(bench: Bench) -> None:
    answer = join(bench)
    assert (answer.error_code, answer.member_id, answer.member_epoch) == (E.NONE, "a", 2)
    assert answer.heartbeat_interval_ms == 5000
    assert partitions(answer) == {T_ID: [0, 1]}
    assert partitions(beat(bench, member_id="a", member_epoch=2)) is None


def test_a_partition_moves_when_its_owner_has_given_it_up(bench: Bench) -> None:
    join(bench)
    bench.driver.advance(1000)
    second = join(bench, "b")
    assert (second.member_epoch, partitions(second)) == (3, {})
    revoking = own(bench, "a", 2, {T_ID: [0, 1]})
    kept = partitions(revoking)
    assert revoking.member_epoch == 2
    assert kept is not None
    assert len(kept[T_ID]) == 1
    assert own(bench, "a", 2, kept).member_epoch == 3
    gained = partitions(own(bench, "b", 3, {}))
    assert gained == {T_ID: [index for index in (0, 1) if index not in kept[T_ID]]}
    assert describe(bench).group_state == "Stable"


def test_each_rise_of_the_group_epoch_counts_as_a_rebalance(bench: Bench) -> None:
    rebalances = bench.driver.rebalances
    join(bench)
    assert rebalances == {"consumer": 1}
    beat(bench, member_id="a", member_epoch=2)
    assert rebalances == {"consumer": 1}
    bench.driver.refuse_appends = True
    join(bench, "b")
    assert rebalances == {"consumer": 1}, "it is not in the log"
    join(bench, "b", subscribed_topic_names=[], subscribed_topic_regex="u")
    assert rebalances == {"consumer": 2}, "once its expression has been matched"
    beat(bench, member_id="b", member_epoch=-1)
    assert rebalances == {"consumer": 3}
    assert replayed(bench.driver.log)._applied._rebalances == {}, "a load counts none"


def test_a_member_that_keeps_a_partition_is_fenced_after_its_rebalance_timeout(bench: Bench) -> None:
    join(bench, rebalance_timeout_ms=5000)
    bench.driver.advance(1000)
    join(bench, "b")
    own(bench, "a", 2, {T_ID: [0, 1]})
    bench.driver.advance(5000)
    assert beat(bench, member_id="a", member_epoch=2).error_code == E.UNKNOWN_MEMBER_ID
    assert partitions(own(bench, "b", 3, {})) == {T_ID: [0, 1]}


def test_a_silent_member_is_removed_after_the_session_timeout(bench: Bench) -> None:
    join(bench)
    bench.driver.advance(44_999)
    assert beat(bench, member_id="a", member_epoch=2).error_code == E.NONE
    bench.driver.advance(45_000)
    assert describe(bench).group_state == "Empty"


def test_a_loaded_shard_starts_all_sessions_anew(bench: Bench) -> None:
    join(bench)
    shard = replayed(bench.driver.log)
    group = shard._groups[GroupId("g")]
    assert isinstance(group, ConsumerGroup)
    assert list(group.members) == ["a"]
    assert group.owner(T_ID, 1) == "a"


def test_leaving_frees_partitions_and_ends_an_empty_group_with_its_deletion(bench: Bench) -> None:
    join(bench)
    left = beat(bench, member_id="a", member_epoch=-1)
    assert (left.error_code, left.member_epoch, left.heartbeat_interval_ms) == (E.NONE, -1, 0)
    assert describe(bench).members == []
    bench.driver.carry_out(bench.driver.shard.delete_group(GroupId("g"), 0, 0))
    assert describe(bench).error_code == E.GROUP_ID_NOT_FOUND


def test_a_static_member_comes_back_under_another_id(bench: Bench) -> None:
    join(bench, instance_id="i")
    assert join(bench, "b", instance_id="i").error_code == E.UNRELEASED_INSTANCE_ID
    assert beat(bench, member_id="a", member_epoch=-2, instance_id="i").member_epoch == -2
    back = join(bench, "b", instance_id="i")
    assert partitions(back) == {T_ID: [0, 1]}
    assert beat(bench, member_id="a", member_epoch=2, instance_id="i").error_code == E.FENCED_INSTANCE_ID


def test_an_expression_finds_the_topics_that_the_member_may_describe(bench: Bench) -> None:
    bench.authoriser.denied.add((Operation.DESCRIBE, "u"))
    answer = join(bench, subscribed_topic_names=None, subscribed_topic_regex="t|u")
    assert partitions(answer) == {}
    bench.driver.advance(1000)
    result = beat(bench, member_id="a", member_epoch=answer.member_epoch)
    assert partitions(result) == {T_ID: [0, 1]}
    bench.authoriser.denied.clear()
    assert group_of(bench).resolved("t|u").topics == {"t"}


def test_a_new_topic_is_found_at_the_next_heartbeat(bench: Bench) -> None:
    answer = join(bench, subscribed_topic_names=None, subscribed_topic_regex=".")
    bench.driver.advance(11_000)
    answer = own(bench, "a", answer.member_epoch, {})
    assert partitions(answer) == {T_ID: [0, 1], U_ID: [0]}
    bench.image = image(
        *bench.image.topics.values(),
        topic("v", b"v" * 16, 1),
    )
    own(bench, "a", answer.member_epoch, {T_ID: [0, 1], U_ID: [0]})
    bench.driver.advance(1000)
    result = beat(bench, member_id="a", member_epoch=answer.member_epoch)
    assert partitions(result) == {T_ID: [0, 1], U_ID: [0], b"v" * 16: [0]}


def test_more_partitions_are_assigned(bench: Bench) -> None:
    epoch = join(bench).member_epoch
    others = [kept for name, kept in bench.image.topics.items() if name != "t"]
    bench.image = image(topic("t", T_ID, 3), *others)
    bench.driver.advance(1000)
    assert partitions(beat(bench, member_id="a", member_epoch=epoch)) == {T_ID: [0, 1, 2]}


INVALID = [
    ({"member_id": ""}, "MemberId can't be empty."),
    ({"group_id": ""}, "GroupId can't be empty."),
    ({"instance_id": ""}, "InstanceId can't be empty."),
    ({"rack_id": ""}, "RackId can't be empty."),
    ({"rack_id": " \0\t"}, "RackId can't be empty."),
    ({"rebalance_timeout_ms": -1}, "RebalanceTimeoutMs must be provided in first request."),
    ({"topic_partitions": None}, "TopicPartitions must be empty when (re-)joining."),
    (
        {"subscribed_topic_names": None},
        "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.",
    ),
    ({"member_epoch": -2}, "InstanceId can't be null."),
    ({"member_epoch": -3}, "MemberEpoch is invalid."),
]


@pytest.mark.parametrize(("fields", "message"), INVALID)
def test_invalid_requests_are_told_why(bench: Bench, fields: dict[str, Any], message: str) -> None:
    answer = join(bench, **{"member_id": "a", **fields})
    assert (answer.error_code, answer.error_message) == (E.INVALID_REQUEST, message)


def test_space_of_unicode_is_no_blank_id(bench: Bench) -> None:
    assert join(bench, "\u2028", rack_id="\u00a0").error_code == E.NONE


def test_version_0_gets_a_member_id(bench: Bench) -> None:
    answer = beat(bench, 0, **{**JOIN, "member_id": ""})
    assert answer.error_code == E.NONE
    assert len(answer.member_id) == 22


def test_other_refusals(bench: Bench) -> None:
    unknown = beat(bench, member_id="a", member_epoch=1)
    assert (unknown.error_code, unknown.error_message) == (E.GROUP_ID_NOT_FOUND, "Consumer group g not found.")
    assert join(bench, server_assignor="x").error_message == (
        "ServerAssignor x is not supported. Supported assignors: uniform, range."
    )
    bad = join(bench, subscribed_topic_regex="(")
    assert bad.error_code == E.INVALID_REGULAR_EXPRESSION
    join(bench)
    assert beat(bench, member_id="a", member_epoch=7).error_code == E.FENCED_MEMBER_EPOCH
    bench.authoriser.denied = {(Operation.DESCRIBE, "t")}
    assert join(bench).error_code == E.TOPIC_AUTHORIZATION_FAILED
    assert describe(bench).error_code == E.TOPIC_AUTHORIZATION_FAILED
    assert describe(bench).members == []
    bench.authoriser.denied = {(Operation.READ, "g"), (Operation.DESCRIBE, "g")}
    assert join(bench).error_code == E.GROUP_AUTHORIZATION_FAILED
    assert describe(bench).error_code == E.GROUP_AUTHORIZATION_FAILED


def test_the_protocol_may_be_disabled(bench: Bench) -> None:
    bench.config = BrokerConfig({"group.coordinator.rebalance.protocols": "classic"})
    assert join(bench).error_code == E.UNSUPPORTED_VERSION
    assert describe(bench).error_code == E.UNSUPPORTED_VERSION


def test_an_assignor_that_is_no_longer_configured_is_replaced_by_the_default(bench: Bench) -> None:
    join(bench, server_assignor="range")
    bench.config = BrokerConfig({"group.consumer.assignors": "uniform"})
    bench.driver.shard.limits_of = bench.driver.shard._consumers._limits_of = lambda group_id: group_limits(
        group_id, bench.config, {}, lambda _: None
    )
    bench.driver.advance(1000)
    assert join(bench, "b").member_epoch == 3
    assert describe(bench).assignor_name == "uniform"


def test_topics_that_could_not_be_appended_are_matched_again_after_a_while(bench: Bench) -> None:
    resolved: list[str] = []
    request = {"subscribed_topic_names": None, "subscribed_topic_regex": "t"}
    regexes_resolved = bench.driver.shard.regexes_resolved

    def refused(*arguments: Any) -> Any:
        resolved.append("")
        bench.driver.refuse_appends = len(resolved) == 1
        return regexes_resolved(*arguments)

    bench.driver.shard.regexes_resolved = refused  # type: ignore[method-assign]
    epoch = join(bench, **request).member_epoch
    for _ in range(2):
        beat(bench, member_id="a", member_epoch=epoch)
    assert len(resolved) == 1
    bench.driver.advance(RESOLUTION_TIMEOUT_MS)
    beat(bench, member_id="a", member_epoch=epoch)
    assert group_of(bench).resolved("t").topics == {"t"}


def test_a_failed_append_changes_nothing(bench: Bench) -> None:
    join(bench)
    bench.driver.advance(1000)
    bench.driver.refuse_appends = True
    assert join(bench, "b").error_code == E.COORDINATOR_NOT_AVAILABLE
    assert list(group_of(bench).members) == ["a"]
    assert join(bench, "b").member_epoch == 3


@pytest.mark.parametrize("timeouts", [{}, {"rebalance_timeout_ms": 5000}])
def test_a_removal_that_could_not_be_appended_is_repeated(bench: Bench, timeouts: dict[str, int]) -> None:
    join(bench, **timeouts)
    if timeouts:
        bench.driver.advance(1000)
        join(bench, "b")
        own(bench, "a", 2, {T_ID: [0, 1]})
        bench.driver.advance(4_999)
    else:
        bench.driver.advance(44_999)
    bench.driver.refuse_appends = True
    bench.driver.advance(500)
    assert "a" in group_of(bench).members
    bench.driver.advance(1)
    assert "a" not in group_of(bench).members


def test_expressions_are_resolved_again_when_a_resolution_was_lost(bench: Bench) -> None:
    request = ConsumerHeartbeat(GroupId("g"), MemberId("a"), 0, rebalance_timeout_ms=1000, regex="t", owned={})
    token = bench.driver.token()
    # The records were durable too late for the member's answer: no handler asks a worker.
    decision = bench.driver.shard.consumer_heartbeat(request, token, bench.driver.now_ms)
    epoch = bench.driver.carry_out(decision, token).answer.epoch
    bench.driver.advance(RESOLUTION_TIMEOUT_MS - 1)
    assert beat(bench, member_id="a", member_epoch=epoch).error_code == E.NONE
    assert group_of(bench).regexes == {}
    bench.driver.advance(1)
    assert beat(bench, member_id="a", member_epoch=epoch).error_code == E.NONE
    assert group_of(bench).resolved("t").topics == {"t"}


def test_members_are_described(bench: Bench) -> None:
    join(bench)
    group = describe(bench)
    assert (group.group_state, group.group_epoch, group.assignment_epoch, group.assignor_name) == (
        "Stable",
        2,
        2,
        "uniform",
    )
    (member,) = group.members
    assert (member.member_id, member.member_epoch, member.member_type) == ("a", 2, 1)
    assert member.subscribed_topic_names == ["t"]
    (assigned,) = member.assignment.topic_partitions
    assert (assigned.topic_name, assigned.partitions) == ("t", [0, 1])
    assert member.target_assignment == member.assignment


def test_a_classic_group_is_no_consumer_group(bench: Bench) -> None:
    bench.stable()
    described = describe(bench)
    assert (described.error_code, described.error_message) == (E.GROUP_ID_NOT_FOUND, "Group g is not a consumer group.")


def test_an_empty_classic_group_is_replaced_and_its_offsets_stay(bench: Bench) -> None:
    member_id = bench.stable()
    bench.ask(lg.LeaveGroupRequest(group_id="g", members=[lg.MemberIdentity(member_id=member_id)]), 5)
    assert join(bench).error_code == E.NONE
    assert isinstance(group_of(bench), ConsumerGroup)


def test_classic_members_stay_when_a_group_is_upgraded_and_downgraded(bench: Bench) -> None:
    member_id = bench.join().member_id
    bench.join(member_id)
    metadata = bytes.fromhex("0000 0000 0000 0000 0000".replace(" ", ""))
    assigned = [sg.SyncGroupRequestAssignment(member_id=member_id, assignment=metadata)]
    bench.ask(sg.SyncGroupRequest(group_id="g", generation_id=1, member_id=member_id, assignments=assigned), 4)
    assert join(bench, "b").error_code == E.NONE
    group = group_of(bench)
    assert isinstance(group, ConsumerGroup)
    assert set(group.members) == {member_id, "b"}
    beat_classic = classic.HeartbeatRequest(group_id="g", generation_id=1, member_id=member_id)
    assert bench.ask(beat_classic, 4).error_code == E.REBALANCE_IN_PROGRESS
    rejoined = bench.join(member_id)
    assert rejoined.error_code == E.NONE
    synced = bench.ask(sg.SyncGroupRequest(group_id="g", generation_id=rejoined.generation_id, member_id=member_id), 4)
    assert synced.error_code == E.NONE
    assert beat(bench, member_id="b", member_epoch=-1).error_code == E.NONE
    assert not isinstance(group_of(bench), ConsumerGroup)
    assert set(group_of(bench).members) == {member_id}
    assert describe(bench).error_code == E.GROUP_ID_NOT_FOUND
    assert bench.driver.rebalances == {"classic": 1, "consumer": 1}, "neither conversion counts by itself"


def test_a_refused_classic_member_gets_no_id(bench: Bench) -> None:
    """Apache Kafka's ConsumerProtocolMigrationTest compares the whole response."""
    join(bench)
    bench.join("b", version=3)
    other = JoinGroupRequest(
        group_id="g",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=20_000,
        member_id="c",
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="sticky", metadata=subscription("t"))],
    )
    refused = JoinGroupResponse(error_code=E.INCONSISTENT_GROUP_PROTOCOL, protocol_name=None)
    assert bench.ask(other, 9) == refused


def test_an_empty_consumer_group_becomes_classic(bench: Bench) -> None:
    join(bench)
    beat(bench, member_id="a", member_epoch=-1)
    assert bench.join().error_code == E.MEMBER_ID_REQUIRED
    assert not isinstance(group_of(bench), ConsumerGroup)


def test_a_refused_join_or_append_keeps_an_empty_consumer_group(bench: Bench) -> None:
    join(bench)
    beat(bench, member_id="a", member_epoch=-1)
    assert bench.join("stranger").error_code == E.UNKNOWN_MEMBER_ID
    assert isinstance(group_of(bench), ConsumerGroup)
    bench.driver.refuse_appends = True
    bench.join()
    assert isinstance(group_of(bench), ConsumerGroup)


def test_any_prefix_of_the_log_loads(bench: Bench) -> None:
    join(bench)
    bench.driver.advance(1000)
    join(bench, "b", subscribed_topic_regex="u")
    own(bench, "a", 2, {T_ID: [0, 1]})
    beat(bench, member_id="b", member_epoch=-1)
    log = bench.driver.log
    for length in range(len(log) + 1):
        for first in (0, length // 2):
            replayed(log[first:length]).check()
    assert CONSUMER_OFFSETS in bench.image.topics
