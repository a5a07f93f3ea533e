"""The nodes of one group, as one of its consumers reads and writes them in its session.

Rules: watches are set with the read that they guard. Owners' nodes are created all or none, together with a check that
the consumer is registered, and deleted only where they are this session's. Everything may be done twice.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from oncelog.base.ids import TopicPartition
from oncelog.base.tree import ANY_VERSION, Check, Create, Delete
from oncelog.coordination.zookeeper.client import Reason, Refused
from oncelog.legacy.zookeeper_groups.connection import registered_brokers
from oncelog.legacy.zookeeper_groups.machine.assignment import Picture
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

_TOGETHER = 500
"""Owners in one transaction."""


class GroupNodes:
    """A group's nodes in ZooKeeper, in one session. ``changed`` is the watch of everything: called by kazoo's thread.
    All methods raise TreeUnavailable and SessionLost."""

    def __init__(self, session: ZooKeeperClient, group: str, changed: Watch) -> None:
        self._session = session
        self._group = group
        self._changed = changed
        self._ensured: set[str] = set()
        self.brokers: list[RegisteredBroker] = []
        """The brokers, as of the last look."""

    def register(self, path: str, value: bytes) -> Done | Taken:
        """Create the consumer's own node."""
        self._ensure(CONSUMERS, group_path(self._group), ids_path(self._group))
        try:
            self._session.transact([Create(path, value, ephemeral=True)])
        except Refused:
            return self._taken(path)
        return Done()

    def is_registered(self, path: str) -> bool:
        """True if the consumer's own node is there."""
        return self._session.exists(path) is not None

    def look(self, subscription: Subscription, *, exclude_internal: bool, protocol: str) -> Picture:
        """The group, the topics that the subscription reads, and the brokers."""
        parent = ids_path(self._group)
        names = self._session.children(parent, self._changed)
        members = self._session.get_all(f"{parent}/{name}" for name in sorted(names))
        registrations = {path.rpartition("/")[2]: node[0] for path, node in members if node is not None}
        topics: dict[str, bytes] = {}
        for topic in self._topics(subscription, exclude_internal):
            path = topic_path(topic)
            node = self._session.get(path, self._changed)
            if node is None and self._session.exists(path, self._changed) is not None:
                node = self._session.get(path, self._changed)  # it has come in between
            if node is not None:
                topics[topic] = node[0]
        self.brokers = registered_brokers(self._session, protocol, self._changed)
        return Picture(registrations, topics, len(self.brokers))

    def claim(self, own: str, owners: Mapping[TopicPartition, str]) -> Done | Taken | Unregistered:
        """Create the owners' nodes."""
        topics = {owners_path(self._group, partition.topic) for partition in owners}
        self._ensure(CONSUMERS, group_path(self._group), owners_path(self._group), *sorted(topics))
        wanted = {owner_path(self._group, partition): thread.encode() for partition, thread in owners.items()}
        there = self._session.get_all(list(wanted))
        mine = {path for path, node in there if node is not None and node[1].owner == self._session.session_id}
        missing = [path for path in wanted if path not in mine]
        for first in range(0, len(missing), _TOGETHER):
            creates = [Create(path, wanted[path], ephemeral=True) for path in missing[first : first + _TOGETHER]]
            try:
                self._session.transact([Check(own, ANY_VERSION), *creates])
            except Refused as refusal:
                self.release(owners)
                if refusal.index == 0:
                    return Unregistered()
                if refusal.reason is Reason.ABSENT:
                    self._ensured.clear()  # somebody has deleted the group's nodes: they are made again next time
                    self._changed(None)
                return self._taken(creates[refusal.index - 1].path)
        return Done()

    def release(self, owners: Mapping[TopicPartition, str]) -> None:
        """Delete the owners' nodes that are this session's."""
        paths = [owner_path(self._group, partition) for partition in owners]
        for first in range(0, len(paths), _TOGETHER):
            part = paths[first : first + _TOGETHER]
            while True:
                there = self._session.get_all(part)
                own = [path for path, node in there if node and node[1].owner == self._session.session_id]
                try:
                    if own:
                        self._session.transact([Delete(path, ANY_VERSION) for path in own])
                    break
                except Refused:
                    continue  # somebody has deleted one of them

    def _topics(self, subscription: Subscription, exclude_internal: bool) -> list[str]:
        if subscription.is_static:
            return sorted(subscription.streams)
        names = self._session.children(TOPICS, self._changed)
        return sorted(name for name in names if subscription.streams_of(name, exclude_internal=exclude_internal))

    def _taken(self, path: str) -> Done | Taken:
        """The owner of a node that is in the way; the node is watched, and may be gone already."""
        found = self._session.get(path, self._changed)
        if found is None:
            self._changed(None)
            return Taken(path, "a consumer that has just gone")
        if found[1].owner == self._session.session_id:
            return Done()
        return Taken(path, found[0].decode("utf-8", "replace"))

    def _ensure(self, *paths: str) -> None:
        """Create lasting nodes, parents first, that this session has not seen yet."""
        missing = [path for path in paths if path not in self._ensured]
        if missing:
            self._session.ensure(missing)
            self._ensured.update(missing)
