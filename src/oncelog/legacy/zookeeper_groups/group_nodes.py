"""The ZooKeeper nodes of one group, read and written by one of its consumers in its session.

A watch is set together with the read it guards. Owner nodes are created all or none, in transactions that check the
consumer's registration; a node is deleted only if this session owns it. Every operation may be repeated.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from oncelog.base.ids import TopicPartition
from oncelog.base.tree import ANY_VERSION, Check, Create, Delete
from oncelog.coordination.zookeeper.client import Reason, Refused
from oncelog.legacy.zookeeper_groups.connection import registered_brokers
from oncelog.legacy.zookeeper_groups.machine.assignment import GroupSnapshot
from oncelog.legacy.zookeeper_groups.machine.nodes import (
    CONSUMERS,
    TOPICS,
    group_path,
    ids_path,
    owner_path,
    owners_path,
    topic_path,
)
from oncelog.legacy.zookeeper_groups.machine.steps import Done, Taken, Unregistered
from oncelog.legacy.zookeeper_groups.machine.subscription import Subscription

if TYPE_CHECKING:
    from oncelog.coordination.zookeeper.client import Watch, ZooKeeperClient
    from oncelog.legacy.zookeeper_groups.machine.nodes import RegisteredBroker

_TRANSACTION_SIZE = 500  # Owner nodes in one transaction.


class GroupNodes:
    """``changed`` is the watch on everything, called by kazoo's thread. All methods raise TreeUnavailable and
    SessionLost.
    """

    def __init__(self, session: ZooKeeperClient, group: str, changed: Watch) -> None:
        self._session = session
        self._group = group
        self._changed = changed
        self._ensured: set[str] = set()
        self.brokers: list[RegisteredBroker] = []
        """The brokers, as of the last ``read_group``."""

    def register(self, path: str, value: bytes) -> Done | Taken:
        self._ensure(CONSUMERS, group_path(self._group), ids_path(self._group))
        try:
            self._session.transact([Create(path, value, ephemeral=True)])
        except Refused:
            return self._taken(path)
        return Done()

    def is_registered(self, path: str) -> bool:
        return self._session.exists(path) is not None

    def read_group(self, subscription: Subscription, *, exclude_internal: bool, protocol: str) -> GroupSnapshot:
        parent = ids_path(self._group)
        names = self._session.children(parent, self._changed)
        members = self._session.get_all(f"{parent}/{name}" for name in sorted(names))
        registrations = {path.rpartition("/")[2]: node[0] for path, node in members if node is not None}
        topics: dict[str, bytes] = {}
        for topic in self._topics(subscription, exclude_internal):
            path = topic_path(topic)
            node = self._session.get(path, self._changed)
            if node is None and self._session.exists(path, self._changed) is not None:
                node = self._session.get(path, self._changed)  # It was created between the two reads.
            if node is not None:
                topics[topic] = node[0]
        self.brokers = registered_brokers(self._session, protocol, self._changed)
        return GroupSnapshot(registrations, topics, len(self.brokers))

    def claim(self, own: str, owners: Mapping[TopicPartition, str]) -> Done | Taken | Unregistered:
        topics = {owners_path(self._group, partition.topic) for partition in owners}
        self._ensure(CONSUMERS, group_path(self._group), owners_path(self._group), *sorted(topics))
        values = {owner_path(self._group, partition): thread.encode() for partition, thread in owners.items()}
        existing = self._session.get_all(list(values))
        claimed = {path for path, node in existing if node is not None and node[1].owner == self._session.session_id}
        missing = [path for path in values if path not in claimed]
        for first in range(0, len(missing), _TRANSACTION_SIZE):
            creates = [
                Create(path, values[path], ephemeral=True) for path in missing[first : first + _TRANSACTION_SIZE]
            ]
            try:
                self._session.transact([Check(own, ANY_VERSION), *creates])
            except Refused as refusal:
                self.release(owners)
                if refusal.index == 0:
                    return Unregistered()
                if refusal.reason is Reason.ABSENT:
                    self._ensured.clear()  # Another client deleted the group's nodes; the next try creates them.
                    self._changed(None)
                return self._taken(creates[refusal.index - 1].path)
        return Done()

    def release(self, owners: Mapping[TopicPartition, str]) -> None:
        paths = [owner_path(self._group, partition) for partition in owners]
        for first in range(0, len(paths), _TRANSACTION_SIZE):
            part = paths[first : first + _TRANSACTION_SIZE]
            while True:
                existing = self._session.get_all(part)
                own = [path for path, node in existing if node and node[1].owner == self._session.session_id]
                try:
                    if own:
                        self._session.transact([Delete(path, ANY_VERSION) for path in own])
                    break
                except Refused:
                    continue  # Another client deleted one of them.

    def _topics(self, subscription: Subscription, exclude_internal: bool) -> list[str]:
        if subscription.is_static:
            return sorted(subscription.streams)
        names = self._session.children(TOPICS, self._changed)
        return sorted(name for name in names if subscription.streams_of(name, exclude_internal=exclude_internal))

    def _taken(self, path: str) -> Done | Taken:
        """The owner of an existing node, or Done if this session owns it. The watched node may be gone by now."""
        node = self._session.get(path, self._changed)
        if node is None:
            self._changed(None)
            return Taken(path, "a consumer that has just left")
        if node[1].owner == self._session.session_id:
            return Done()
        return Taken(path, node[0].decode("utf-8", "replace"))

    def _ensure(self, *paths: str) -> None:
        """Create persistent nodes, parents first, unless this session has seen them."""
        missing = [path for path in paths if path not in self._ensured]
        if missing:
            self._session.ensure(missing)
            self._ensured.update(missing)
