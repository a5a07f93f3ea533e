"""W14 and W15: a group's generation never falls, and a generation has one leader and gives a partition to one member.

A generation is only lasting once its assignment is (SyncGroup): what JoinGroup alone has told may be told again, to
other members, after a restart. A coordinator that was frozen, and does not know yet that another has taken over, goes
on from its own last generation: no assignment of it becomes durable. So brokers that have told of a group in this life
are held to what they have told themselves; one that begins to, to all.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Final

from oncelog.sim.checkers.wire.exchange import Exchange, Report, Rising
from oncelog.wire.messages.join_group import JoinGroupResponse
from oncelog.wire.messages.sync_group import SyncGroupResponse

FELL: Final = "W14 generation fell"
SHARED: Final = "W15 generation shared wrongly"


class Generations:
    def __init__(self, report: Report, *, is_cluster: bool = False) -> None:
        self._report = report
        self._is_cluster = is_cluster
        """Another coordinator may tell again what JoinGroup alone has told, at any time."""
        self._joined: dict[str, Rising] = defaultdict(Rising)
        self._synced: dict[str, Rising] = defaultdict(Rising)
        self._synced_by: dict[tuple[int, str], Rising] = defaultdict(Rising)
        """The same by broker, for clusters."""
        self._tellers: dict[int, set[str]] = defaultdict(set)
        """Groups that a broker has told of in this life."""
        self._leaders: dict[tuple[str, int], str] = {}
        self._instances: dict[str, str] = {}
        """Group instance id by member id: a static member that comes back leads on under a new member id (KIP-345)."""
        self._with_static_members: set[str] = set()
        """Groups in which a leader that nobody was told of may be one: the answer to its coming back was lost."""
        self._ignored: set[str] = set()

    def restarted(self) -> None:
        """Forget generations that were joined and not synced."""
        self._joined.clear()
        self._leaders.clear()

    def broker_died(self, broker_id: int) -> None:
        self._tellers.pop(broker_id, None)

    def deleting(self, group: str) -> None:
        """Somebody asks for the group to be deleted: it may begin anew, whenever."""
        self._ignored.add(group)

    def joined(self, asked: Exchange, response: JoinGroupResponse, index: int) -> None:
        group, generation = asked.request.group_id, response.generation_id
        if response.error_code or generation < 0 or group in self._ignored:
            return
        if self._is_cluster:
            goes_on = group in self._tellers[asked.broker_id]
            known = self._synced_by[asked.broker_id, group] if goes_on else self._synced[group]
            self._told(known, group, generation, asked)
            self._tellers[asked.broker_id].add(group)
            return
        self._told(self._synced[group], group, generation, asked)
        self._told(self._joined[group], group, generation, asked)
        self._joined[group].sent(index, generation)
        if asked.request.group_instance_id is not None:
            self._instances[response.member_id] = asked.request.group_instance_id
            self._with_static_members.add(group)
        leader = self._leaders.get((group, generation), response.leader)
        self._leaders[group, generation] = response.leader
        if self._are_two(group, leader, response.leader):
            self._report(SHARED, f"{group}: generation {generation} is led by {leader} and by {response.leader}")

    def _are_two(self, group: str, leader: str, other: str) -> bool:
        if group in self._with_static_members and not {leader, other} <= self._instances.keys():
            return False
        return self._instances.get(leader, leader) != self._instances.get(other, other)

    def synced(self, asked: Exchange, response: SyncGroupResponse, index: int) -> None:
        group, generation = asked.request.group_id, asked.request.generation_id
        if not response.error_code and group not in self._ignored:
            self._synced[group].sent(index, generation)
            self._synced_by[asked.broker_id, group].sent(index, generation)

    def _told(self, known: Rising, group: str, generation: int, asked: Exchange) -> None:
        before = known.before(asked.came)
        if before is not None and generation < before:
            self._report(FELL, f"{group}: {before}, then {generation}")
