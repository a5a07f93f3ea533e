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
from oncelog.core.groups.consumer.heartbeat import HeartbeatAnswer
from oncelog.core.groups.consumer.member import ConsumerMember
from oncelog.core.groups.consumer.offset_checks import check_commit, check_fetch
from oncelog.core.groups.consumer.regular_expressions import decide_resolution
from oncelog.core.groups.consumer.settings import MigrationPolicy, Refused
from oncelog.core.groups.model import HeartbeatRequest, JoinReply, JoinRequest, LeavingMember, Protocol
from oncelog.records.internal.consumer_group_records import (
    ConsumerGroupKey,
    CurrentMemberKey,
    MemberKey,
    TargetMemberKey,
)
from oncelog.records.internal.consumer_protocol import Subscription, encode_subscription
from oncelog.records.internal.group_records import GroupMetadataKey
from tests.conformance.groups.core_group import GROUP, CoreGroup, Outcome
from tests.conformance.groups.log import compacted, state_of

T = TopicId(b"t" * 16)
TOPICS = {"t": (T.hex(), 4)}
A, B, C = (MemberId(name) for name in "abc")


def core_group(interval_ms: int = 0) -> CoreGroup:
    return CoreGroup(TOPICS, interval_ms, 100, 100, MigrationPolicy.BIDIRECTIONAL)


def joining(core: CoreGroup, member: MemberId, instance: str | None = None, **fields: object) -> Outcome:
    """A new member of the new protocol joins."""
    operation = {"member": member, "epoch": 0, "timeout": 5000, "topics": ["t"], "owned": {}, "instance": instance}
    return core.heartbeat(operation | fields)


def heartbeat(
    core: CoreGroup, member: MemberId, epoch: int, owned: set[int] | None = None, **fields: object
) -> HeartbeatAnswer:
    operation = {"member": member, "epoch": epoch, "owned": None if owned is None else {T.hex(): owned}}
    answer = core.heartbeat(operation | fields).answer
    assert isinstance(answer, HeartbeatAnswer)
    return answer


def join(core: CoreGroup, member: MemberId, instance: str | None = None) -> tuple[JoinReply | None, Outcome]:
    """A JoinGroup of a new classic member, which becomes ``member``; None for the reply of a parked one."""
    metadata = encode_subscription(Subscription((TopicName("t"),)))
    known = MemberId("") if core.group is None or member not in core.group.members else member
    request = JoinRequest(
        GROUP,
        known,
        member,
        instance,
        "client",
        "host",
        45_000,
        5000,
        "consumer",
        (Protocol("range", metadata),),
        requires_known_member_id=False,
    )
    outcome = core.join(request, 1)
    replies = [reply for token, reply in outcome.released if token == 1]
    assert all(isinstance(reply, JoinReply) for reply in replies)
    return (replies[0] if replies else None), outcome  # type: ignore[return-value]


def consumer_group(core: CoreGroup) -> ConsumerGroup:
    assert isinstance(core.group, ConsumerGroup)
    return core.group


def assigned(core: CoreGroup, member: MemberId) -> set[int]:
    return set(consumer_group(core).members[member].assigned.get(T, {}))


def test_kafka_16147_a_partition_that_its_owner_gives_up_and_gets_back_keeps_its_owner() -> None:
    core = core_group()
    joining(core, A)
    joining(core, B)
    assert heartbeat(core, A, 2).epoch == 2, "it has to give up 2 and 3 first"
    core.heartbeat({"member": B, "epoch": -1})
    answer = heartbeat(core, A, 2, {0, 1})
    assert answer.assignment is not None
    assert set(answer.assignment[T]) == {0, 1, 2, 3}
    assert {consumer_group(core).owner(T, partition) for partition in range(4)} == {A}
    joining(core, B)
    assert assigned(core, B) == set(), "everything has an owner"


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
    core, batches = core_group(), []

    def note(outcome: Outcome) -> None:
        batches.append([records.encode(record) for record in outcome.records])

    note(joining(core, A, "i"))
    note(join(core, B)[1])
    note(core.heartbeat({"member": A, "epoch": -1, "instance": "i"}))
    assert isinstance(core.group, ClassicGroup)
    note(joining(core, C, "i"))
    note(join(core, A, "i")[1])
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
    core = core_group()
    joining(core, A, "i", topics=[], regex="t.*")
    core.resolve()
    joining(core, B)
    epoch = consumer_group(core).epoch
    reply, _ = join(core, C, "i")
    group = consumer_group(core)
    assert reply is not None
    assert (group.members[C].regex, group.regexes, group.epoch) == ("", {}, epoch + 1)
    assert group.members[C].topics == {"t"}


def test_kafka_20066_a_commit_of_an_older_epoch_counts_for_partitions_kept_since() -> None:
    core = core_group()
    joining(core, A)
    joining(core, B)
    heartbeat(core, A, 2, {0, 1})
    group = consumer_group(core)
    assert group.members[A].epoch == 3
    check = check_commit(group, A, None, 2, 9)
    assert check(TopicName("t"), T, 0) is ErrorCode.NONE
    assert check(TopicName("t"), T, 3) is ErrorCode.STALE_MEMBER_EPOCH


def test_kafka_20272_a_classic_member_joins_again_only_when_its_target_exists() -> None:
    core = core_group(interval_ms=1000)
    joining(core, A)
    reply, _ = join(core, B)
    assert reply is not None
    group = consumer_group(core)
    assert group.epoch > group.target_epoch
    request = HeartbeatRequest(GROUP, B, reply.generation)
    assert core.classic_heartbeat(request).answer is ErrorCode.NONE
    core.now_ms += 1000
    heartbeat(core, A, 2)
    assert core.classic_heartbeat(request).answer is ErrorCode.REBALANCE_IN_PROGRESS


@pytest.mark.parametrize("is_stale", [False, True])
def test_kafka_20273_a_replacement_rebalances_only_if_the_target_is_older_than_the_group(is_stale: bool) -> None:
    core = core_group(interval_ms=1000 if is_stale else 0)
    joining(core, A, "i")
    join(core, B)
    assert consumer_group(core).state is (ConsumerGroupState.ASSIGNING if is_stale else ConsumerGroupState.RECONCILING)
    join(core, C, "i")
    assert isinstance(core.group, ClassicGroup)
    assert core.group.state is (GroupState.PREPARING_REBALANCE if is_stale else GroupState.STABLE)


def test_kafka_20291_a_target_that_is_not_due_raises_no_epoch() -> None:
    core = core_group(interval_ms=1000)
    joining(core, A)
    joining(core, B)
    core.change_topics({"t": (T.hex(), 6)}, has_new=False)
    heartbeat(core, A, 2)
    epoch = consumer_group(core).epoch
    for _ in range(3):
        heartbeat(core, A, 2)
    assert consumer_group(core).epoch == epoch
    assert consumer_group(core).state is ConsumerGroupState.ASSIGNING


def test_kafka_18813_topics_that_a_resolution_hides_are_taken_away() -> None:
    core = core_group()
    joining(core, A, topics=[], regex="t.*")
    core.resolve()
    group = consumer_group(core)
    heartbeat(core, A, 1)
    assert assigned(core, A) == {0, 1, 2, 3}
    core.apply(decide_resolution(group, {"t.*": ResolvedRegex(frozenset(), 9, 9)}, core.topics))
    heartbeat(core, A, 2)
    assert assigned(core, A) == set()


@pytest.mark.parametrize("leaves", ["leaves", "expires", "is removed", "is replaced"])
def test_kafka_17317_a_group_without_members_of_the_new_protocol_is_classic(leaves: str) -> None:
    core = core_group()
    joining(core, A, "i")
    join(core, B)
    if leaves == "leaves":
        core.heartbeat({"member": A, "epoch": -1, "instance": "i"})
    elif leaves == "expires":
        core.now_ms += 45_000
        assert core.expire("session-timeout-g-a") is not None
    elif leaves == "is removed":
        core.leave([LeavingMember(MemberId(""), "i")])
    else:
        join(core, C, "i")
    assert isinstance(core.group, ClassicGroup)
    assert sorted(core.group.members) == (["b", "c"] if leaves == "is replaced" else ["b"])


def test_platformatic_267_an_offset_fetch_by_the_epoch_just_told_is_accepted() -> None:
    core = core_group()
    joining(core, A)
    joining(core, B)
    epoch = heartbeat(core, A, 2, {0, 1}).epoch
    check_fetch(consumer_group(core), A, epoch)
    with pytest.raises(Refused, match="does not match"):
        check_fetch(consumer_group(core), A, epoch - 1)


def test_librdkafka_5541_a_group_stays_when_its_last_member_has_left() -> None:
    core = core_group()
    joining(core, A)
    outcome = core.heartbeat({"member": A, "epoch": -1})
    kinds = {type(key) for key, _ in outcome.records}
    assert kinds == {CurrentMemberKey, TargetMemberKey, MemberKey, ConsumerGroupKey}
    assert consumer_group(core).state is ConsumerGroupState.EMPTY
    assert dict(outcome.records)[ConsumerGroupKey(GROUP)] is not None


def test_the_bytes_of_an_assignment_are_the_same_in_every_process() -> None:
    topics = [TopicId(bytes([number]) * 16) for number in range(40)]
    member = ConsumerMember(A, assigned={topic: {0: 1} for topic in frozenset(topics)})
    _, value = records.current_assignment(GROUP, member)
    assert list(value.assigned) == topics  # type: ignore[union-attr]
    _, value = records.target(GROUP, A, {topic: frozenset([0]) for topic in frozenset(topics)})
    assert list(value.partitions) == topics  # type: ignore[union-attr]
