"""One member of a group in the consumer protocol (KIP-848): the coordinator assigns, the member takes and gives up.

State         sends                                 on success                on an unknown member or epoch
------------  ------------------------------------  ------------------------  ------------------------------------
``UNJOINED``  heartbeat of epoch 0, with all fields ``JOINED``                raises
``JOINED``    heartbeat when due; at once when it   ``JOINED``, perhaps with  ``UNJOINED``: its partitions are lost
              has owned partitions to report        another target
``LEFT``      nothing

Rules:
1. The target is what the coordinator assigned last; the owner of this machine moves ``owned`` towards it, by
   ``release`` and ``take``. All of ``revocable`` are released before the list of owned partitions is sent, which lets
   others have them. Each target is acknowledged once, even if it changes nothing: the coordinator may wait for it.
2. Lost partitions are released before the member joins again: others may have them already.
3. A heartbeat has the fields that changed. It has all of them after any response that is missing or an error, because
   the coordinator may know the member as it was, or not at all.
4. Partitions are owned by topic id: a topic that was deleted and created again is another one. A topic's name may be
   learnt after its assignment.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from typing import Final, NamedTuple

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import TopicName, TopicPartition, group_by_key
from oncelog.client.errors import BrokerRefused
from oncelog.client.machine.group import GroupSettings
from oncelog.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)

JOINING_EPOCH: Final = 0
LEAVING_EPOCH: Final = -1
LEAVING_STATIC_EPOCH: Final = -2
"""The place of a static member stays until its session is over."""
MEMBER_NAMES_ITSELF_FROM: Final = 1
"""Before this version of ConsumerGroupHeartbeat the coordinator makes the member id."""
_MIN_INTERVAL_MS: Final = 10
"""Whatever interval the coordinator names: heartbeats must leave time for other things."""
FENCING: Final = (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.GROUP_ID_NOT_FOUND)
"""The coordinator does not have this member any more; a group may have been deleted under it."""


class State(Enum):
    """The states of a member; see the module's table."""

    UNJOINED = "unjoined"
    JOINED = "joined"
    LEFT = "left"


class AssignedPartition(NamedTuple):
    """A partition as the coordinator names it."""

    topic_id: bytes
    partition: int


class _InFlight(NamedTuple):
    """A request until it is answered."""

    reported: frozenset[AssignedPartition]
    """The owned partitions that the coordinator knows of if it gets the request."""
    has_list: bool
    acknowledges: bool
    is_regular: bool
    """True if it was sent because the interval is over, and not to report something."""


class ConsumerGroupMember:
    """The machine; attributes may be read, everything else goes through its methods."""

    def __init__(
        self, group: str, topics: Sequence[str], pattern: str | None, settings: GroupSettings, member_id: str
    ) -> None:
        self.group = group
        self.topics = tuple(dict.fromkeys(topics))
        self.pattern = pattern
        self.settings = settings
        self.state = State.UNJOINED
        self.member_id = member_id
        self.epoch = JOINING_EPOCH
        self.is_lost = False
        """True while the partitions in ``owned`` may belong to others already."""
        self.owned: dict[TopicPartition, bytes] = {}
        """The topic id of each owned partition."""
        self.revocable: tuple[TopicPartition, ...] = ()
        """Owned partitions to release: lost ones, and those that are no longer assigned."""
        self.unnamed_topics: tuple[bytes, ...] = ()
        """The ids of assigned topics whose names are not known."""
        self._missing: dict[TopicPartition, int] = {}
        """Assigned partitions that are not owned, of topics whose names are known; each with the number of the change
        since which it has been assigned without a break."""
        self._changes = 0
        self._owned_ids: frozenset[AssignedPartition] = frozenset()
        self._target: frozenset[AssignedPartition] = frozenset()
        self._names: dict[bytes, TopicName] = {}
        self._reported: frozenset[AssignedPartition] | None = None
        """The owned partitions that the coordinator knows of; None: send all fields."""
        self._in_flight: _InFlight | None = None
        self._is_acknowledged = True
        self._has_asked_to_join = False
        self._is_quiet = False
        """True if the last heartbeat of its own time brought no other target."""
        self._heartbeat_due_ms = 0

    @property
    def takeable(self) -> tuple[TopicPartition, ...]:
        """Assigned partitions that are not owned, of topics whose names are known; none before the release of
        ``revocable`` ones, and none while ``is_reporting``.
        """
        if self.state is not State.JOINED or self.revocable or self.is_reporting:
            return ()
        return tuple(self._missing)

    def assigned_since(self, partition: TopicPartition) -> int | None:
        """A number for a takeable partition that is another one if others may have had the partition in between: a
        start position that was looked up before is too old then.
        """
        return self._missing.get(partition)

    @property
    def is_reporting(self) -> bool:
        """True while a list of owned partitions is on its way. The coordinator may assign any missing one to others at
        once, so none may be added until the answer.
        """
        return self._in_flight is not None and self._in_flight.has_list

    @property
    def is_settled(self) -> bool:
        """True if the member owns its share. An empty share counts after a heartbeat that did not change it: the
        coordinator may assign a moment after the member has joined.
        """
        is_reached = self.state is State.JOINED and self._owned_ids == self._target
        return is_reached and (bool(self.owned) or self._is_quiet)

    @property
    def heartbeat_due_ms(self) -> int | None:
        """When the next request is due, 0 for at once; None if none is: the member left, or has to release lost
        partitions.
        """
        if self.state is State.LEFT or (self.state is State.UNJOINED and self.owned):
            return None
        is_due = self.state is State.UNJOINED or self._reported is None or self._has_to_report()
        return 0 if is_due else self._heartbeat_due_ms

    def next_request(self, now_ms: int) -> ConsumerGroupHeartbeatRequest | None:
        """The request to send to the coordinator now, or None."""
        due_ms = self.heartbeat_due_ms
        if due_ms is None or now_ms < due_ms:
            return None
        is_full = self._reported is None
        if self._in_flight is not None:
            # The last request may have been carried out: partitions may have gone to others and come back.
            self._missing.clear()
            self._compare()
        has_list = is_full or self._has_to_report()
        owned = self._owned_ids
        is_regular = self.state is State.JOINED and now_ms >= self._heartbeat_due_ms
        self._in_flight = _InFlight(
            owned if self._reported is None or has_list else self._reported,
            has_list,
            has_list and not self.revocable,
            is_regular,
        )
        # Until the answer it is unknown what the coordinator knows.
        self._reported = None
        self._has_asked_to_join = True
        return ConsumerGroupHeartbeatRequest(
            group_id=self.group,
            member_id=self.member_id,
            member_epoch=self.epoch,
            instance_id=self.settings.instance_id,
            rack_id=self.settings.rack_id if is_full else None,
            rebalance_timeout_ms=self.settings.rebalance_timeout_ms if is_full else -1,
            subscribed_topic_names=list(self.topics) if is_full else None,
            subscribed_topic_regex=self._named_pattern() if is_full else None,
            server_assignor=self.settings.remote_assignor if is_full else None,
            topic_partitions=_by_topic(owned) if has_list else None,
        )

    def _named_pattern(self) -> str | None:
        # A static member without a pattern says so: the coordinator would have it keep that of the instance before.
        return self.pattern or (None if self.settings.instance_id is None else "")

    def heartbeat_soon(self) -> None:
        """Let the next heartbeat be due at once."""
        self._heartbeat_due_ms = 0

    def answered(self, response: ConsumerGroupHeartbeatResponse, now_ms: int) -> None:
        """Apply the response to ``next_request``. Raises BrokerRefused; after a retriable error ask for another
        request.
        """
        if self._in_flight is None:
            return  # the member was fenced, or left, in the meantime
        request, self._in_flight = self._in_flight, None
        if response.error_code:
            self.refused(response.error_code, response.error_message)
            return
        self._reported = request.reported
        self.state = State.JOINED
        self.member_id = response.member_id or self.member_id
        self.epoch = response.member_epoch
        self._heartbeat_due_ms = now_ms + max(response.heartbeat_interval_ms, _MIN_INTERVAL_MS)
        if response.assignment is None:
            self._is_acknowledged = self._is_acknowledged or request.acknowledges
            self._is_quiet = self._is_quiet or request.is_regular
            return
        self._target = frozenset(
            AssignedPartition(bytes(topic.topic_id), partition)
            for topic in response.assignment.topic_partitions
            for partition in topic.partitions
        )
        self._is_acknowledged = self._is_quiet = False
        self._compare()

    def learn(self, names: Mapping[bytes, TopicName]) -> None:
        """Add names of topics by id."""
        self._names.update(names)
        self._compare()

    def release(self, partitions: Iterable[TopicPartition]) -> None:
        """The consumer has given up ``partitions``."""
        for partition in partitions:
            self.owned.pop(partition, None)
        self.is_lost = self.is_lost and bool(self.owned)
        self._compare()

    def take(self, partitions: Iterable[TopicPartition]) -> tuple[TopicPartition, ...]:
        """Own those of ``partitions`` that are takeable still, and return them."""
        target, takeable = self._named_target(), set(self.takeable)
        taken = tuple(partition for partition in partitions if partition in takeable)
        self.owned |= {partition: target[partition] for partition in taken}
        self._compare()
        return taken

    def refused(self, code: int, detail: str | None = None) -> None:
        """Apply an error code from a response to any request of this member, commits included.

        Returns if the member recovers by joining again; raises BrokerRefused otherwise.
        """
        if code in FENCING and self.epoch > JOINING_EPOCH:
            self.fence()
            return
        if code == ErrorCode.FENCED_INSTANCE_ID:
            # Another instance owns the partitions. Later heartbeats, of the same epoch, are refused like this one.
            self._lose_all()
        raise BrokerRefused(code, f"group {self.group!r}", detail or _EXPLANATIONS.get(code))

    def fence(self) -> None:
        """The member is none any more: its partitions are lost, and it joins again under the same id."""
        if self.state is not State.LEFT:
            self.state = State.UNJOINED
        self.epoch = JOINING_EPOCH
        self._lose_all()

    def use_version(self, version: int) -> None:
        """Have the coordinator make the member id if the version says so."""
        if version < MEMBER_NAMES_ITSELF_FROM and not self._has_asked_to_join:
            self.member_id = ""

    def leave(self) -> ConsumerGroupHeartbeatRequest | None:
        """The last heartbeat, which keeps the place of a static member; None if the member never joined."""
        may_be_member = self._has_asked_to_join and self.state is not State.LEFT and bool(self.member_id)
        self.state, self._in_flight = State.LEFT, None
        return self._leaving() if may_be_member else None

    def give_up(self) -> ConsumerGroupHeartbeatRequest | None:
        """Leave because the caller works too long on what it has: its partitions are lost. It may join again."""
        goodbye = self._leaving() if self.state is State.JOINED else None
        self.fence()
        return goodbye

    def _leaving(self) -> ConsumerGroupHeartbeatRequest:
        is_static = self.settings.instance_id is not None
        return ConsumerGroupHeartbeatRequest(
            group_id=self.group,
            member_id=self.member_id,
            member_epoch=LEAVING_STATIC_EPOCH if is_static else LEAVING_EPOCH,
            instance_id=self.settings.instance_id,
            topic_partitions=None,
        )

    def _lose_all(self) -> None:
        self.is_lost = bool(self.owned)
        self._target = frozenset()
        self._reported = self._in_flight = None
        self._is_acknowledged, self._is_quiet = True, False
        self._compare()

    def _compare(self) -> None:
        """Compare what is owned with the target, after a change of either: a poll reads the results each time."""
        ids = {p: AssignedPartition(topic_id, p.partition) for p, topic_id in self.owned.items()}
        self._owned_ids = frozenset(ids.values())
        self.revocable = tuple(p for p, assigned in ids.items() if self.is_lost or assigned not in self._target)
        self.unnamed_topics = tuple(sorted({a.topic_id for a in self._target if a.topic_id not in self._names}))
        self._changes += 1
        missing = sorted(p for p in self._named_target() if p not in self.owned)
        self._missing = {p: self._missing.get(p, self._changes) for p in missing}

    def _named_target(self) -> dict[TopicPartition, bytes]:
        """The topic id of each assigned partition whose topic's name is known."""
        return {
            TopicPartition(self._names[topic_id], partition): topic_id
            for topic_id, partition in self._target
            if topic_id in self._names
        }

    def _has_to_report(self) -> bool:
        is_reported = self._is_acknowledged and self._reported == self._owned_ids
        return self._reported is not None and not is_reported and not self.revocable


def _by_topic(partitions: Iterable[AssignedPartition]) -> list[TopicPartitions]:
    """Partitions as a heartbeat lists them, sorted so that the same list has the same bytes."""
    return [
        TopicPartitions(topic_id=topic_id, partitions=indexes)
        for topic_id, indexes in group_by_key(sorted(partitions)).items()
    ]


_EXPLANATIONS: Final[dict[int, str]] = {
    ErrorCode.UNSUPPORTED_VERSION: (
        "the cluster does not serve the consumer protocol (group.version is 0, or "
        "group.coordinator.rebalance.protocols lacks it); use the classic one"
    ),
    ErrorCode.GROUP_MAX_SIZE_REACHED: "the group is full (group.consumer.max.size)",
    ErrorCode.GROUP_ID_NOT_FOUND: "the group is of another type, and cannot be converted",
}


def heartbeat_answer_means_consumer_group(code: int) -> bool:
    """True if the group is one of the consumer protocol, by the answer to ``heartbeat_of_a_stranger``."""
    return code in (ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID)


def heartbeat_of_a_stranger(group: str, member_id: str) -> ConsumerGroupHeartbeatRequest:
    """The leave of a member that never joined. It changes nothing, and its answer tells a group's type: a consumer
    group does not know the member, and any other group is not found. A description would have all members in it.
    """
    return ConsumerGroupHeartbeatRequest(
        group_id=group, member_id=member_id, member_epoch=LEAVING_EPOCH, topic_partitions=None
    )
