"""A member, step by step: what it asks for, and what it does with the outcomes."""

from __future__ import annotations

import pytest

from oncelog.base.ids import TopicName, TopicPartition
from oncelog.legacy.zookeeper_groups.machine.assignment import GroupSnapshot
from oncelog.legacy.zookeeper_groups.machine.member import MemberState, ZooKeeperMember, ZooKeeperRebalanceFailed
from oncelog.legacy.zookeeper_groups.machine.settings import ZooKeeperGroupSettings
from oncelog.legacy.zookeeper_groups.machine.starting_offsets import Storage, Stored
from oncelog.legacy.zookeeper_groups.machine.steps import (
    Claim,
    Commit,
    Connect,
    Disconnect,
    Done,
    Ends,
    Failed,
    FindEnds,
    FindOffsets,
    ReadGroup,
    Register,
    Release,
    Renew,
    SessionEnded,
    Step,
    StepOutcome,
    StopDelivery,
    Taken,
    Unavailable,
    Unregistered,
)
from oncelog.legacy.zookeeper_groups.machine.subscription import Subscription, registration_value

A, B = (TopicPartition(TopicName("t"), number) for number in range(2))
READER = registration_value(Subscription.to_topics(["t"]), 0)
TOPICS = {"t": b'{"partitions":{"0":[0],"1":[0]}}'}
ALONE = GroupSnapshot({"g_m": READER}, TOPICS, 1)
WITH_ANOTHER = GroupSnapshot({"g_m": READER, "g_z": READER}, TOPICS, 1)
OFFSETS = Stored({A: 5, B: 7}, {})


class Driven:
    """A member whose steps are answered by the test."""

    def __init__(self, settings: ZooKeeperGroupSettings | None = None) -> None:
        self.member = ZooKeeperMember("g_m", Subscription.to_topics(["t"]), settings or ZooKeeperGroupSettings("g"), 0)
        self.now_ms = 1_000

    def ask(self) -> Step | None:
        return self.member.next_step(self.now_ms)

    def answer(self, expected: type, outcome: StepOutcome = Done()) -> Step:  # noqa: B008  # it is a value
        step = self.ask()
        assert isinstance(step, expected), step
        self.member.done(outcome, self.now_ms)
        return step  # type: ignore[return-value]  # one of Step's

    def join(self, picture: GroupSnapshot = ALONE, stored: Stored = OFFSETS) -> Driven:
        self.answer(Connect)
        self.answer(Register)
        self.answer(ReadGroup, picture)
        self.answer(Claim)
        self.answer(FindOffsets, stored)
        return self


def test_it_registers_looks_claims_and_only_then_asks_where_to_begin() -> None:
    driven = Driven().join()
    assert driven.member.state is MemberState.OWNING
    assert driven.member.positions == {A: 5, B: 7}
    assert driven.member.may_deliver(driven.now_ms)
    assert driven.ask() is None


def test_partitions_without_an_offset_begin_by_the_reset() -> None:
    driven = Driven()
    for step, outcome in ((Connect, Done()), (Register, Done()), (ReadGroup, ALONE), (Claim, Done())):
        driven.answer(step, outcome)
    driven.answer(FindOffsets, Stored({A: 5}, {}))
    assert driven.answer(FindEnds, Ends({B: 100})) == FindEnds((B,), smallest=False)
    assert driven.member.positions == {A: 5, B: 100}


def test_a_change_of_its_share_is_answered_by_stop_commit_release_and_a_new_claim() -> None:
    driven = Driven().join()
    generation = driven.member.generation
    driven.member.changed()
    driven.answer(ReadGroup, WITH_ANOTHER)
    assert driven.member.processed(generation, A, 6)
    driven.answer(StopDelivery)
    assert not driven.member.processed(generation, A, 7)
    assert driven.answer(Commit) == Commit(((Storage.ZOOKEEPER, {A: 6}),))
    assert driven.answer(Release) == Release({A: "g_m-0", B: "g_m-0"})
    driven.answer(ReadGroup, WITH_ANOTHER)
    assert driven.answer(Claim) == Claim({A: "g_m-0"})


def test_a_change_that_leaves_its_share_as_it_was_stops_nothing() -> None:
    driven = Driven().join()
    generation = driven.member.generation
    driven.member.changed()
    driven.answer(ReadGroup, GroupSnapshot({"g_m": READER, "g_other": b"?"}, TOPICS, 1))
    assert (driven.member.state, driven.member.generation) == (MemberState.OWNING, generation)


def test_without_a_lease_nothing_is_delivered_or_committed() -> None:
    driven = Driven().join()
    driven.member.processed(driven.member.generation, A, 6)
    driven.now_ms += 6_000
    assert not driven.member.may_deliver(driven.now_ms)
    driven.member.commit()
    driven.answer(Renew, Unavailable())
    assert driven.ask() is None
    driven.now_ms += 200
    driven.answer(Renew)
    assert driven.member.may_deliver(driven.now_ms)
    driven.answer(Commit)


def test_the_end_of_the_session_forgets_what_was_processed() -> None:
    driven = Driven().join()
    driven.member.processed(driven.member.generation, A, 6)
    driven.member.changed()
    driven.answer(ReadGroup, SessionEnded())
    assert not driven.member.owners
    assert not driven.member.has_uncommitted
    driven.answer(Connect)


def test_a_registration_that_somebody_deleted_is_made_again_after_the_release() -> None:
    driven = Driven().join()
    driven.now_ms += 2_000
    driven.answer(Renew, Unregistered())
    driven.answer(StopDelivery)
    driven.answer(Release)
    driven.answer(ReadGroup, GroupSnapshot({}, TOPICS, 1))
    driven.answer(Register)


def test_taken_partitions_are_tried_for_five_times_and_then_it_leaves_in_order() -> None:
    driven = Driven()
    driven.answer(Connect)
    driven.answer(Register)
    for _ in range(5):
        driven.answer(ReadGroup, ALONE)
        driven.answer(Claim, Taken("/consumers/g/owners/t/0", "g_old-0"))
        driven.now_ms += 2_000
    driven.answer(StopDelivery)
    driven.answer(Release)
    driven.answer(Disconnect)
    assert driven.member.state is MemberState.FAILED
    assert isinstance(driven.member.error, ZooKeeperRebalanceFailed)
    assert "belonged to g_old-0 through 5 tries" in str(driven.member.error)


def test_a_back_off_that_a_change_cuts_short_is_no_try() -> None:
    driven = Driven()
    driven.answer(Connect)
    driven.answer(Register)
    for _ in range(20):
        driven.answer(ReadGroup, ALONE)
        driven.answer(Claim, Taken("/consumers/g/owners/t/0", "g_old-0"))
        driven.member.changed()
    driven.answer(ReadGroup, ALONE)
    driven.answer(Claim)
    driven.answer(FindOffsets, OFFSETS)
    assert driven.member.state is MemberState.OWNING


def test_dual_commit_writes_to_its_own_storage_first() -> None:
    settings = ZooKeeperGroupSettings.from_properties("g", {"offsets.storage": "kafka"})
    driven = Driven(settings).join(stored=Stored({A: 5, B: 7}, {A: 9}))
    assert driven.member.positions == {A: 9, B: 7}
    driven.member.processed(driven.member.generation, A, 10)
    driven.member.commit()
    step = driven.answer(Commit)
    assert isinstance(step, Commit)
    assert [storage for storage, _ in step.stores] == [Storage.KAFKA, Storage.ZOOKEEPER]
    assert not driven.member.has_uncommitted


def test_a_commit_that_fails_holds_up_no_release() -> None:
    driven = Driven().join()
    driven.member.processed(driven.member.generation, A, 6)
    driven.member.leave()
    driven.answer(StopDelivery)
    driven.answer(Commit, Failed("no"))
    driven.answer(Release)
    driven.answer(Disconnect)
    assert driven.member.state is MemberState.LEFT
    assert "not committed: no" in driven.member.drain_remarks()[-1]


def test_what_zookeeper_forbids_is_said_once_and_asked_again() -> None:
    driven = Driven()
    driven.answer(Connect)
    for _ in range(3):
        driven.answer(Register, Unavailable("not allowed"))
        driven.now_ms += 200
    driven.answer(Register)
    assert driven.member.drain_remarks() == ["not allowed"]


@pytest.mark.parametrize("commit", [True, False])
def test_leaving_commits_only_if_wanted(commit: bool) -> None:
    driven = Driven().join()
    driven.member.processed(driven.member.generation, A, 6)
    driven.member.leave(commit=commit)
    driven.answer(StopDelivery)
    driven.answer(Commit if commit else Release)


def test_a_partition_that_was_reset_may_commit_a_lower_offset() -> None:
    driven = Driven().join()
    generation = driven.member.generation
    driven.member.restarted(generation, B, 2)
    driven.member.processed(generation, B, 3)
    driven.member.commit()
    assert driven.answer(Commit) == Commit(((Storage.ZOOKEEPER, {B: 3}),))
