"""The high watermark as the leader works it out from its in-sync set."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.base.ids import BrokerId, Offset
from oncelog.base.invariant import InvariantViolation
from oncelog.core.replicas.leader import LeaderReplicas

A, B, C = BrokerId(1), BrokerId(2), BrokerId(3)


def replicas(*in_sync: BrokerId, high_watermark: int = 0) -> LeaderReplicas:
    return LeaderReplicas(A, (A, B, C), in_sync, Offset(high_watermark))


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
    assert replicas(A).least_in_sync(2) == 2
    assert LeaderReplicas(A, (A,), (A,), Offset(0)).least_in_sync(2) == 1
    assert replicas(A, C).in_sync_count == 2


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
            in_sync = [A, *(each for each in (B, C) if (number >> each) & 1 and ends[each] >= leader.high_watermark)]
            leader.change_in_sync((A, B, C), in_sync)
            continue
        ends[replica] = max(ends[replica], number)
        told = leader.advance(replica, Offset(ends[replica]))
        assert told >= highest
        assert all(ends[each] >= told for each in in_sync)
        highest = told
