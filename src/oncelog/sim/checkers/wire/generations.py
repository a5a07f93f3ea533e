"""W14 and W15: a group's generation and the epochs of its members never fall, and a generation has one leader."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Final

from oncelog.sim.checkers.wire.exchange import Exchange, Report, Rising
from oncelog.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatResponse
from oncelog.wire.messages.join_group import JoinGroupResponse
from oncelog.wire.messages.sync_group import SyncGroupResponse

FELL: Final = "W14 generation fell"
SHARED: Final = "W15 generation shared wrongly"
# An empty group that becomes one of the consumer protocol starts with this epoch again.
_FIRST_EPOCH: Final = 2


class Generations:
    def __init__(self, report: Report, *, is_cluster: bool = False) -> None:
        self._report = report
        # In a cluster, another coordinator may hand out an unsynced generation again at any time.
        self._is_cluster = is_cluster
        self._joined: dict[str, Rising] = defaultdict(Rising)
        self._synced: dict[str, Rising] = defaultdict(Rising)
        # The same by broker, for clusters.
        self._synced_by: dict[tuple[int, str], Rising] = defaultdict(Rising)
        # Groups that each broker has answered for since its start.
        self._answered_for: dict[int, set[str]] = defaultdict(set)
        self._leaders: dict[tuple[str, int], str] = {}
        # Epochs by group and member id, of members of the consumer protocol.
        self._epochs: dict[str, dict[str, Rising]] = defaultdict(lambda: defaultdict(Rising))
        # Groups that a classic member has asked to join: already MEMBER_ID_REQUIRED makes an empty group classic.
        self._may_be_classic: set[str] = set()
        # JoinGroup requests by group since the last answer to one: an empty group that becomes classic starts over at
        # generation 1, and the answers to its first members may be lost.
        self._unanswered_joins: dict[str, int] = defaultdict(int)
        # The highest generation or epoch by group, and its members of the consumer protocol that have not left.
        self._highest: dict[str, int] = defaultdict(int)
        self._present: dict[str, set[str]] = defaultdict(set)
        # Called with a group whose generations or epochs start over.
        self.on_new_beginning: Callable[[str], None] = lambda group: None
        # Group instance id by member id: a returning static member still leads under its new member id (KIP-345).
        self._instances: dict[str, str] = {}
        # Groups whose leader may have an unknown member id: the response to its return was lost.
        self._with_static_members: set[str] = set()
        self._ignored: set[str] = set()

    def restarted(self) -> None:
        # JoinGroup may hand out an unsynced generation again, to other members.
        self._joined.clear()
        self._leaders.clear()

    def broker_died(self, broker_id: int) -> None:
        self._answered_for.pop(broker_id, None)

    def deletion_requested(self, group: str) -> None:
        # A client requests the group's deletion: it may start over at any time.
        self._ignored.add(group)

    def join_requested(self, exchange: Exchange) -> None:
        self._may_be_classic.add(exchange.request.group_id)
        self._unanswered_joins[exchange.request.group_id] += 1

    def joined(self, exchange: Exchange, response: JoinGroupResponse, index: int) -> None:
        group, generation = exchange.request.group_id, response.generation_id
        if response.error_code or generation < 0 or group in self._ignored:
            return
        if generation == 0 and exchange.request.group_instance_id is not None and group in self._epochs:
            # The member replaced the last one of the consumer protocol while a new target was due. It is answered its
            # own epoch, as by Apache Kafka; its SyncGroup is refused, and it joins again.
            return
        joins = self._unanswered_joins.pop(group, 0)
        if generation <= joins and group in self._epochs and self._may_have_fallen_to(generation, group):
            self._begin_anew(group)
        self._highest[group] = max(self._highest[group], generation)
        if self._is_cluster:
            # A generation is durable once its assignment is (SyncGroup). A frozen coordinator that does not know its
            # successor continues from its own last generation, but its assignments never become durable. A broker that
            # has already answered for a group since its start is therefore compared with its own responses, any other
            # broker with those of all.
            has_answered = group in self._answered_for[exchange.broker_id]
            generations = self._synced_by[exchange.broker_id, group] if has_answered else self._synced[group]
            self._check_rising(generations, group, generation, exchange)
            self._answered_for[exchange.broker_id].add(group)
            return
        self._check_rising(self._synced[group], group, generation, exchange)
        self._check_rising(self._joined[group], group, generation, exchange)
        self._joined[group].sent(index, generation)
        if exchange.request.group_instance_id is not None:
            self._instances[response.member_id] = exchange.request.group_instance_id
            self._with_static_members.add(group)
        leader = self._leaders.get((group, generation), response.leader)
        self._leaders[group, generation] = response.leader
        if self._are_different_members(group, leader, response.leader):
            self._report(SHARED, f"{group}: generation {generation} is led by {leader} and by {response.leader}")

    def _are_different_members(self, group: str, leader: str, other: str) -> bool:
        if group in self._with_static_members and not {leader, other} <= self._instances.keys():
            return False
        return self._instances.get(leader, leader) != self._instances.get(other, other)

    def synced(self, exchange: Exchange, response: SyncGroupResponse, index: int) -> None:
        group, generation = exchange.request.group_id, exchange.request.generation_id
        if not response.error_code and group not in self._ignored:
            self._synced[group].sent(index, generation)
            self._synced_by[exchange.broker_id, group].sent(index, generation)

    def heartbeat_answered(self, exchange: Exchange, response: ConsumerGroupHeartbeatResponse, index: int) -> None:
        group, epoch = exchange.request.group_id, response.member_epoch
        member_id = response.member_id or exchange.request.member_id
        if response.error_code or epoch < 0 or group in self._ignored:
            self._present[group].discard(member_id)
            return
        is_first = exchange.request.member_epoch == 0 and epoch <= _FIRST_EPOCH
        if is_first and group in self._may_be_classic and self._may_have_fallen_to(epoch, group):
            self._begin_anew(group)
        self._highest[group] = max(self._highest[group], epoch)
        self._present[group].add(member_id)
        epochs = self._epochs[group][member_id]
        if not self._is_cluster:
            self._check_rising(epochs, group, epoch, exchange)
        epochs.sent(index, epoch)

    def _may_have_fallen_to(self, generation: int, group: str) -> bool:
        # One that stays is of an emptied group only if none is known to be there.
        highest = self._highest[group]
        return generation < highest or (generation == highest and not self._present[group])

    def _begin_anew(self, group: str) -> None:
        self._may_be_classic.discard(group)
        self._joined.pop(group, None)
        self._synced.pop(group, None)
        self._epochs.pop(group, None)
        self._highest.pop(group, None)
        self._present.pop(group, None)
        self._synced_by = defaultdict(Rising, {key: value for key, value in self._synced_by.items() if key[1] != group})
        self._leaders = {key: leader for key, leader in self._leaders.items() if key[0] != group}
        self.on_new_beginning(group)

    def _check_rising(self, generations: Rising, group: str, generation: int, exchange: Exchange) -> None:
        earlier = generations.before(exchange.received_index)
        if earlier is not None and generation < earlier:
            self._report(FELL, f"{group}: {earlier}, then {generation}")
