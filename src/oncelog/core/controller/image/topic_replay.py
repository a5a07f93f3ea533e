"""Collects changes of topic nodes by topic, so that changing many partitions makes one new ``TopicImage``.

Changes come in any order; ``finish`` builds each topic. A topic's node without an id, created by a tool of another
release, is ignored: no broker has created its partitions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from oncelog.base.ids import NO_BROKER, LeaderEpoch, TopicId, TopicName
from oncelog.core.controller.image import layout
from oncelog.core.controller.image.model import ABSENT, NO_CONFIGS, Assignment, PartitionImage, TopicImage

_STATELESS = PartitionImage(NO_BROKER, LeaderEpoch(0), (), (), version=ABSENT)
"""A partition without a state: its topic is being deleted in parts, or another program created it."""
_TOPIC_PREFIX = len(layout.TOPICS) + 1
_CONFIG_PREFIX = len(layout.TOPIC_CONFIGS) + 1


@dataclass(slots=True)
class _Draft:
    before: TopicImage | None
    """The topic before the changes; None if it is new."""
    deleted: TopicImage | None = None
    topic_id: TopicId | None = None
    assignments: list[Assignment] | None = None
    version: int = 0
    foreign: bytes | None = None
    """The value of a topic's node without a topic id, which is not ours."""
    states: dict[int, PartitionImage] = field(default_factory=dict)
    """States by partition, without replicas, which are in the topic's node."""
    configs: Mapping[str, str] | None = None
    config_version: int = ABSENT


@dataclass(slots=True)
class ReplayedTopics:
    topics: Mapping[TopicName, TopicImage]
    created: list[TopicName] = field(default_factory=list)
    deleted: list[TopicImage] = field(default_factory=list)
    altered: list[TopicName] = field(default_factory=list)
    configs: list[TopicName] = field(default_factory=list)


class TopicReplay:
    """Applies changes below ``/brokers/topics`` and ``/config/topics``."""

    def __init__(self, topics: Mapping[TopicName, TopicImage]) -> None:
        self._topics = topics
        self._drafts: dict[TopicName, _Draft] = {}

    def change(self, path: str, value: bytes | None, version: int) -> None:
        parts = path[_TOPIC_PREFIX:].split("/")
        draft = self._draft(TopicName(parts[0]))
        if len(parts) == 4:
            draft.states[int(parts[2])] = _STATELESS if value is None else layout.read_state(path, value, version)
        elif len(parts) > 1:
            return  # an empty parent node
        elif value is None:
            self._delete(draft)
        elif layout.is_foreign_topic(path, value):
            draft.foreign = value
        else:
            draft.topic_id, draft.assignments = layout.read_topic(path, value)
            draft.version = version

    def change_config(self, path: str, value: bytes | None, version: int) -> None:
        draft = self._draft(TopicName(path[_CONFIG_PREFIX:]))
        draft.configs = NO_CONFIGS if value is None else MappingProxyType(layout.read_config(path, value))
        draft.config_version = ABSENT if value is None else version

    def finish(self) -> ReplayedTopics:
        if not self._drafts:
            return ReplayedTopics(self._topics)
        topics = dict(self._topics)
        replayed = ReplayedTopics(topics)
        for name, draft in self._drafts.items():
            if draft.foreign is not None and draft.states:  # another program has overwritten one of our topics
                raise layout.DamagedFact(layout.topic_path(name), draft.foreign)
            if draft.deleted is not None:
                replayed.deleted.append(draft.deleted)
                del topics[name]
            topic = _settle(name, draft)
            if topic is None:
                continue
            topics[name] = topic
            if draft.before is None:
                replayed.created.append(name)
                continue
            if topic.partitions != draft.before.partitions:
                replayed.altered.append(name)
            if topic.configs != draft.before.configs:
                replayed.configs.append(name)
        return replayed

    def _draft(self, name: TopicName) -> _Draft:
        draft = self._drafts.get(name)
        if draft is None:
            draft = self._drafts[name] = _Draft(self._topics.get(name))
        return draft

    def _delete(self, draft: _Draft) -> None:
        if draft.before is not None:
            # A topic created again in the same change is a new topic.
            draft.deleted, draft.before = draft.before, None
        draft.topic_id = draft.assignments = None
        draft.states.clear()


def _settle(name: TopicName, draft: _Draft) -> TopicImage | None:
    before = draft.before
    old = before.partitions if before is not None else ()
    if draft.assignments is not None and draft.topic_id is not None:
        topic_id, version = draft.topic_id, draft.version
        partitions = tuple(
            _partition(i, assignment, draft.states, old) for i, assignment in enumerate(draft.assignments)
        )
    elif before is not None:
        topic_id, version = before.topic_id, before.version
        partitions = _with_states(old, draft.states) if draft.states else old
    else:
        return None
    configs, config_version = draft.configs, draft.config_version
    if configs is None:
        configs, config_version = (NO_CONFIGS, ABSENT) if before is None else (before.configs, before.config_version)
    return TopicImage(name, topic_id, partitions, configs, version, config_version)


def _with_states(old: tuple[PartitionImage, ...], states: Mapping[int, PartitionImage]) -> tuple[PartitionImage, ...]:
    """Only partitions with a new state are rebuilt."""
    partitions = list(old)
    for index, state in states.items():
        if index < len(old):
            partitions[index] = state.with_replicas_of(old[index])
    return tuple(partitions)


def _partition(
    index: int, assignment: Assignment, states: Mapping[int, PartitionImage], old: tuple[PartitionImage, ...]
) -> PartitionImage:
    partition = states.get(index)
    if partition is None:
        # The topic's node came before the states of its new partitions.
        if index >= len(old):
            return _STATELESS._replace(**assignment._asdict())
        partition = old[index]
        if partition.assignment == assignment:
            return partition
    return partition._replace(**assignment._asdict())
