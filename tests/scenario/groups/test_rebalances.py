"""Rebalances as stories: who joins, dies, leaves and comes back, and what each is told."""

from __future__ import annotations

from typing import Any

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import MemberId
from oncelog.core.groups.model import JoinReply, SyncReply
from oncelog.core.groups.settings import GroupSettings
from tests.scenario.groups.driver import Driver


def joined(reply: object) -> JoinReply:
    """A JoinReply without an error."""
    assert isinstance(reply, JoinReply), reply
    assert reply.error_code is ErrorCode.NONE, reply
    return reply


def error_of(reply: Any) -> ErrorCode:
    """The error code of any reply."""
    return ErrorCode(getattr(reply, "error_code", reply))


def new_id(driver: Driver, name: str = "m", **kwargs: Any) -> str:
    """A member id, as a new dynamic member gets it."""
    reply = driver.join(name=name, **kwargs)
    assert isinstance(reply, JoinReply)
    assert reply.error_code is ErrorCode.MEMBER_ID_REQUIRED
    return reply.member_id


def stable_group(driver: Driver, *names: str) -> tuple[list[str], int]:
    """A Stable group of dynamic members with those names, the first of them leader; ids and generation."""
    ids = [new_id(driver, name) for name in names]
    tokens = []
    for member_id in ids:
        assert driver.join(member_id) is None
        tokens.append(driver.last_token)
    driver.advance(6000 if len(names) > 1 else 3000)
    generation = joined(driver.replies[tokens[0]]).generation
    for member_id in ids[1:]:
        assert driver.sync(member_id, generation) is None
    driver.sync(ids[0], generation, {member_id: f"for {member_id}".encode() for member_id in ids})
    assert driver.state() == "Stable"
    return ids, generation


def test_two_members_join_and_get_their_assignments() -> None:
    driver = Driver()
    a, b = new_id(driver, "a"), new_id(driver, "b")
    assert driver.join(a) is None
    first = driver.last_token
    driver.advance(1000)
    assert driver.join(b) is None
    second = driver.last_token
    driver.advance(1999)
    assert not {first, second} & driver.replies.keys()
    driver.advance(1)
    assert not {first, second} & driver.replies.keys(), "a member came: the initial delay is extended once"
    driver.advance(3000)
    leader, follower = joined(driver.replies[first]), joined(driver.replies[second])
    assert (leader.generation, leader.leader, leader.protocol_name) == (1, a, "range")
    assert [member.member_id for member in leader.members] == [a, b]
    assert follower.members == ()
    assert driver.state() == "CompletingRebalance"

    assert driver.sync(b, 1) is None
    waiting = driver.last_token
    mine = driver.sync(a, 1, {a: b"for a", b: b"for b"})
    assert mine == SyncReply(ErrorCode.NONE, "consumer", "range", b"for a")
    assert driver.replies[waiting] == SyncReply(ErrorCode.NONE, "consumer", "range", b"for b")
    assert driver.state() == "Stable"
    assert driver.sync(b, 1) == driver.replies[waiting], "a retried SyncGroup gets the same assignment"


def test_the_initial_delay_is_extended_up_to_the_rebalance_timeout() -> None:
    driver = Driver()
    tokens = []
    for i in range(5):
        assert driver.join(name=f"m{i}", version=3, rebalance_ms=10_000) is None
        tokens.append(driver.last_token)
        driver.advance(2500)
    assert len(joined(driver.replies[tokens[0]]).members) == 4, "the fifth came after 10 s"
    assert driver.state() == "PreparingRebalance"


def test_one_member_dies_in_the_middle_of_a_rebalance_and_the_others_go_on() -> None:
    driver = Driver()
    (a, b), generation = stable_group(driver, "a", "b")
    c = new_id(driver, "c")
    assert driver.join(c) is None
    newcomer = driver.last_token
    assert driver.heartbeat(a, generation) is ErrorCode.REBALANCE_IN_PROGRESS
    assert driver.join(a) is None
    rejoined = driver.last_token
    driver.advance(9_999)
    assert rejoined not in driver.replies, "b has its session to come back"
    driver.advance(1)
    reply = joined(driver.replies[rejoined])
    assert [member.member_id for member in reply.members] == [a, c]
    assert joined(driver.replies[newcomer]).generation == generation + 1
    assert error_of(driver.heartbeat(b, generation)) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_member_that_heartbeats_but_never_rejoins_is_out_at_the_rebalance_timeout() -> None:
    driver = Driver()
    (a, b), generation = stable_group(driver, "a", "b")
    assert driver.join(a) is None  # the leader joins again: a rebalance
    rejoined = driver.last_token
    for _ in range(12):
        driver.advance(5000)
        driver.heartbeat(b, generation)
    assert [member.member_id for member in joined(driver.replies[rejoined]).members] == [a]


def test_the_leader_leaves_and_another_member_leads() -> None:
    driver = Driver()
    (a, b), generation = stable_group(driver, "a", "b")
    left = driver.leave(a)
    assert left.members[0][1] is ErrorCode.NONE
    assert driver.state() == "PreparingRebalance"
    assert driver.heartbeat(b, generation) is ErrorCode.REBALANCE_IN_PROGRESS
    reply = joined(driver.join(b))
    assert (reply.leader, reply.generation) == (b, generation + 1)


def test_the_last_member_leaves_and_the_group_is_empty_in_the_log_too() -> None:
    driver = Driver()
    (a,), generation = stable_group(driver, "a")
    driver.commit({0: 7}, a, generation)
    driver.leave(a)
    assert driver.state() == "Empty"
    assert driver.fetch() == {("t", 0): 7}
    assert error_of(driver.sync(a, generation)) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_leader_that_does_not_rejoin_loses_the_lead() -> None:
    driver = Driver()
    (a, b), generation = stable_group(driver, "a", "b")
    c = new_id(driver, "c")
    assert driver.join(c) is None
    assert driver.join(b) is None
    rejoined = driver.last_token
    for _ in range(12):
        driver.advance(5000)
        driver.heartbeat(a, generation)
    assert joined(driver.replies[rejoined]).leader == b


def test_a_leader_that_dies_before_it_assigns_starts_a_new_rebalance() -> None:
    driver = Driver()
    (a, b), generation = stable_group(driver, "a", "b")
    assert driver.join(a) is None
    assert driver.join(b) is not None
    generation += 1
    assert driver.sync(b, generation) is None
    waiting = driver.last_token
    driver.advance(10_000)
    assert error_of(driver.replies[waiting]) is ErrorCode.REBALANCE_IN_PROGRESS
    assert joined(driver.join(b)).leader == b


def test_members_that_never_sync_are_removed_at_the_rebalance_timeout() -> None:
    driver = Driver()
    (a, b), generation = stable_group(driver, "a", "b")
    assert driver.join(a) is None
    driver.join(b)
    generation += 1
    driver.sync(a, generation, {a: b"1", b: b"2"})
    assert driver.state() == "Stable"
    for _ in range(12):
        driver.advance(5000)
        driver.heartbeat(a, generation)
        driver.heartbeat(b, generation)
    assert driver.members() == [a]
    assert driver.state() == "PreparingRebalance"


def test_a_pending_member_holds_the_rebalance_up_until_its_session_ends() -> None:
    driver = Driver()
    (a,), generation = stable_group(driver, "a")
    new_id(driver, "b", session_ms=6000)
    assert driver.join(a) is None
    waiting = driver.last_token
    driver.advance(5999)
    assert waiting not in driver.replies
    driver.advance(1)
    assert joined(driver.replies[waiting]).generation == generation + 1


def test_a_new_member_whose_client_is_gone_does_not_stay_for_ever() -> None:
    driver = Driver(GroupSettings(initial_rebalance_delay_ms=0, max_session_timeout_ms=3_600_000))
    assert driver.join(name="a", instance="i1", session_ms=3_600_000, rebalance_ms=3_600_000) is None
    driver.advance(0)
    a = joined(driver.replies[driver.last_token]).member_id
    driver.sync(a, 1, {a: b""}, instance="i1")
    assert driver.join(name="ghost", version=3, rebalance_ms=3_600_000, session_ms=3_600_000) is None
    ghost = driver.last_token
    driver.advance(299_999)
    assert ghost not in driver.replies
    driver.advance(1)
    assert error_of(driver.replies[ghost]) is ErrorCode.UNKNOWN_MEMBER_ID
    assert driver.members() == [a]


def test_join_retries_in_one_generation_get_the_same_answer() -> None:
    driver = Driver()
    a, b = new_id(driver, "a"), new_id(driver, "b")
    driver.join(a)
    driver.join(b)
    driver.advance(6000)
    leader, follower = joined(driver.join(a)), joined(driver.join(b))
    assert (leader.generation, len(leader.members)) == (1, 2)
    assert (follower.generation, follower.members) == (1, ())
    driver.sync(a, 1, {a: b"x", b: b"y"})
    assert joined(driver.join(b)).generation == 1, "a follower that changed nothing does not start a rebalance"
    assert driver.join(a) is None, "the leader does"
    assert driver.state() == "PreparingRebalance"


def test_a_second_join_of_a_parked_member_takes_the_place_of_the_first() -> None:
    driver = Driver()
    (a, b), _ = stable_group(driver, "a", "b")
    assert driver.join(a) is None
    first = driver.last_token
    assert driver.join(a) is None
    second = driver.last_token
    assert error_of(driver.replies[first]) is ErrorCode.REBALANCE_IN_PROGRESS
    driver.join(b)
    assert joined(driver.replies[second]).leader == a


def test_changed_metadata_starts_a_rebalance() -> None:
    driver = Driver()
    (_, b), _ = stable_group(driver, "a", "b")
    assert driver.join(b, protocols=("range", "roundrobin")) is None
    assert driver.state() == "PreparingRebalance"


class TestStaticMembers:
    """KIP-345 and KIP-814."""

    def group(self) -> tuple[Driver, str, str]:
        """A Stable group of two static members: the leader ``i1`` and ``i2``."""
        driver = Driver()
        driver.join(name="a", instance="i1")
        first = driver.last_token
        driver.join(name="b", instance="i2")
        second = driver.last_token
        driver.advance(6000)
        a, b = joined(driver.replies[first]).member_id, joined(driver.replies[second]).member_id
        driver.sync(b, 1, instance="i2")
        driver.sync(a, 1, {a: b"for a", b: b"for b"}, instance="i1")
        assert driver.state() == "Stable"
        return driver, a, b

    def test_a_restarted_member_goes_on_without_a_rebalance(self) -> None:
        driver, a, b = self.group()
        records = len(driver.log)
        reply = joined(driver.join(instance="i2"))
        assert reply.member_id != b
        assert (reply.generation, reply.leader, reply.skip_assignment) == (1, a, False)
        assert driver.state() == "Stable"
        assert len(driver.log) == records + 1, "the new id is in the log"
        synced = driver.sync(reply.member_id, 1, instance="i2")
        assert isinstance(synced, SyncReply)
        assert synced.assignment == b"for b"
        assert driver.heartbeat(b, 1, instance="i2") is ErrorCode.FENCED_INSTANCE_ID
        assert driver.heartbeat(b, 1) is ErrorCode.UNKNOWN_MEMBER_ID
        assert error_of(driver.commit({0: 1}, b, 1, instance="i2")) is ErrorCode.FENCED_INSTANCE_ID
        assert error_of(driver.join(b, instance="i2")) is ErrorCode.FENCED_INSTANCE_ID

    def test_a_restarted_leader_is_told_not_to_assign_again(self) -> None:
        driver, a, _ = self.group()
        reply = joined(driver.join(instance="i1"))
        assert reply.leader == reply.member_id != a
        assert reply.skip_assignment
        assert len(reply.members) == 2

    def test_an_old_client_that_was_the_leader_is_told_the_old_id_leads(self) -> None:
        driver, a, _ = self.group()
        reply = joined(driver.join(instance="i1", version=8))
        assert reply.leader == a != reply.member_id
        assert reply.members == ()
        assert not reply.skip_assignment

    def test_a_restart_during_the_sync_phase_starts_a_new_rebalance(self) -> None:
        driver, a, b = self.group()
        driver.join(a, instance="i1")
        driver.join(b, instance="i2")
        assert driver.state() == "CompletingRebalance"
        assert driver.sync(b, 2, instance="i2") is None
        waiting = driver.last_token
        assert driver.join(instance="i2") is None
        assert error_of(driver.replies[waiting]) is ErrorCode.FENCED_INSTANCE_ID
        assert driver.state() == "PreparingRebalance"

    def test_a_restart_during_the_join_phase_fences_the_parked_request(self) -> None:
        driver, _, b = self.group()
        assert driver.join(b, instance="i2", protocols=("range", "x")) is None
        waiting = driver.last_token
        assert driver.join(instance="i2", protocols=("range", "x")) is None
        assert driver.replies[waiting] == JoinReply(ErrorCode.FENCED_INSTANCE_ID, MemberId(b))

    def test_static_members_are_not_removed_by_the_rebalance_timeout(self) -> None:
        driver, a, b = self.group()
        assert driver.join(a, instance="i1", session_ms=300_000, rebalance_ms=20_000) is None
        for _ in range(12):
            driver.advance(5000)
            driver.heartbeat(b, 1, instance="i2")
        assert driver.members() == [a, b]
        assert driver.state() == "CompletingRebalance"

    def test_an_administrator_removes_a_member_by_its_instance_id(self) -> None:
        driver, a, _ = self.group()
        reply = driver.leave(("", "i2"), ("", "i9"), ("x", None), (a, "i2"))
        codes = [code for _, code in reply.members]
        unknown = ErrorCode.UNKNOWN_MEMBER_ID
        assert codes == [ErrorCode.NONE, unknown, unknown, unknown]
        assert driver.members() == [a]

    def test_a_new_id_that_cannot_be_written_is_taken_back(self) -> None:
        driver, _, b = self.group()
        driver.refuse_appends = True
        assert driver.join(instance="i2") is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert driver.heartbeat(b, 1, instance="i2") is ErrorCode.NONE


def test_an_assignment_that_cannot_be_written_sends_all_back_to_join() -> None:
    driver = Driver()
    (a, b), generation = stable_group(driver, "a", "b")
    driver.join(a)
    driver.join(b)
    generation += 1
    assert driver.sync(b, generation) is None
    waiting = driver.last_token
    driver.refuse_appends = True
    assert driver.sync(a, generation, {a: b"", b: b""}) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert error_of(driver.replies[waiting]) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert driver.state() == "PreparingRebalance"


def test_a_group_that_cannot_be_written_does_not_come_to_be() -> None:
    driver = Driver()
    driver.refuse_appends = True
    assert driver.join() is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert driver.state() == "Dead"


class TestLoad:
    """The state that a broker reads from the log, after a take-over or a restart."""

    def test_members_have_a_whole_session_to_find_the_new_coordinator(self) -> None:
        driver = Driver()
        (a,), generation = stable_group(driver, "a")
        again = Driver(now_ms=driver.now_ms + 60_000, log=driver.log)
        again.advance(9_999)
        assert again.heartbeat(a, generation) is ErrorCode.NONE
        again.advance(10_000)
        assert again.state() == "Empty"

    def test_a_group_that_is_larger_than_now_allowed_rebalances_down(self) -> None:
        driver = Driver()
        (a, b), _ = stable_group(driver, "a", "b")
        again = Driver(GroupSettings(max_size=1), driver.now_ms, driver.log)
        assert again.state() == "PreparingRebalance"
        assert again.join(b) is None
        assert error_of(again.join(a)) is ErrorCode.GROUP_MAX_SIZE_REACHED

    def test_unloading_sends_everybody_who_waits_away(self) -> None:
        driver = Driver()
        (a, _), _ = stable_group(driver, "a", "b")
        driver.join(a)
        token = driver.last_token
        released = driver.shard.unloaded(driver.now_ms).released
        assert [(waiting, error_of(reply)) for waiting, reply in released] == [(token, ErrorCode.NOT_COORDINATOR)]


def test_a_full_group_refuses_newcomers_and_keeps_its_members() -> None:
    driver = Driver(GroupSettings(initial_rebalance_delay_ms=0, max_size=1))
    a = new_id(driver, "a")
    driver.join(a)
    driver.advance(0)
    assert joined(driver.join(a)).generation == 1
    assert error_of(driver.join(name="b")) is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert error_of(driver.join(name="b", version=3)) is ErrorCode.GROUP_MAX_SIZE_REACHED
