"""The high watermark as the leader works it out from its in-sync set."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.base.ids import BrokerId, Offset
from oncelog.base.invariant import InvariantViolation
from oncelog.core.replicas.leader import Follower, LeaderReplicas

A, B, C = BrokerId(1), BrokerId(2), BrokerId(3)
NOW = 1_000_000
LAG_MS = 30_000


def replicas(
    *in_sync: BrokerId, high_watermark: int = 0, epoch_start: int = 0, min_insync_replicas: int = 1
) -> LeaderReplicas:
    return LeaderReplicas(
        A,
        (A, B, C),
        in_sync,
        Offset(high_watermark),
        epoch_start=Offset(epoch_start),
        min_insync_replicas=min_insync_replicas,
        now_ms=NOW,
    )


def fetch(leader: LeaderReplicas, replica: BrokerId, offset: int, leader_end: int, now_ms: int = NOW) -> Follower:
    follower = leader.follower(replica)
    assert follower is not None
    follower.fetched(Offset(offset), Offset(leader_end), 7, now_ms)
    return follower


def test_alone_in_sync_the_leaders_own_end_is_the_high_watermark() -> None:
    assert replicas(A).advance(A, Offset(7)) == 7


def test_the_slowest_of_the_in_sync_set_decides() -> None:
    three = replicas(A, B, C)
    assert [three.advance(A, Offset(9)), three.advance(B, Offset(5)), three.advance(C, Offset(7))] == [0, 0, 5]
    assert three.advance(B, Offset(9)) == 7


def test_who_is_not_in_sync_moves_nothing() -> None:
    two = replicas(A, B)
    two.advance(A, Offset(9))
    assert two.advance(C, Offset(9)) == 0


def test_a_member_whose_end_is_not_known_holds_the_high_watermark_where_it_is() -> None:
    one = replicas(A)
    one.advance(A, Offset(5))
    one.change_in_sync((A, B, C), (A, B))
    assert one.advance(A, Offset(8)) == 5
    assert one.advance(B, Offset(6)) == 6


def test_a_member_that_left_does_not_hold_it_any_more() -> None:
    two = replicas(A, B)
    two.advance(A, Offset(9))
    two.advance(B, Offset(3))
    two.change_in_sync((A, B, C), (A,))
    assert two.advance(A, Offset(9)) == 9


def test_never_more_replicas_are_asked_for_than_there_are() -> None:
    assert replicas(A, min_insync_replicas=2).min_in_sync() == 2
    assert LeaderReplicas(A, (A,), (A,), Offset(0), min_insync_replicas=2).min_in_sync() == 1
    assert replicas(A, C).in_sync_count == 2
    assert not replicas(A, min_insync_replicas=2).has_enough_in_sync()
    assert replicas(A, C, min_insync_replicas=2).has_enough_in_sync()


def test_below_min_insync_replicas_the_high_watermark_waits() -> None:
    """KIP-966: what only too few replicas have is not shown to anybody, so that it may be lost."""
    one = replicas(A, min_insync_replicas=2)
    assert one.advance(A, Offset(7)) == 0
    fetch(one, B, 5, 7)
    one.change_in_sync((A, B, C), (A, B))
    assert one.settle() == 5


def test_a_proposed_member_counts_before_it_is_committed() -> None:
    """KIP-497: the tree may have the new set already, and a controller may elect from it."""
    one = replicas(A)
    one.advance(A, Offset(5))
    fetch(one, B, 5, 5)
    one.propose((A, B))
    assert one.advance(A, Offset(9)) == 5
    one.withdraw()
    assert one.settle() == 9


def test_a_member_that_is_proposed_to_leave_counts_until_it_has_left() -> None:
    two = replicas(A, B)
    two.advance(A, Offset(9))
    two.advance(B, Offset(3))
    two.propose((A,))
    assert two.settle() == 3
    two.change_in_sync((A, B, C), (A,))
    assert two.settle() == 9
    two.withdraw()
    assert not two.has_proposed


def test_a_proposal_outlives_a_state_that_does_not_have_it() -> None:
    """The topic has changed elsewhere, in another partition or in the replicas that are being added."""
    one = replicas(A)
    one.advance(A, Offset(5))
    fetch(one, B, 5, 5)
    one.propose((A, B))
    one.change_in_sync((A, B, C), (A,))
    assert one.has_proposed
    assert one.advance(A, Offset(9)) == 5


def test_a_follower_joins_at_the_high_watermark_and_past_the_start_of_the_epoch() -> None:
    """KAFKA-7128: the high watermark of a new leader may be behind what was acknowledged under the one before."""
    one = replicas(A, high_watermark=4, epoch_start=8)
    fetch(one, B, 4, 10)
    assert not one.may_join(B)
    fetch(one, B, 8, 10)
    assert one.may_join(B)
    assert not one.may_join(C)  # has not fetched
    one.advance(A, Offset(10))
    assert not one.may_join(B)  # the high watermark has passed it


def test_who_is_in_sync_or_proposed_does_not_join_again() -> None:
    two = replicas(A, B)
    fetch(two, B, 0, 0)
    fetch(two, C, 0, 0)
    two.propose((A, B, C))
    assert not two.may_join(B)
    assert not two.may_join(C)


def test_the_high_watermark_waits_for_one_that_is_about_to_join() -> None:
    one = replicas(A)
    fetch(one, B, 5, 9).is_joining = True
    assert one.advance(A, Offset(9)) == 5
    assert not one.drop_stalled_joiners(Offset(9), NOW + LAG_MS, LAG_MS)
    assert one.drop_stalled_joiners(Offset(9), NOW + LAG_MS + 1, LAG_MS)
    assert one.settle() == 9


def test_a_follower_that_has_all_or_had_all_a_moment_ago_is_caught_up() -> None:
    three = replicas(A, B, C)
    fetch(three, B, 5, 5, NOW)
    fetch(three, B, 5, 9, NOW + 10)  # had all when it fetched before
    fetch(three, C, 4, 5, NOW + 5)
    assert three.lagging(Offset(9), NOW + LAG_MS, LAG_MS) == []
    assert three.lagging(Offset(9), NOW + LAG_MS + 1, LAG_MS) == [B, C]
    fetch(three, C, 5, 9, NOW + LAG_MS)  # all that there was at its last fetch
    assert three.lagging(Offset(9), NOW + LAG_MS + 1, LAG_MS) == [B]
    fetch(three, B, 9, 9, NOW + LAG_MS)
    assert three.lagging(Offset(9), NOW + 9 * LAG_MS, LAG_MS) == [C]


def test_a_follower_that_never_fetches_leaves_after_its_time() -> None:
    two = replicas(A, B)
    assert two.lagging(Offset(0), NOW + LAG_MS, LAG_MS) == []
    assert two.lagging(Offset(0), NOW + LAG_MS + 1, LAG_MS) == [B]


def test_a_restarted_follower_may_have_less() -> None:
    two = replicas(A, B)
    two.advance(A, Offset(9))
    fetch(two, B, 9, 9)
    assert two.settle() == 9
    fetch(two, B, 3, 12)
    two.advance(A, Offset(12))
    assert (two.high_watermark, two.settle()) == (9, 9)


def test_one_proposal_at_a_time() -> None:
    one = replicas(A)
    one.propose((A, B))
    with pytest.raises(InvariantViolation):
        one.propose((A, C))


def test_a_leader_outside_its_in_sync_set_is_a_broken_invariant() -> None:
    with pytest.raises(InvariantViolation):
        replicas(B, C)


@given(st.lists(st.tuples(st.sampled_from([A, B, C, None]), st.integers(0, 50)), max_size=40))
def test_it_never_falls_and_never_passes_an_in_sync_replica(steps: list[tuple[BrokerId | None, int]]) -> None:
    """Ends rise, as logs do without truncation; members join once they have reached the high watermark."""
    leader, ends, in_sync = replicas(A), dict.fromkeys((A, B, C), 0), [A]
    highest = 0
    for replica, number in steps:
        if replica is None:
            in_sync = [A, *(item for item in (B, C) if (number >> item) & 1 and ends[item] >= leader.high_watermark)]
            leader.change_in_sync((A, B, C), in_sync)
            continue
        ends[replica] = max(ends[replica], number)
        told = leader.advance(replica, Offset(ends[replica]))
        assert told >= highest
        assert all(ends[item] >= told for item in in_sync)
        highest = told
