"""Groups between the classic protocol and the new one: upgrades, downgrades, and classic members in between."""

from __future__ import annotations

import pytest

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import MemberId, TopicName, TopicPartition
from oncelog.core.groups.classic.states import GroupState
from oncelog.core.groups.consumer import records
from oncelog.core.groups.consumer.conversion import assignment_for
from oncelog.core.groups.consumer.settings import MigrationPolicy
from oncelog.core.groups.model import HeartbeatRequest, JoinReply, LeavingMember, SyncReply, SyncRequest
from oncelog.core.groups.modern.group import Refused
from oncelog.core.groups.modern.members import MemberState
from oncelog.records.internal.consumer_protocol import (
    Assignment,
    Subscription,
    decode_assignment,
    encode_assignment,
    encode_subscription,
)
from oncelog.records.internal.group_records import GroupMetadataValue
from tests.conformance.groups.core_group import GROUP
from tests.unit.core.groups.consumer.scene import A, B, C, Scene, T

ALL = [TopicPartition(TopicName("t"), partition) for partition in range(4)]
SUBSCRIPTION = encode_subscription(Subscription((TopicName("t"),)))


def sync(
    scene: Scene, member: MemberId, generation: int, assignments: dict[MemberId, bytes] | None = None
) -> SyncReply:
    request = SyncRequest(GROUP, member, generation, None, "consumer", "range", list((assignments or {}).items()))
    reply = dict(scene.sync(request, 99).released)[99]
    assert isinstance(reply, SyncReply)
    return reply


def stable_classic(scene: Scene, assignment: bytes) -> None:
    """B is the one member of a stable classic group."""
    scene.classic_joins(B)
    scene.now_ms += 1
    scene.expire("join-g")
    assert sync(scene, B, 1, {B: assignment}).error_code is ErrorCode.NONE


@pytest.mark.parametrize("policy", MigrationPolicy)
def test_policies_allow_upgrades_downgrades_and_classic_members(policy: MigrationPolicy) -> None:
    scene = Scene(policy=policy)
    stable_classic(scene, encode_assignment(Assignment(tuple(ALL))))
    if policy in (MigrationPolicy.BIDIRECTIONAL, MigrationPolicy.UPGRADE):
        scene.joins(A)
        assert scene.consumer.members[B].assigned == {T: dict.fromkeys(range(4), 1)}
    else:
        with pytest.raises(Refused, match="because online upgrade is disabled"):
            scene.joins(A)
    scene = Scene(policy=policy)
    scene.joins(A)
    if policy is MigrationPolicy.DISABLED:
        with pytest.raises(Refused, match="because the group migration is disabled"):
            scene.classic_joins(B)
        return
    scene.classic_joins(B)
    scene.leaves(A)
    if policy is MigrationPolicy.UPGRADE:
        assert list(scene.consumer.members) == [B]
    else:
        assert scene.classic.state is GroupState.PREPARING_REBALANCE


def test_a_group_that_is_too_large_for_the_other_kind_stays_as_it_is() -> None:
    scene = Scene(size=1)
    stable_classic(scene, b"")
    with pytest.raises(Refused, match="maximum capacity of 1 members"):
        scene.joins(A)
    scene = Scene(size=3, classic_size=1)
    for member in (B, C):
        scene.joins(A)
        scene.classic_joins(member)
    scene.leaves(A)
    assert sorted(scene.consumer.members) == [B, C]


@pytest.mark.parametrize(
    ("assignment", "reason"),
    [
        (encode_assignment(Assignment((), b"state")), "an unsupported custom assignor is in use"),
        (b"\0", "the embedded consumer protocol is malformed"),
    ],
)
def test_an_assignment_that_cannot_be_kept_refuses_the_upgrade(assignment: bytes, reason: str) -> None:
    scene = Scene()
    stable_classic(scene, assignment)
    with pytest.raises(Refused, match=reason) as refused:
        scene.joins(A)
    assert refused.value.code is ErrorCode.GROUP_ID_NOT_FOUND
    assert scene.classic.state is GroupState.STABLE


def test_an_upgrade_amid_the_first_rebalance_lets_the_parked_member_join_again() -> None:
    """Apache Kafka 4.3 fails: no protocol is chosen yet."""
    scene = Scene()
    assert scene.classic_joins(B)[0] is None
    outcome = scene.joins(A)
    assert [reply for _, reply in outcome.released] == [JoinReply(ErrorCode.REBALANCE_IN_PROGRESS, B)]
    reply, _ = scene.classic_joins(B)
    assert reply is not None
    assert (reply.error_code, reply.generation) == (ErrorCode.NONE, scene.consumer.target_epoch)


def test_an_upgrade_takes_over_only_partitions_that_exist() -> None:
    scene = Scene()
    named = [*ALL[:1], TopicPartition(TopicName("t"), 99), TopicPartition(TopicName("gone"), 0)]
    stable_classic(scene, encode_assignment(Assignment(tuple(named))))
    scene.joins(A)
    assert scene.consumer.members[B].assigned == {T: {0: 1}}


def test_a_refused_upgrade_answers_no_parked_request() -> None:
    """Apache Kafka 4.3 answers them all."""
    scene = Scene(size=1)
    assert scene.classic_joins(B)[0] is None
    with pytest.raises(Refused):
        scene.joins(A)
    assert scene.classic.awaiting_join == 1


def test_timers_end_with_their_group() -> None:
    """Apache Kafka 4.3 leaves them, and they remove members after the next conversion."""
    scene = Scene()
    scene.joins(A)
    scene.classic_joins(B)
    scene.leaves(A)
    scene.joins(A)
    scene.now_ms += 5000
    assert scene.due_timers() == []


def test_a_downgrade_gives_every_member_its_share_of_the_target() -> None:
    scene = Scene()
    scene.joins(A)
    scene.classic_joins(B)
    scene.now_ms += 7
    outcome = scene.leaves(A)
    value = outcome.records[-1][1]
    assert isinstance(value, GroupMetadataValue)
    assert (value.generation, value.current_state_timestamp, value.leader) == (3, scene.now_ms, B)
    assert decode_assignment(value.members[0].assignment).partitions == tuple(ALL[2:])


@pytest.mark.parametrize("version", [0, 1, 2, 3, 9])
def test_an_assignment_comes_in_the_version_of_the_subscription(version: int) -> None:
    scene = Scene()
    metadata = version.to_bytes(2, "big") + SUBSCRIPTION[2:]
    encoded = assignment_for(metadata, {T: frozenset(range(4))}, scene.topics)
    assert int.from_bytes(encoded[:2], "big") == min(version, 3)
    assert decode_assignment(encoded).partitions == tuple(ALL)
    assert assignment_for(b"", {}, scene.topics)[:2] == b"\0\0", "a subscription without a version"


def test_a_member_without_an_id_gets_one_and_is_no_member_yet() -> None:
    scene = Scene()
    scene.joins(A)
    reply, outcome = scene.classic_joins(B, known=True)
    assert (reply, outcome.records) == (JoinReply(ErrorCode.MEMBER_ID_REQUIRED, B), [])


def test_a_malformed_subscription_is_refused() -> None:
    scene = Scene()
    scene.joins(A)
    with pytest.raises(Refused, match="no subscription of the consumer protocol") as refused:
        scene.classic_joins(B, metadata=b"\0")
    assert refused.value.code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_classic_members_need_a_protocol_in_common() -> None:
    scene = Scene()
    scene.joins(A)
    scene.classic_joins(B, protocols=("range", "sticky"))
    scene.classic_joins(C, protocols=("sticky",))
    with pytest.raises(Refused, match="protocols are not supported"):
        scene.classic_joins(MemberId("d"), protocols=("range",))


def test_a_classic_member_that_has_to_revoke_joins_again_and_then_gets_the_rest() -> None:
    scene = Scene()
    scene.classic_joins(B)
    scene.now_ms += 1
    scene.expire("join-g")
    sync(scene, B, 1, {B: encode_assignment(Assignment(tuple(ALL)))})
    scene.joins(A)
    beat = HeartbeatRequest(GROUP, B, 1)
    assert scene.classic_heartbeat(beat).answer is ErrorCode.REBALANCE_IN_PROGRESS
    assert sync(scene, B, 1).error_code is ErrorCode.REBALANCE_IN_PROGRESS
    owned = Subscription((TopicName("t"),), owned_partitions=tuple(ALL))
    reply, _ = scene.classic_joins(B, metadata=encode_subscription(owned))
    assert reply is not None
    assert reply.generation == 1, "it has to give up two partitions first"
    assert scene.consumer.members[B].state is MemberState.UNREVOKED_PARTITIONS
    assert decode_assignment(sync(scene, B, 1).assignment).partitions == tuple(ALL[2:])
    given_up = Subscription((TopicName("t"),), owned_partitions=tuple(ALL[2:]))
    reply, _ = scene.classic_joins(B, metadata=encode_subscription(given_up))
    assert reply is not None
    assert reply.generation == 2
    assert scene.beats(A, 2).assignment is not None
    assert scene.assigned(A) == {0, 1}


def test_a_classic_member_that_does_not_fetch_its_assignment_is_removed() -> None:
    scene = Scene()
    scene.joins(A)
    scene.classic_joins(B)
    scene.now_ms += 5000
    assert scene.due_timers() == [f"sync-g-{B}"]
    scene.expire(f"sync-g-{B}")
    assert list(scene.consumer.members) == [A]


def test_a_classic_member_that_drops_a_topic_has_to_give_it_up_before_the_next_target() -> None:
    scene = Scene(1000)
    scene.change_topics({**scene.topics.topics, "u": ((b"u" * 16).hex(), 1)}, has_new=True)
    scene.joins(A, topics=["u"])
    scene.now_ms += 1000
    both = Subscription((TopicName("t"), TopicName("u")))
    scene.classic_joins(B, metadata=encode_subscription(both))
    assert scene.assigned(B) == {0, 1, 2, 3}
    dropped = Subscription((TopicName("u"),), owned_partitions=tuple(ALL))
    reply, _ = scene.classic_joins(B, metadata=encode_subscription(dropped))
    member = scene.consumer.members[B]
    assert reply is not None
    assert (member.state, member.epoch) == (MemberState.UNREVOKED_PARTITIONS, scene.consumer.target_epoch)
    assert scene.classic_heartbeat(HeartbeatRequest(GROUP, B, reply.generation)).answer is (
        ErrorCode.REBALANCE_IN_PROGRESS
    )


def test_a_classic_member_that_goes_on_with_the_new_protocol_owes_no_join_and_no_sync() -> None:
    scene = Scene()
    scene.joins(A)
    scene.classic_joins(B)
    scene.joins(B)
    scene.now_ms += 5000
    assert scene.due_timers() == []


def test_a_static_member_added_before_its_predecessor_is_removed_keeps_the_instance() -> None:
    scene = Scene()
    scene.joins(A, "i")
    group = scene.consumer
    group.apply(*records.subscription(GROUP, group.members[A]._replace(member_id=B)))
    for record in records.member_tombstones(GROUP, A):
        group.apply(*record)
    assert group.static_members == {"i": B}


def test_a_member_joins_a_classic_group_that_all_have_left_during_its_rebalance() -> None:
    scene = Scene()
    scene.classic_joins(A, "i")
    scene.classic_joins(B)
    scene.leave([LeavingMember(MemberId(""), "i"), LeavingMember(B, None)])
    assert not scene.classic.members
    scene.joins(C)
    assert scene.assigned(C) == {0, 1, 2, 3}
