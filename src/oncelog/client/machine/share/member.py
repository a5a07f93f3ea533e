"""One member of a share group (KIP-932): heartbeats to the coordinator, and the partitions that it assigns.

State         sends                                    on success   on an unknown member or epoch
------------  ---------------------------------------  -----------  ------------------------------------
``UNJOINED``  heartbeat of epoch 0, with all fields    ``JOINED``   raises
``JOINED``    heartbeat when due; at once when the     ``JOINED``   ``UNJOINED``: it joins again under its id
              subscription has changed
``LEFT``      nothing

Several members may have a partition, so nothing is given up before others get it, and none is owned. A heartbeat has
the fields that changed; after a response that is missing or an error it has all of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import TopicName, TopicPartition
from oncelog.client.errors import BrokerRefused, ConfigError
from oncelog.client.machine.consumer_group import FENCING, JOINING_EPOCH, LEAVING_EPOCH, State
from oncelog.client.machine.share.values import SharePartition
from oncelog.wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse

_FIRST_INTERVAL_MS: Final = 100
"""While nothing is assigned after a join: the coordinator first has to set up the partitions' state. Doubles up to the
interval that it names."""
_MIN_INTERVAL_MS: Final = 10
_EXPLANATIONS: Final[dict[int, str]] = {
    ErrorCode.UNSUPPORTED_VERSION: (
        "the cluster does not serve share groups; raise its feature share.version to 1 or higher "
        "(kafka-features.sh upgrade --feature share.version=1)"
    ),
    ErrorCode.GROUP_MAX_SIZE_REACHED: "the share group is full (group.share.max.size)",
}


class ShareGroupMember:
    """The machine; attributes may be read, everything else goes through its methods."""

    def __init__(self, group: str, topics: Sequence[str], rack_id: str | None, member_id: str) -> None:
        if not group:
            raise ConfigError("a share consumer needs the name of its group")
        self.group = group
        self.topics = checked_topics(topics)
        self.member_id = member_id
        self.state = State.UNJOINED
        self.epoch = JOINING_EPOCH
        self.names: dict[bytes, TopicName] = {}
        """Topics by id, as far as they are known."""
        self.assigned: tuple[SharePartition, ...] = ()
        self._rack_id = rack_id
        self._reported: tuple[str, ...] | None = None
        """The subscription that the coordinator knows; None: send all fields."""
        self._in_flight: tuple[str, ...] | None = None
        self._has_asked_to_join = False
        self._heartbeat_due_ms = 0
        self._pause_ms = _FIRST_INTERVAL_MS

    @property
    def unnamed_topics(self) -> tuple[bytes, ...]:
        """The ids of assigned topics whose names are not known."""
        return tuple(sorted({topic_id for topic_id, _ in self.assigned if topic_id not in self.names}))

    @property
    def partitions(self) -> dict[SharePartition, TopicPartition]:
        """The assigned partitions of topics whose names are known."""
        return {
            p: TopicPartition(self.names[p.topic_id], p.partition) for p in self.assigned if p.topic_id in self.names
        }

    @property
    def heartbeat_due_ms(self) -> int | None:
        """When the next request is due, 0 for at once; None if none is."""
        if self.state is State.LEFT:
            return None
        is_due = self.state is State.UNJOINED or self._reported != self.topics
        return 0 if is_due else self._heartbeat_due_ms

    def subscribe(self, topics: Sequence[str]) -> None:
        """Read other topics from now on."""
        self.topics = checked_topics(topics)

    def learn(self, names: Mapping[bytes, TopicName]) -> None:
        """Add names of topics by id."""
        self.names.update(names)

    def next_request(self, now_ms: int) -> ShareGroupHeartbeatRequest | None:
        """The request to send to the coordinator now, or None."""
        due_ms = self.heartbeat_due_ms
        if due_ms is None or now_ms < due_ms:
            return None
        is_full = self._reported is None
        names = list(self.topics) if self._reported != self.topics else None
        # Until the answer it is unknown what the coordinator knows.
        self._reported, self._in_flight = None, self.topics
        self._has_asked_to_join = True
        return ShareGroupHeartbeatRequest(
            group_id=self.group,
            member_id=self.member_id,
            member_epoch=self.epoch,
            rack_id=self._rack_id if is_full else None,
            subscribed_topic_names=names,
        )

    def answered(self, response: ShareGroupHeartbeatResponse, now_ms: int) -> None:
        """Apply the response to ``next_request``. Raises BrokerRefused; after a retriable error ask for another
        request."""
        reported, self._in_flight = self._in_flight, None
        if reported is None:
            return  # the member left in the meantime
        if response.error_code:
            self._refused(response.error_code, response.error_message)
            return
        self._reported = reported
        self.state = State.JOINED
        self.epoch = response.member_epoch
        if response.assignment is not None:
            self._assign(
                SharePartition(bytes(topic.topic_id), partition)
                for topic in response.assignment.topic_partitions
                for partition in topic.partitions
            )
        interval_ms = max(response.heartbeat_interval_ms, _MIN_INTERVAL_MS)
        if not self.assigned and self._pause_ms < interval_ms:
            interval_ms, self._pause_ms = self._pause_ms, 2 * self._pause_ms
        self._heartbeat_due_ms = now_ms + interval_ms

    def leave(self) -> ShareGroupHeartbeatRequest | None:
        """The last heartbeat; None if the member never joined."""
        may_be_member = self._has_asked_to_join and self.state is not State.LEFT
        self.state, self._in_flight = State.LEFT, None
        self._assign(())
        return self._leaving() if may_be_member else None

    def give_up(self) -> ShareGroupHeartbeatRequest | None:
        """Leave because the caller works too long on what it has. The member may join again."""
        goodbye = self._leaving() if self.state is State.JOINED else None
        self._fence()
        return goodbye

    def _leaving(self) -> ShareGroupHeartbeatRequest:
        return ShareGroupHeartbeatRequest(
            group_id=self.group, member_id=self.member_id, member_epoch=LEAVING_EPOCH, subscribed_topic_names=None
        )

    def _refused(self, code: int, detail: str | None) -> None:
        if code in FENCING and self.epoch > JOINING_EPOCH:
            self._fence()
            return
        raise BrokerRefused(code, f"share group {self.group!r}", _EXPLANATIONS.get(code) or detail)

    def _fence(self) -> None:
        """The coordinator does not have the member any more. Its locks are the leaders' and stay."""
        if self.state is not State.LEFT:
            self.state = State.UNJOINED
        self.epoch = JOINING_EPOCH
        self._reported = self._in_flight = None
        self._assign(())

    def _assign(self, partitions: Iterable[SharePartition]) -> None:
        self.assigned = tuple(sorted(set(partitions)))
        self._pause_ms = _FIRST_INTERVAL_MS


def checked_topics(topics: Sequence[str]) -> tuple[str, ...]:
    """The topics of a subscription, each once. Raises TypeError, ConfigError."""
    if isinstance(topics, str):
        raise TypeError(f"topics: give a list of names, [{topics!r}]")
    if not topics:
        raise ConfigError("a share consumer needs topics by name: share groups have no patterns")
    return tuple(dict.fromkeys(topics))
