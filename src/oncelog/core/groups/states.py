"""The states of a classic consumer group and the events that move it: the whole table, and nothing else.

The protocol (KIP-62 and before; static members KIP-345, member ids KIP-394). A rebalance has two phases. In the
*join* phase (PreparingRebalance) every member's JoinGroup is parked until all have come or the rebalance timeout
passes; then the generation rises by one, one member is named leader, and all are answered. In the *sync* phase
(CompletingRebalance) every member's SyncGroup is parked until the leader sends the assignment; it is written to the
log, and when it is, all are answered and the group is Stable.

What each state means, and what may be parked in it:

* Empty: no members; perhaps offsets. Nothing is parked. Members that were given an id and have not come back yet
  ("pending") may exist in every state.
* PreparingRebalance: members may hold a JoinGroup token. The join timer runs.
* CompletingRebalance: members may hold a SyncGroup token; nobody holds a JoinGroup token. The sync timer runs.
* Stable: the assignment of this generation is in the log. Nothing is parked.
* Dead: removed from its shard, or the shard was unloaded. Nothing refers to it any more.

This module knows neither members nor bytes nor time; ``group.py`` has the numbered invariants.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

from oncelog.base.invariant import invariant


class GroupState(Enum):
    """A state, by the name Apache Kafka shows in DescribeGroups and ListGroups."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


class GroupEvent(Enum):
    """The events that move a group from one state to another."""

    REBALANCE = "a member came, left, failed or changed: everyone has to join again"
    JOINED = "the join phase ended with members"
    EMPTIED = "the join phase ended without members"
    ASSIGNED = "the leader's assignment is in the log"
    REMOVED = "the group was deleted or its shard unloaded"


TRANSITIONS: Final[dict[GroupState, dict[GroupEvent, GroupState]]] = {
    GroupState.EMPTY: {
        GroupEvent.REBALANCE: GroupState.PREPARING_REBALANCE,
        GroupEvent.REMOVED: GroupState.DEAD,
    },
    GroupState.PREPARING_REBALANCE: {
        GroupEvent.JOINED: GroupState.COMPLETING_REBALANCE,
        GroupEvent.EMPTIED: GroupState.EMPTY,
        GroupEvent.REMOVED: GroupState.DEAD,
    },
    GroupState.COMPLETING_REBALANCE: {
        GroupEvent.ASSIGNED: GroupState.STABLE,
        GroupEvent.REBALANCE: GroupState.PREPARING_REBALANCE,
        GroupEvent.REMOVED: GroupState.DEAD,
    },
    GroupState.STABLE: {
        GroupEvent.REBALANCE: GroupState.PREPARING_REBALANCE,
        GroupEvent.REMOVED: GroupState.DEAD,
    },
    GroupState.DEAD: {},
}
"""State → event → next state. An event that a state does not list is a bug of ours, not of a peer."""


def next_state(state: GroupState, event: GroupEvent) -> GroupState:
    """The state after ``event``; raises InvariantViolation when the table has no such row."""
    invariant(event in TRANSITIONS[state], "a group cannot do that in its state", state=state.value, event=event.name)
    return TRANSITIONS[state][event]


def can_rebalance(state: GroupState) -> bool:
    return GroupEvent.REBALANCE in TRANSITIONS[state]
