"""The causes of groups of the consumer protocol (KIP-848), from facts alone."""

from __future__ import annotations

from dataclasses import replace

import pytest

from oncelog.admin.explain.consumer_group_facts import (
    ASSIGNORS,
    LOOK_AGAIN_MS,
    MAX_BATCH,
    MIGRATION_POLICY,
    SESSION_TIMEOUT,
    ConsumerGroupFacts,
    consumer_group_facts,
    look_again,
    upgrade_obstacles,
)
from oncelog.admin.explain.consumer_group_history import EpochChange, EpochHistory, MemberChange, MemberProgress
from oncelog.admin.explain.findings import Cause, Finding, Severity
from oncelog.admin.explain.group_causes import group_findings
from oncelog.admin.explain.group_facts import Denied, GroupFacts
from oncelog.admin.explain.group_history import Commit, Generation, GroupHistory
from oncelog.admin.explain.partition_facts import PartitionFacts
from oncelog.admin.explain.subscription_causes import open_questions
from oncelog.admin.group_descriptions import GroupDescription, MemberRow
from oncelog.admin.transactions.partition_offsets import Bounds
from oncelog.base.errors import ErrorCode
from oncelog.base.ids import TopicName, TopicPartition
from oncelog.records.internal.consumer_group_records import MemberValue, RegexValue
from oncelog.records.internal.consumer_protocol import Assignment, Subscription, encode_assignment, encode_subscription
from oncelog.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse
from oncelog.wire.messages.consumer_group_describe import DescribedGroup as DescribedConsumerGroup
from oncelog.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from oncelog.wire.messages.describe_groups import DescribedGroup, DescribedGroupMember
from tests.unit.client.programs.fake_answers import coordinated
from tests.unit.client.programs.fake_brokers import Runner
from tests.unit.client.programs.fake_brokers import runner as runner

NOW = 1_800_000_000_000
SECOND, MINUTE = 1000, 60_000
A, B = TopicPartition(TopicName("t"), 0), TopicPartition(TopicName("t"), 1)
UNREVOKED = 1


def member(name: str, has: tuple[TopicPartition, ...] = (), target: tuple[TopicPartition, ...] = ()) -> MemberRow:
    return MemberRow(f"m-{name}", None, name, "/10.0.0.7", has, "consumer", epoch=4, target=target)


HOLDER, WAITING = member("holder", (A, B), (A,)), member("waiting", (), (B,))


def facts(*members: MemberRow, state: str = "Reconciling", **history: object) -> GroupFacts:
    """A group at epoch 5 that has read t-0 to its end and has 100 offsets left in t-1."""
    described = GroupDescription("g", state, "consumer", "consumer", "uniform", 1, list(members), 5, 5)
    partition = PartitionFacts(A, leader=1, replicas=(1,), isr=(1,), log_start=0, bounds=Bounds(200, 200))
    made = GroupFacts(
        described, NOW, {A: 200, B: 100}, {A: partition, B: replace(partition, partition=B)}, GroupHistory(NOW - MINUTE)
    )
    made.history = GroupHistory(NOW - 15 * MINUTE, {B: [Commit(0, NOW - 2000), Commit(100, NOW - 1000)]})
    made.history.epochs = EpochHistory(**history)  # type: ignore[arg-type]  # the fields of a test
    return made


def subscription(assignor: str | None = None) -> MemberValue:
    return MemberValue(None, None, "app", "/10.0.0.7", ("t",), "", 5 * MINUTE, assignor)


def the(given: GroupFacts, cause: Cause) -> Finding:
    [finding] = [finding for finding in group_findings(given) if finding.cause is cause]
    return finding


def causes(given: GroupFacts) -> set[Cause]:
    return {finding.cause for finding in group_findings(given)}


def test_a_member_that_was_told_and_does_not_let_go() -> None:
    given = facts(
        HOLDER,
        WAITING,
        targets=[EpochChange(5, NOW - MINUTE)],
        progress={"m-holder": MemberProgress(4, UNREVOKED, NOW - 40 * SECOND)},
        subscriptions={"m-holder": subscription()},
    )
    told = the(given, Cause.HOLDS_PARTITIONS)
    assert (told.severity, told.since_ms, told.about) == (Severity.STUCK, NOW - 40 * SECOND, "member holder")
    assert told.sentences[0] == (
        "Member 'holder' on 10.0.0.7 has t-1, which the target assignment (epoch 5) gives to others: t-1 to member "
        "'waiting' on 10.0.0.7."
    )
    assert "told it, and it has not confirmed" in told.sentences[1]
    assert told.affected == ["member 'waiting' on 10.0.0.7 (t-1)"]
    assert "at about 2027-01-15 08:04:20 UTC, by its rebalance time-out of 5 min" in told.clears
    assert the(given, Cause.RECONCILING).since_ms == NOW - MINUTE


def test_a_member_that_has_not_heard_of_the_target_is_slow_or_dead() -> None:
    stable = {"m-holder": MemberProgress(4, 0, NOW - 5 * MINUTE)}
    given = facts(HOLDER, WAITING, targets=[EpochChange(5, NOW - 10 * SECOND)], progress=stable)
    told = the(given, Cause.HOLDS_PARTITIONS)
    assert (told.severity, told.since_ms) == (Severity.RISK, NOW - 10 * SECOND)
    assert "sent no heartbeat since that target was made" in told.sentences[1]
    assert "session" in told.clears


def test_without_the_log_two_looks_tell_whether_it_lasts() -> None:
    given = facts(HOLDER, WAITING)
    given.history = None
    given.consumer = ConsumerGroupFacts(earlier=given.description)
    told = the(given, Cause.HOLDS_PARTITIONS)
    assert (told.severity, told.since_ms) == (Severity.RISK, None)
    assert told.sentences[1].startswith("Either it has sent no heartbeat")
    assert told.sentences[2] == "It had to give them up 6 s before, too."
    given.consumer.earlier = replace(given.description, members=[replace(HOLDER, target=(A, B))])
    assert "may be an ordinary change" in the(given, Cause.HOLDS_PARTITIONS).sentences[2]


def test_a_classic_member_holds_up_a_mixed_group_until_it_joins_again() -> None:
    given = facts(replace(HOLDER, member_type="classic"), WAITING, targets=[EpochChange(5, NOW - MINUTE)])
    told = the(given, Cause.CLASSIC_MEMBER_HOLDS_UP)
    assert (told.severity, told.since_ms) == (Severity.STUCK, NOW - MINUTE)
    assert "its heartbeat tells it to join again" in told.sentences[1]
    assert Cause.HOLDS_PARTITIONS not in causes(given)


def test_partitions_that_are_free_are_held_by_nobody() -> None:
    assert causes(facts(replace(HOLDER, partitions=(A,)), WAITING)) == {Cause.RECONCILING}


def test_a_static_member_that_is_away_keeps_its_partitions() -> None:
    away = replace(member("app", (A, B), (A, B)), instance_id="i-1", epoch=-2)
    given = facts(away, state="Stable", progress={"m-app": MemberProgress(-2, 0, NOW - 20 * SECOND)})
    given.consumer.settings = {SESSION_TIMEOUT: "45000"}
    told = the(given, Cause.STATIC_MEMBER_AWAY)
    assert (told.severity, told.since_ms, told.evidence["to_read"]) == (Severity.STUCK, NOW - 20 * SECOND, 100)
    assert "at about 2027-01-15 08:00:25 UTC, 45 s after it left" in told.clears
    assert causes(given) == {Cause.STATIC_MEMBER_AWAY}, "no finding says that it sends heartbeats"
    given.committed = {A: 200, B: 200}
    assert the(given, Cause.STATIC_MEMBER_AWAY).severity is Severity.NOTE


def test_epochs_that_rise_again_and_again() -> None:
    epochs = [EpochChange(number, NOW - (20 - number) * SECOND) for number in range(10)]
    same = the(facts(member("a"), state="Stable", epochs=epochs), Cause.REBALANCES_REPEATEDLY)
    assert same.severity is Severity.RISK
    assert "The members stayed the same" in same.sentences[1]
    joined = [MemberChange(f"m-{n}", "x", "/10.0.0.9", False, NOW - n) for n in range(3)]
    few = epochs[:3]
    returning = facts(member("a"), state="Stable", epochs=few, joined=joined, left=joined)
    returns = the(returning, Cause.REBALANCES_REPEATEDLY)
    assert "Client 'x' on 10.0.0.9 came as a new member 3 times" in returns.sentences[1]
    together = facts(member("a", (B,)), state="Stable", epochs=few, joined=joined, left=joined[:2])
    assert causes(together) <= {Cause.BUSY}, "members of one client id that stay"


def test_epochs_that_rise_between_two_looks() -> None:
    given = facts(member("new"))
    given.history = None
    given.consumer = ConsumerGroupFacts(earlier=replace(given.description, members=[member("old")], epoch=2))
    told = the(given, Cause.REBALANCES_REPEATEDLY)
    assert told.sentences[:3] == [
        "Its group epoch has risen from 2 to 5 within 6 s.",
        "Joined since: member 'new' on 10.0.0.7.",
        "Left since: member 'old' on 10.0.0.7.",
    ]
    assert given.consumer.earlier is not None
    given.consumer.earlier = replace(given.consumer.earlier, epoch=4)
    assert Cause.REBALANCES_REPEATEDLY not in causes(given)


def test_an_expression_that_matches_nothing() -> None:
    given = facts(replace(member("app"), regex="order"), state="Stable")
    given.consumer.matches = {"order": []}
    told = the(given, Cause.REGEX_MATCHES_NOTHING)
    assert "Member 'app' on 10.0.0.7 subscribes to topics by the regular expression 'order'" in told.sentences[0]
    assert "whole name" in told.sentences[1]


@pytest.mark.parametrize(
    ("names", "assigned"), [(["t" * 200] * 5, ()), ([f"t{number}" for number in range(50)], (A, B))]
)
def test_an_expression_whose_records_the_coordinators_log_refuses(
    names: list[str], assigned: tuple[TopicPartition, ...]
) -> None:
    """By the record of its topics, or by a target with all of them."""
    given = facts(replace(member("app", assigned, assigned), regex="t.*"), state="Stable")
    given.consumer = ConsumerGroupFacts(settings={MAX_BATCH: "1000"}, matches={"t.*": names})
    told = the(given, Cause.RECORDS_TOO_LARGE)
    assert told.severity is Severity.STUCK
    assert told.evidence["matches"] == len(names)
    assert told.commands[0].endswith(" __consumer_offsets")
    assert Cause.REGEX_HIDDEN_TOPICS not in causes(given)
    given.consumer.settings[MAX_BATCH] = "2000"
    assert Cause.RECORDS_TOO_LARGE not in causes(given)
    assert Cause.REGEX_HIDDEN_TOPICS in causes(given)


def test_an_expression_whose_topics_the_coordinator_leaves_out() -> None:
    value = RegexValue(("t",), 7, NOW - MINUTE)
    given = facts(replace(member("app", (A, B), (A, B)), regex="t.*"), state="Stable", expressions={"t.*": value})
    given.consumer.matches = {"t.*": ["t", "t-secret"]}
    assert given.unassigned_topics == ["t-secret"]
    told = the(given, Cause.REGEX_HIDDEN_TOPICS)
    assert (told.severity, told.since_ms) == (Severity.RISK, NOW - MINUTE)
    assert "It matches t-secret, and no member is given a partition of it." in told.sentences[0]
    assert told.sentences[2].endswith("found 1 topic: t.")
    given.denied = [Denied("User:app", "topic", "t-secret", "Describe", "DefaultDeny")]
    told = the(given, Cause.REGEX_HIDDEN_TOPICS)
    assert told.severity is Severity.STUCK
    assert "User:app may not Describe t-secret." in told.sentences
    given.description = replace(given.description, state="Assigning")
    assert Cause.REGEX_HIDDEN_TOPICS not in causes(given), "a new target may have it"


def test_an_assignor_that_the_coordinator_no_longer_has() -> None:
    given = facts(member("app", (A,), (A,)), subscriptions={"m-app": subscription(assignor="sticky")})
    given.consumer.settings = {ASSIGNORS: "uniform, range"}
    told = the(given, Cause.ASSIGNOR_NOT_SUPPORTED)
    assert "asked for the assignor 'sticky', which broker 1 does not have; it has uniform, range" in told.sentences[0]
    for assignors in ("uniform,sticky", "com.example.Sticky", ""):
        given.consumer.settings = {ASSIGNORS: assignors}
        assert Cause.ASSIGNOR_NOT_SUPPORTED not in causes(given)


def test_refusals_that_nothing_records_are_told_as_unknown() -> None:
    given = facts(state="Empty")
    given.consumer.settings = {ASSIGNORS: "uniform,range", MIGRATION_POLICY: "disabled"}
    [text] = open_questions(given)
    assert "It has the assignors uniform,range (group.consumer.assignors)" in text
    assert "group.consumer.migration.policy is disabled" in text
    assert open_questions(facts(HOLDER)) == []


def described(*members: tuple[bytes, bytes]) -> DescribedGroup:
    rows = [
        DescribedGroupMember(client_id="app", member_metadata=metadata, member_assignment=assignment)
        for metadata, assignment in members
    ]
    return DescribedGroup(
        group_id="g", group_state="Stable", protocol_type="consumer", protocol_data="mine", members=rows
    )


@pytest.mark.parametrize(
    ("user_data", "policy", "max_size", "reason"),
    [
        (b"x", "", None, "its assignor 'mine' keeps data of its own in the assignments (user data of 'app')"),
        (None, "downgrade", None, "group.consumer.migration.policy of its coordinator is downgrade"),
        (None, "upgrade", 0, "it has 1 members, and group.consumer.max.size is 0"),
    ],
)
def test_reasons_that_refuse_a_conversion(
    user_data: bytes | None, policy: str, max_size: int | None, reason: str
) -> None:
    metadata, assignment = encode_subscription(Subscription((A.topic,))), encode_assignment(Assignment((A,), user_data))
    [text] = upgrade_obstacles(described((metadata, assignment)), policy, max_size)
    assert text.startswith(reason)
    assert upgrade_obstacles(described((metadata, encode_assignment(Assignment((A,))))), "bidirectional", 5) == []
    [text] = upgrade_obstacles(described((b"\xff", assignment[:0])), policy="", max_size=None)
    assert "are not those of the consumer protocol" in text


def test_a_conversion_that_is_refused_is_a_note() -> None:
    given = facts(member("app", (A, B)), state="Stable")
    given.description = replace(given.description, group_type="classic")
    given.consumer.obstacles = ["a reason"]
    told = the(given, Cause.CONVERSION_REFUSED)
    assert told.severity is Severity.NOTE
    assert "is refused by this classic group (GROUP_ID_NOT_FOUND): a reason." in told.sentences[0]


def test_groups_of_other_types_are_never_without_members() -> None:
    given = facts(state="Stable")
    given.description = replace(given.description, group_type="streams", protocol_type="streams")
    told = the(given, Cause.OTHER_GROUP_TYPE)
    assert causes(given) == {Cause.OTHER_GROUP_TYPE}
    assert told.commands == ["kafka-streams-groups --bootstrap-server localhost:9092 --describe --group g"]


def test_generations_of_before_a_conversion_are_no_news() -> None:
    given = facts(member("a", (A, B)), state="Stable")
    assert given.history is not None
    given.history.generations += [Generation(number, NOW - MINUTE, ()) for number in range(9)]
    assert causes(given) == {Cause.BUSY}


def test_a_consumer_group_tells_since_when_it_has_no_members() -> None:
    left = [MemberChange("m", "app", "/10.0.0.7", False, NOW - MINUTE)]
    told = the(facts(state="Empty", left=left), Cause.NO_MEMBERS)
    assert told.since_ms == NOW - MINUTE
    assert "Its last member left at" in told.sentences[1]


def test_the_second_look_comes_after_a_heartbeat_interval(runner: Runner) -> None:
    coordinated(runner.brokers)
    group = DescribedConsumerGroup(group_id="g", group_state="Stable", group_epoch=6, assignment_epoch=6)
    runner.brokers.answers[ConsumerGroupDescribeRequest] = lambda *_: ConsumerGroupDescribeResponse(groups=[group])
    before_ms = runner.now_ms()
    second = runner.run(look_again(runner.cluster, facts().description))
    assert (second.state, second.epoch) == ("Stable", 6)
    assert runner.now_ms() - before_ms >= LOOK_AGAIN_MS


def test_facts_that_may_not_be_read_are_left_out(runner: Runner) -> None:
    coordinated(runner.brokers)
    runner.brokers.leaders |= {"t": {0: 1}, "u": {0: 1}}
    given = facts(replace(member("app"), regex="t|v"), replace(member("bad"), regex="("), state="Stable")
    denied = DescribeConfigsResult(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    runner.brokers.answers[DescribeConfigsRequest] = lambda *_: DescribeConfigsResponse(results=[denied])
    made = runner.run(consumer_group_facts(runner.cluster, given.description))
    assert made.settings == {}
    assert (made.matches, list(made.refused)) == ({"t|v": ["t"]}, ["("])
    given.consumer = made
    assert "Whether '(' matches a topic" in open_questions(given)[0]
