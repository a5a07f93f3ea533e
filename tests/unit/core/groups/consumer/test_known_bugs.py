"""Bugs that other implementations of KIP-848 had, by their numbers: each is a case that ours must pass."""

from __future__ import annotations

from itertools import permutations

import pytest

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import MemberId, TopicId, TopicName
from oncelog.core.groups.classic.group import ClassicGroup
from oncelog.core.groups.classic.states import GroupState
from oncelog.core.groups.consumer import records
from oncelog.core.groups.consumer.group import ConsumerGroup, ConsumerGroupState, ResolvedRegex
from oncelog.core.groups.consumer.member import ConsumerMember
from oncelog.core.groups.consumer.offset_checks import check_commit, check_fetch
from oncelog.core.groups.consumer.regular_expressions import decide_resolution
from oncelog.core.groups.model import HeartbeatRequest, LeavingMember
from oncelog.core.groups.modern.group import Refused
from oncelog.records.internal.consumer_group_records import (
    ConsumerGroupKey,
    CurrentMemberKey,
    MemberKey,
    TargetMemberKey,
)
from oncelog.records.internal.group_records import GroupMetadataKey
from tests.conformance.groups.core_group import GROUP, Outcome
from tests.conformance.groups.log import compacted, state_of
from tests.unit.core.groups.consumer.scene import A, B, C, Scene, T


def test_kafka_16147_a_partition_that_its_owner_gives_up_and_gets_back_keeps_its_owner() -> None:
    core = Scene()
    core.joins(A)
    core.joins(B)
    assert core.beats(A, 2).epoch == 2, "it has to give up 2 and 3 first"
    core.leaves(B)
    answer = core.beats(A, 2, {0, 1})
    assert answer.assignment is not None
    assert set(answer.assignment[T]) == {0, 1, 2, 3}
    assert {core.consumer.owner(T, partition) for partition in range(4)} == {A}
    core.joins(B)
    assert core.assigned(B) == set(), "everything has an owner"


def test_kafka_17306_records_and_tombstones_in_any_order() -> None:
    member = ConsumerMember(A, 3, 2, topics=frozenset([TopicName("t")]), assigned={T: {0: 3}})
    created: list[records.GroupRecord] = [
        records.subscription(GROUP, member),
        records.epoch(GROUP, 3, 7),
        records.target(GROUP, A, {T: frozenset([0])}),
        records.target_epoch(GROUP, 3, 9),
        records.current_assignment(GROUP, member),
    ]
    tombstones = records.member_tombstones(GROUP, B)
    states = set()
    for order in permutations(range(len(created))):
        group = ConsumerGroup(GROUP)
        for place in order:
            group.apply(*tombstones[place % 3])
            group.apply(*created[place])
        states.add(str(state_of(group)))
        for key, _ in [created[place] for place in order]:
            group.apply(key, None)
        assert not group.members
        assert group.owner(T, 0) is None
    assert len(states) == 1


def test_kafka_19862_a_load_that_misses_a_release_does_not_fail() -> None:
    group = ConsumerGroup(GROUP)
    first, second = ConsumerMember(A, 3, 2, assigned={T: {0: 3}}), ConsumerMember(B, 3, 2, assigned={T: {0: 3}})
    for record in (records.current_assignment(GROUP, first), records.current_assignment(GROUP, second)):
        group.apply(*record)
    assert group.owner(T, 0) == B
    group.apply(*records.current_assignment(GROUP, first._replace(assigned={})))
    assert group.owner(T, 0) == B, "a late release of the former owner leaves it there"


def test_kafka_20254_and_21102_no_conversion_leaves_a_part_of_a_group_behind() -> None:
    core, batches = Scene(), []

    def note(outcome: Outcome) -> None:
        batches.append([records.encode(record) for record in outcome.records])

    note(core.joins(A, "i"))
    note(core.classic_joins(B)[1])
    note(core.leaves(A, "i"))
    assert isinstance(core.group, ClassicGroup)
    note(core.joins(C, "i"))
    note(core.classic_joins(A, "i")[1])
    assert isinstance(core.group, ClassicGroup), "a classic member has replaced the last one of the new protocol"
    last = {key: value for batch in batches for key, value in batch}
    kept = [key for key, value in last.items() if value is not None]
    assert kept == [records.encode((GroupMetadataKey(GROUP), None))[0]]
    for known in range(len(batches) + 1):
        for cleaned in range(known + 1):
            for drops_tombstones in (False, True):
                log = compacted(batches, known, cleaned, drops_tombstones=drops_tombstones)
                assert state_of(core.loaded_group(log)) == state_of(core.group), (known, cleaned)


def test_kafka_19720_a_classic_member_has_no_regular_expression_of_its_predecessor() -> None:
    core = Scene()
    core.joins(A, "i", topics=[], regex="t.*")
    core.resolve()
    core.joins(B)
    epoch = core.consumer.epoch
    reply, _ = core.classic_joins(C, "i")
    group = core.consumer
    assert reply is not None
    assert (group.members[C].regex, group.regexes, group.epoch) == ("", {}, epoch + 1)
    assert group.members[C].topics == {"t"}


def test_kafka_20066_a_commit_of_an_older_epoch_counts_for_partitions_kept_since() -> None:
    core = Scene()
    core.joins(A)
    core.joins(B)
    core.beats(A, 2, {0, 1})
    group = core.consumer
    assert group.members[A].epoch == 3
    check = check_commit(group, A, None, 2, knows_epochs=True)
    assert check(TopicName("t"), T, 0) is ErrorCode.NONE
    assert check(TopicName("t"), T, 3) is ErrorCode.STALE_MEMBER_EPOCH


def test_kafka_20272_a_classic_member_joins_again_only_when_its_target_exists() -> None:
    core = Scene(1000)
    core.joins(A)
    reply, _ = core.classic_joins(B)
    assert reply is not None
    group = core.consumer
    assert group.epoch > group.target_epoch
    request = HeartbeatRequest(GROUP, B, reply.generation)
    assert core.classic_heartbeat(request).answer is ErrorCode.NONE
    core.now_ms += 1000
    core.beats(A, 2)
    assert core.classic_heartbeat(request).answer is ErrorCode.REBALANCE_IN_PROGRESS


@pytest.mark.parametrize("is_stale", [False, True])
def test_kafka_20273_a_replacement_rebalances_only_if_the_target_is_older_than_the_group(is_stale: bool) -> None:
    core = Scene(1000 if is_stale else 0)
    core.joins(A, "i")
    core.classic_joins(B)
    assert core.consumer.state is (ConsumerGroupState.ASSIGNING if is_stale else ConsumerGroupState.RECONCILING)
    core.classic_joins(C, "i")
    assert isinstance(core.group, ClassicGroup)
    assert core.group.state is (GroupState.PREPARING_REBALANCE if is_stale else GroupState.STABLE)


def test_kafka_20291_a_target_that_is_not_due_raises_no_epoch() -> None:
    core = Scene(1000)
    core.joins(A)
    core.joins(B)
    core.change_topics({"t": (T.hex(), 6)}, has_new=False)
    core.beats(A, 2)
    epoch = core.consumer.epoch
    for _ in range(3):
        core.beats(A, 2)
    assert core.consumer.epoch == epoch
    assert core.consumer.state is ConsumerGroupState.ASSIGNING


def test_kafka_18813_topics_that_a_resolution_hides_are_taken_away() -> None:
    core = Scene()
    core.joins(A, topics=[], regex="t.*")
    core.resolve()
    group = core.consumer
    core.beats(A, 1)
    assert core.assigned(A) == {0, 1, 2, 3}
    core.apply(decide_resolution(group, {"t.*": ResolvedRegex(frozenset(), 9, 9)}, core.topics))
    core.beats(A, 2)
    assert core.assigned(A) == set()


@pytest.mark.parametrize("leaves", ["leaves", "expires", "is removed", "is replaced"])
def test_kafka_17317_a_group_without_members_of_the_new_protocol_is_classic(leaves: str) -> None:
    core = Scene()
    core.joins(A, "i")
    core.classic_joins(B)
    if leaves == "leaves":
        core.leaves(A, "i")
    elif leaves == "expires":
        core.now_ms += 45_000
        assert core.expire("session-timeout-g-a") is not None
    elif leaves == "is removed":
        core.leave([LeavingMember(MemberId(""), "i")])
    else:
        core.classic_joins(C, "i")
    assert isinstance(core.group, ClassicGroup)
    assert sorted(core.group.members) == (["b", "c"] if leaves == "is replaced" else ["b"])


def test_platformatic_267_an_offset_fetch_by_the_epoch_just_told_is_accepted() -> None:
    core = Scene()
    core.joins(A)
    core.joins(B)
    epoch = core.beats(A, 2, {0, 1}).epoch
    check_fetch(core.consumer, A, epoch)
    with pytest.raises(Refused, match="does not match"):
        check_fetch(core.consumer, A, epoch - 1)


def test_librdkafka_5541_a_group_stays_when_its_last_member_has_left() -> None:
    core = Scene()
    core.joins(A)
    outcome = core.leaves(A)
    kinds = {type(key) for key, _ in outcome.records}
    assert kinds == {CurrentMemberKey, TargetMemberKey, MemberKey, ConsumerGroupKey}
    assert core.consumer.state is ConsumerGroupState.EMPTY
    assert dict(outcome.records)[ConsumerGroupKey(GROUP)] is not None


def test_the_bytes_of_an_assignment_are_the_same_in_every_process() -> None:
    topics = [TopicId(bytes([number]) * 16) for number in range(40)]
    member = ConsumerMember(A, assigned={topic: {0: 1} for topic in frozenset(topics)})
    _, value = records.current_assignment(GROUP, member)
    assert list(value.assigned) == topics  # type: ignore[union-attr]
    _, value = records.target(GROUP, A, {topic: frozenset([0]) for topic in frozenset(topics)})
    assert list(value.partitions) == topics  # type: ignore[union-attr]


def test_a_coordinator_whose_clock_is_behind_that_of_the_last_one_computes_targets() -> None:
    core = Scene(1000)
    core.joins(A)
    core.now_ms -= 30_000
    core.joins(B)
    assert core.consumer.target_epoch == core.consumer.epoch
    core.leaves(B)
    core.beats(A, 2)
    assert core.consumer.target_epoch < core.consumer.epoch, "the interval holds by the new clock"
