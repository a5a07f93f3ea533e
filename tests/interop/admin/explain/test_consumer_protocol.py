"""Causes of groups of the consumer protocol (KIP-848), made by hand on oncelog and on Apache Kafka."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from oncelog.admin.configs import ResourceType, alter_configs, describe_configs
from oncelog.admin.explain.consumer_group_facts import MAX_BATCH
from oncelog.admin.explain.findings import Cause, Severity
from oncelog.admin.explain.targets import explain_group
from oncelog.admin.topics import NewTopic, create_topic
from oncelog.base.errors import ErrorCode
from oncelog.base.ids import CONSUMER_OFFSETS
from oncelog.client.blocking import Client
from oncelog.client.errors import BrokerRefused
from oncelog.client.machine.offsets import Committed
from oncelog.client.programs.group import commit_offsets
from oncelog.records.internal.consumer_protocol import Assignment, Subscription, encode_assignment, encode_subscription
from oncelog.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from oncelog.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tests.interop.admin.explain.conftest import the
from tests.interop.admin.explain.test_explain import MINUTE_MS, causes
from tests.interop.admin.explain.test_explain import topic as topic
from tests.interop.admin.lab import at
from tests.interop.admin.members import LEAVES, LEAVES_FOR_A_WHILE, Member, ask
from tests.waiting import wait_until

pytestmark = pytest.mark.slow
HOLDS = Cause.HOLDS_PARTITIONS
HOLDS_UP = Cause.CLASSIC_MEMBER_HOLDS_UP


def test_a_member_that_does_not_let_go(
    client: Client, later: Client, named: Callable[[str], Client], topic: str
) -> None:
    group = f"g-{topic}"
    holder = Member(named("holder"), group, subscribed_topic_names=[topic])
    holder.has(2)
    waiting = Member(named("waiting"), group, subscribed_topic_names=[topic])
    waiting.follow()
    not_told = explain_group(later, group)
    wait_until(lambda: [waiting.follow(), holder.heartbeat()] and is_told(client, group), "the new target")
    just_now = explain_group(client, group)
    told = the(explain_group(later, group), Cause.HOLDS_PARTITIONS)
    wait_until(lambda: (holder.follow(), waiting.follow()) == (1, 1), "the handover")

    assert told.about == "member holder"
    assert (told.severity, the(just_now, Cause.HOLDS_PARTITIONS).severity) == (Severity.STUCK, Severity.RISK)
    assert "Its coordinator has told it, and it has not confirmed" in told.sentences[1]
    assert (told.evidence["rebalance_timeout_ms"], told.evidence["member_type"]) == (5 * MINUTE_MS, "consumer")
    assert told.affected[0].startswith("member 'waiting' on ")
    assert f"{topic}-" in told.affected[0]
    assert told.since_ms is not None
    assert "by its rebalance time-out of 5 min" in told.clears
    assert {Cause.RECONCILING} <= causes(just_now)
    assert Cause.HOLDS_PARTITIONS not in causes(not_told) or "no heartbeat" in " ".join(
        the(not_told, Cause.HOLDS_PARTITIONS).sentences
    )
    after = explain_group(later, group)
    assert not {Cause.HOLDS_PARTITIONS, Cause.RECONCILING} & causes(after)
    assert any("2 members joined" in sentence for sentence in after.happened)


def is_told(client: Client, group: str) -> bool:
    """True once the holder's record says that it must give something up."""
    return any("has told it" in " ".join(finding.sentences) for finding in explain_group(client, group).findings)


def test_a_member_that_comes_back_again_and_again(client: Client, named: Callable[[str], Client], topic: str) -> None:
    group, flaky = f"g-{topic}", named("flaky")
    steady = Member(named("steady"), group, subscribed_topic_names=[topic])
    steady.has(2)
    for _ in range(3):
        member = Member(flaky, group, subscribed_topic_names=[topic])
        member.follow()
        member.heartbeat(LEAVES)
    report = explain_group(client, group)
    told = the(report, Cause.REBALANCES_REPEATEDLY)
    assert told.severity is Severity.RISK
    assert (told.evidence["client_id"], told.evidence["joined_anew"]) == ("flaky", 3)
    assert told.evidence["epochs"] == 7
    assert any("3 members left: 'flaky'" in sentence for sentence in report.happened)


def nothing_matched_since(client: Client, group: str) -> int | None:
    findings = explain_group(client, group).findings
    return next((finding.since_ms for finding in findings if finding.cause is Cause.REGEX_MATCHES_NOTHING), None)


def test_expressions_that_give_nothing_or_too_little(client: Client, topic: str) -> None:
    group = f"g-{topic}"
    member = Member(client, group, subscribed_topic_regex=f"{topic}-later.*", server_assignor="uniform")
    member.follow()
    # The coordinator has resolved it once its record is there.
    wait_until(lambda: [member.follow()] and nothing_matched_since(client, group), "the resolution")
    told = the(explain_group(client, group), Cause.REGEX_MATCHES_NOTHING)
    assert told.severity is Severity.RISK
    assert f"'{topic}-later.*'" in told.sentences[0]
    # An expression is resolved at most every ten seconds: until then the coordinator does not have the topic.
    create_topic(client, NewTopic(f"{topic}-later", partitions=1))
    member.follow()
    told = the(explain_group(client, group), Cause.REGEX_HIDDEN_TOPICS)
    assert told.severity is Severity.RISK
    assert f"matches {topic}-later, and no member is given a partition of it" in told.sentences[0]
    assert told.sentences[2].endswith("found 0 topics.")
    assert told.since_ms is not None


def test_an_expression_whose_topics_exceed_the_limit_of_the_coordinators_log(client: Client, topic: str) -> None:
    group, many = f"g-{topic}", [f"{topic}-{number}".ljust(240, "x") for number in range(6)]
    for name in many:
        create_topic(client, NewTopic(name))
    # The first member creates the coordinators' topic.
    Member(client, f"other-{topic}", subscribed_topic_names=[topic]).follow()
    place = ResourceType.TOPIC, CONSUMER_OFFSETS
    alter_configs(client, *place, change={MAX_BATCH: "900"})
    try:
        wait_until(lambda: [row.value for row in describe_configs(client, *place, [MAX_BATCH])] == ["900"], "the limit")
        member = Member(client, group, subscribed_topic_regex=f"{topic}-.*x")
        member.follow()
        told = the(explain_group(client, group), Cause.RECORDS_TOO_LARGE)
        assert (told.severity, told.evidence["matches"]) == (Severity.STUCK, len(many))
        assert not member.follow()
    finally:
        alter_configs(client, *place, delete=[MAX_BATCH])


def test_a_refusal_leaves_no_trace_and_the_assignors_are_told(client: Client, topic: str) -> None:
    group = f"g-{topic}"
    refused = Member(client, group, subscribed_topic_names=[topic], server_assignor="sticky")
    assert refused.heartbeat().error_code == ErrorCode.UNSUPPORTED_ASSIGNOR
    with pytest.raises(BrokerRefused, match="no such group"):
        explain_group(client, group)
    member = Member(client, group, subscribed_topic_names=[topic])
    member.follow()
    member.heartbeat(LEAVES)
    commit_offsets(client, group, {at(topic): Committed(3)})
    refused.heartbeat()
    report = explain_group(client, group)
    [told] = [text for text in report.unknown if "refuses" in text]
    assert "uniform" in told
    assert "UNSUPPORTED_ASSIGNOR" in told
    nobody = the(report, Cause.NO_MEMBERS)
    assert nobody.since_ms is not None
    assert "Its last member left at" in nobody.sentences[1]


def test_a_static_member_that_is_away(
    client: Client, later: Client, named: Callable[[str], Client], topic: str
) -> None:
    group = f"g-{topic}"
    commit_offsets(client, group, {at(topic, 0): Committed(5), at(topic, 1): Committed(20)})
    static = Member(named("static"), group, subscribed_topic_names=[topic], instance_id="i-1")
    static.has(2)
    static.heartbeat(LEAVES_FOR_A_WHILE)
    report = explain_group(later, group)
    told = the(report, Cause.STATIC_MEMBER_AWAY)
    assert (told.about, told.severity) == ("member i-1", Severity.STUCK)
    assert told.evidence["session_timeout_ms"] == 45_000
    assert told.evidence["to_read"] == 15
    assert told.since_ms is not None
    assert "45 s after it left" in told.clears
    assert Cause.MEMBER_DOES_NOT_COMMIT not in causes(report), "it sends no heartbeats"
    successor = Member(named("static"), group, subscribed_topic_names=[topic], instance_id="i-1")
    successor.has(2)
    assert Cause.STATIC_MEMBER_AWAY not in causes(explain_group(client, group))


def classic_member(
    client: Client, group: str, topic: str, user_data: bytes | None, *, metadata: bytes | None = None
) -> None:
    """A classic member that assigns itself both partitions if it leads. ``metadata``: instead of its subscription."""
    subscription = encode_subscription(Subscription((at(topic).topic,))) if metadata is None else metadata
    offer = JoinGroupRequestProtocol(name="mine", metadata=subscription)
    joined = ask(
        client,
        group,
        JoinGroupRequest(
            group_id=group,
            session_timeout_ms=45_000,
            rebalance_timeout_ms=MINUTE_MS,
            protocol_type="consumer",
            protocols=[offer],
        ),
        at_most=3,
    )
    assignment = encode_assignment(Assignment((at(topic, 0), at(topic, 1)), user_data))
    synced = ask(
        client,
        group,
        SyncGroupRequest(
            group_id=group,
            generation_id=joined.generation_id,
            member_id=joined.member_id,
            protocol_type="consumer",
            protocol_name="mine",
            assignments=[SyncGroupRequestAssignment(member_id=joined.member_id, assignment=assignment)],
        ),
    )
    assert (joined.error_code, synced.error_code) == (0, 0)


def test_a_conversion_that_is_refused(client: Client, topic: str) -> None:
    group = f"g-{topic}"
    classic_member(client, group, topic, b"state of an assignor")
    refusal = Member(client, group, subscribed_topic_names=[topic]).heartbeat()
    assert refusal.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert "custom assignor" in (refusal.error_message or "")
    told = the(explain_group(client, group), Cause.CONVERSION_REFUSED)
    assert told.severity is Severity.NOTE
    assert "its assignor 'mine' keeps data of its own" in told.sentences[0]


def test_a_classic_member_that_holds_up_a_mixed_group(
    later: Client, named: Callable[[str], Client], topic: str
) -> None:
    group = f"g-{topic}"
    classic_member(named("classic"), group, topic, None)
    assert Cause.CONVERSION_REFUSED not in causes(explain_group(later, group))
    waiting = Member(named("waiting"), group, subscribed_topic_names=[topic])
    wait_until(
        lambda: [waiting.follow()] and Cause.CLASSIC_MEMBER_HOLDS_UP in causes(explain_group(later, group)), "it"
    )
    told = the(explain_group(later, group), HOLDS_UP)
    assert (told.about, told.severity) == ("member classic", Severity.STUCK)
    assert "classic member of a mixed group" in told.sentences[1]
    assert told.evidence["rebalance_timeout_ms"] == MINUTE_MS
