"""One step of a member towards its target (KIP-848): revoke first, then move on, then take what has become free."""

from __future__ import annotations

from oncelog.base.ids import MemberId, TopicId
from oncelog.core.groups.consumer.member import ConsumerMember
from oncelog.core.groups.consumer.reconciliation import Target, reconcile
from oncelog.core.groups.modern.members import MemberState

A, B = TopicId(b"a" * 16), TopicId(b"b" * 16)
STABLE, UNREVOKED, UNRELEASED = MemberState.STABLE, MemberState.UNREVOKED_PARTITIONS, MemberState.UNRELEASED_PARTITIONS


def member(
    epoch: int, assigned: dict[TopicId, dict[int, int]], state: MemberState = STABLE, **fields: object
) -> ConsumerMember:
    return ConsumerMember(MemberId("m"), epoch, epoch - 1, state, assigned=assigned, **fields)  # type: ignore[arg-type]


def free(topic: TopicId) -> dict[int, MemberId]:
    """Every partition is free."""
    return {}


def test_a_stable_member_in_the_targets_epoch_stays_as_it_is() -> None:
    before = member(5, {A: {0: 3}})
    assert reconcile(before, Target(5, {A: frozenset([0])}), None, [A], free) is before


def test_new_partitions_are_taken_in_the_epoch_of_the_target() -> None:
    after = reconcile(member(5, {A: {0: 3}}), Target(6, {A: frozenset([0, 1])}), None, [A], free)
    assert (after.epoch, after.previous_epoch, after.state) == (6, 5, STABLE)
    assert after.assigned == {A: {0: 3, 1: 6}}


def test_partitions_of_another_member_are_waited_for() -> None:
    def owners(topic: TopicId) -> dict[int, MemberId]:
        return {1: MemberId("other")}

    after = reconcile(member(5, {}), Target(6, {A: frozenset([0, 1])}), None, [A], owners)
    assert (after.epoch, after.state, after.assigned) == (6, UNRELEASED, {A: {0: 6}})
    later = reconcile(after, Target(6, {A: frozenset([0, 1])}), None, [A], free)
    assert (later.epoch, later.state, later.assigned) == (6, STABLE, {A: {0: 6, 1: 6}})


def test_a_member_that_has_to_give_up_stays_in_its_epoch_until_it_says_so() -> None:
    target = Target(6, {A: frozenset([0])})
    after = reconcile(member(5, {A: {0: 3, 1: 4}}), target, None, [A], free)
    assert (after.epoch, after.previous_epoch, after.state) == (5, 5, UNREVOKED)
    assert (after.assigned, after.pending_revocation) == ({A: {0: 3}}, {A: {1: 4}})
    assert reconcile(after, target, None, [A], free) is after, "no list of owned partitions: it may still own it"
    assert reconcile(after, target, {A: frozenset([0, 1])}, [A], free) is after
    done = reconcile(after, target, {A: frozenset([0])}, [A], free)
    assert (done.epoch, done.state, done.assigned, done.pending_revocation) == (6, STABLE, {A: {0: 3}}, {})


def test_nothing_waits_for_a_member_that_has_given_up_already() -> None:
    after = reconcile(member(5, {A: {0: 3, 1: 4}}), Target(6, {A: frozenset([0])}), {A: frozenset([0])}, [A], free)
    assert (after.epoch, after.state, after.assigned) == (6, STABLE, {A: {0: 3}})


def test_a_partition_that_the_member_itself_gives_up_is_free_for_it() -> None:
    """KAFKA-16147: the target changes back before the revocation is confirmed."""

    def own(topic: TopicId) -> dict[int, MemberId]:
        return {0: MemberId("m"), 1: MemberId("m")}

    before = member(5, {A: {0: 3}}, UNREVOKED, pending_revocation={A: {1: 4}})
    after = reconcile(before, Target(7, {A: frozenset([0, 1])}), {A: frozenset([0])}, [A], own)
    assert (after.epoch, after.state, after.assigned) == (7, STABLE, {A: {0: 3, 1: 7}})


def test_a_topic_that_is_not_subscribed_any_longer_is_given_up_in_the_same_epoch() -> None:
    before = member(5, {A: {0: 3}, B: {0: 3}})
    target = Target(5, {A: frozenset([0]), B: frozenset([0])})
    after = reconcile(before, target, None, [A], free, subscription_changed=True)
    assert (after.epoch, after.state) == (5, UNREVOKED)
    assert (after.assigned, after.pending_revocation) == ({A: {0: 3}}, {B: {0: 3}})


def test_a_topic_that_is_not_subscribed_counts_as_absent_from_the_target() -> None:
    after = reconcile(member(5, {}), Target(6, {A: frozenset([0]), B: frozenset([0])}), None, [A], free)
    assert after.assigned == {A: {0: 6}}


def test_a_member_of_an_unknown_state_is_reconciled_from_scratch() -> None:
    before = member(5, {A: {0: 3}}, MemberState.UNKNOWN)
    after = reconcile(before, Target(6, {A: frozenset([0])}), {}, [A], free)
    assert (after.epoch, after.state) == (6, STABLE)


def test_the_owners_of_a_topic_are_looked_up_once_for_all_its_partitions() -> None:
    look_ups = []

    def owners(topic: TopicId) -> dict[int, MemberId]:
        look_ups.append(topic)
        return {7: MemberId("other")}

    after = reconcile(member(5, {}), Target(6, {A: frozenset(range(1000))}), None, [A], owners)
    assert (look_ups, after.state, len(after.assigned[A])) == ([A], UNRELEASED, 999)
