"""The partitions whose share state a group has in the share coordinator, as one record of the group names them.

A partition is *initializing* from the request to the share coordinator to its answer, then *initialized*: only then it
may be assigned. A topic is *deleting* while the share coordinator deletes the state of its partitions.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final, NamedTuple

from oncelog.base.ids import TopicId, TopicName
from oncelog.core.groups.modern.members import Partitions

UNKNOWN_TOPIC: Final = "<UNKNOWN>"
"""The name in records of a topic that no longer exists."""
NameOf = Callable[[TopicId], TopicName | None]


class TopicPartitions(NamedTuple):
    """Partitions of a topic, with the name that it has."""

    name: str
    partitions: frozenset[int]


Topics = Mapping[TopicId, TopicPartitions]
_NO_TOPICS: Final[Topics] = {}


class StateTopics(NamedTuple):
    """A group's partitions by the progress of their share state."""

    initializing: Topics = _NO_TOPICS
    initialized: Topics = _NO_TOPICS
    deleting: frozenset[TopicId] = frozenset()

    def known(self) -> frozenset[TopicId]:
        return frozenset([*self.initializing, *self.initialized])

    def partitions(self) -> Partitions:
        """The partitions that may be assigned."""
        return {topic: named.partitions for topic, named in self.initialized.items()}

    def begin_initializing(self, topics: Topics) -> StateTopics:
        # A topic whose state is being deleted is initialized anew.
        initializing = union(self.initializing, topics)
        return self._replace(initializing=initializing, deleting=self.deleting - initializing.keys())

    def fitting(self, topics: Topics, room: int) -> Topics:
        """The partitions of ``topics`` that may be initialized while ``room`` more count. A topic's new partitions are
        initialized together: those that came later would begin at their first record.
        """
        counted, chosen = union(self.initialized, self.initializing), {}
        for topic, named in topics.items():
            before = counted.get(topic)
            new = named.partitions if before is None else named.partitions - before.partitions
            cost = len(new) + (before is None and topic not in self.deleting)
            if cost <= max(room, 0):
                room -= cost
                chosen[topic] = named
            elif named.partitions != new:
                chosen[topic] = named._replace(partitions=named.partitions - new)
        return chosen

    def finish_initializing(self, done: Partitions, failed: Partitions, name_of: NameOf) -> StateTopics:
        """The share coordinator has the state of the partitions in ``done``, not of those in ``failed``."""
        named = {topic: TopicPartitions(name_of(topic) or UNKNOWN_TOPIC, numbers) for topic, numbers in done.items()}
        initializing = _without(_without(self.initializing, done), failed)
        return self._replace(initializing=initializing, initialized=union(self.initialized, named))

    def begin_deleting(self, topics: Iterable[TopicId]) -> StateTopics:
        names = frozenset(topics)
        initialized = {topic: named for topic, named in self.initialized.items() if topic not in names}
        return self._replace(initialized=initialized, deleting=self.deleting | names)

    def finish_deleting(self, topics: Collection[TopicId]) -> StateTopics:
        return self._replace(deleting=self.deleting.difference(topics))

    def without_topics(self, gone: Collection[TopicId]) -> StateTopics:
        """The state without topics that have been deleted themselves."""
        initializing, initialized = (
            {topic: named for topic, named in topics.items() if topic not in gone}
            for topics in (self.initializing, self.initialized)
        )
        return StateTopics(initializing, initialized, self.deleting.difference(gone))

    def partition_count(self) -> int:
        """The partitions, and one more for each topic: what counts towards ``oncelog.group.share.partitions.max``."""
        known = union(self.initialized, self.initializing)
        return len(self.deleting) + sum(1 + len(named.partitions) for named in known.values())


def union(first: Topics, second: Topics) -> dict[TopicId, TopicPartitions]:
    """The partitions of both; names are those of the second."""
    united = dict(first)
    for topic, named in second.items():
        before = united.get(topic)
        partitions = named.partitions if before is None else before.partitions | named.partitions
        united[topic] = TopicPartitions(named.name, partitions)
    return united


def _without(topics: Topics, removed: Partitions) -> dict[TopicId, TopicPartitions]:
    left = {}
    for topic, named in topics.items():
        remaining = named._replace(partitions=named.partitions - removed.get(topic, frozenset()))
        # A topic without partitions stays if no answer named it: an administrator may have altered none of its own.
        if remaining.partitions or topic not in removed:
            left[topic] = remaining
    return left
