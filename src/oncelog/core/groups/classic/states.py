"""The states of a classic consumer group, the events that change them, and the table of transitions.

A rebalance has two phases (KIP-62; static members KIP-345, member ids KIP-394). The *join* phase (PreparingRebalance)
parks every JoinGroup until all members have sent one or the rebalance time-out passes; then the generation rises and a
leader is chosen. The *sync* phase (CompletingRebalance) parks every SyncGroup until the leader's assignment is in the
log. Pending members, which have an id but have not joined yet, may exist in every state. See docs/internals/groups.md.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

from oncelog.base.invariant import invariant


class GroupState(Enum):
    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    # Removed from its shard, or the shard was unloaded: nothing refers to the group.
    DEAD = "Dead"


class GroupEvent(Enum):
    REBALANCE = "a member joined, left, failed or changed: all have to rejoin"
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
"""State → event → next state. An event that a state does not list is our bug, not a peer's."""


def next_state(state: GroupState, event: GroupEvent) -> GroupState:
    """The state after ``event``. Raises InvariantViolation if the table does not list it."""
    invariant(
        event in TRANSITIONS[state],
        "an event that the group's state does not allow",
        state=state.value,
        event=event.name,
    )
    return TRANSITIONS[state][event]


def can_rebalance(state: GroupState) -> bool:
    return GroupEvent.REBALANCE in TRANSITIONS[state]
