"""The states of a classic consumer group, the events that change them, and the table of transitions.

The protocol (KIP-62 and before; static members KIP-345, member ids KIP-394). A rebalance has two phases. In the
*join* phase (PreparingRebalance) every member's JoinGroup is parked until all have arrived or the rebalance time-out
passes; then the generation rises by one, one member becomes leader, and all are answered. In the *sync* phase
(CompletingRebalance) every member's SyncGroup is parked until the leader sends the assignment. Once that is in the log,
all are answered and the group is Stable.

The states, and the requests that may be parked in them:

* Empty: no members; possibly offsets. Nothing is parked. Pending members, which have an id but have not rejoined yet,
  may exist in every state.
* PreparingRebalance: members may have a parked JoinGroup. The join timer runs.
* CompletingRebalance: members may have a parked SyncGroup, never a JoinGroup. The sync timer runs.
* Stable: the generation's assignment is in the log. Nothing is parked.
* Dead: removed from its shard, or the shard was unloaded. Nothing refers to it.

Members, bytes and time are elsewhere; ``group`` has the numbered invariants.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

from oncelog.base.invariant import invariant


class GroupState(Enum):
    """A state, by Apache Kafka's name in DescribeGroups and ListGroups."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
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
