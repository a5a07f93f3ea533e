"""The transition table, whole: what it lists and what it refuses."""

from __future__ import annotations

import pytest

from oncelog.base.invariant import InvariantViolation
from oncelog.core.groups.classic.states import TRANSITIONS, GroupEvent, GroupState, can_rebalance, next_state

EMPTY, PREPARING = GroupState.EMPTY, GroupState.PREPARING_REBALANCE
COMPLETING, STABLE, DEAD = GroupState.COMPLETING_REBALANCE, GroupState.STABLE, GroupState.DEAD

PREVIOUS = {
    EMPTY: {PREPARING},
    PREPARING: {STABLE, COMPLETING, EMPTY},
    COMPLETING: {PREPARING},
    STABLE: {COMPLETING},
    DEAD: {STABLE, PREPARING, COMPLETING, EMPTY},
}
"""Apache Kafka's rule, state by state: where one may come from (it also lets Dead follow Dead)."""


def test_the_table_allows_exactly_what_apache_kafka_allows() -> None:
    result: dict[GroupState, set[GroupState]] = {state: set() for state in GroupState}
    for state, events in TRANSITIONS.items():
        for following in events.values():
            result[following].add(state)
    assert result == PREVIOUS


@pytest.mark.parametrize("state", GroupState)
@pytest.mark.parametrize("event", GroupEvent)
def test_each_pair_is_a_row_or_a_broken_invariant(state: GroupState, event: GroupEvent) -> None:
    if event in TRANSITIONS[state]:
        assert next_state(state, event) is TRANSITIONS[state][event]
    else:
        with pytest.raises(InvariantViolation, match=event.name):
            next_state(state, event)


def test_a_rebalance_may_start_wherever_none_is_running() -> None:
    assert {state for state in GroupState if can_rebalance(state)} == {EMPTY, COMPLETING, STABLE}
