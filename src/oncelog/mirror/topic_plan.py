"""Plans of copies: the target's topic for each topic of a source, and what is to be changed there. Pure.

Rules: a topic whose records have come through the target already is a cycle and is left out. A copy has as many
partitions as its source or more. Configurations go over that the source's topic has of its own, without those that are
tied to a cluster; ``max.message.bytes`` also where a broker's default is larger, because batches go over whole.
Timestamps are always copied as values, so the copy's type of timestamp is CreateTime and its bounds are the target's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from oncelog.base.ids import NO_TOPIC_ID, TopicName, TopicPartition
from oncelog.client.errors import ConfigError
from oncelog.client.machine.metadata import TopicInfo
from oncelog.mirror.positions_topic import slot_of
from oncelog.mirror.provenance import Copy, paths_of
from oncelog.mirror.settings import MirrorSettings

TIED_TO_A_CLUSTER: Final = frozenset(
    {
        "follower.replication.throttled.replicas",
        "leader.replication.throttled.replicas",
        "message.format.version",
        "message.timestamp.after.max.ms",
        "message.timestamp.before.max.ms",
        "message.timestamp.difference.max.ms",
        "message.timestamp.type",
        "min.insync.replicas",
        "unclean.leader.election.enable",
    }
)
_TIERED: Final = ("remote.", "local.retention.")
_MAX_MESSAGE: Final = "max.message.bytes"
_OF_TOPIC: Final = 1
_OF_BROKERS: Final = (2, 3, 4)


class ConfigValue(NamedTuple):
    """A configuration value; ``source`` 1 is the topic itself, 5 the default, between them brokers (KIP-226)."""

    value: str | None
    source: int


@dataclass(frozen=True, slots=True)
class PlannedTopic:
    """A topic of the source that is to be copied."""

    name: TopicName
    topic_id: str
    partitions: int
    target: TopicName
    path: tuple[str, ...]
    """The clusters its records have come through, the source last."""


@dataclass(frozen=True, slots=True)
class TopicPlan:
    """All topics of a source: those to be copied, and those that are not because they came from the target."""

    topics: dict[TopicName, PlannedTopic] = field(default_factory=dict)
    cycles: tuple[str, ...] = ()
    unnamed: dict[str, str] = field(default_factory=dict)
    """Topics that cannot have a name at the target, with the reason."""


class TargetChange(NamedTuple):
    """Keys of a topic at the target to be set and to be returned to their defaults."""

    change: dict[str, str]
    delete: tuple[str, ...]


def plan_topics(
    settings: MirrorSettings,
    topics: Mapping[TopicName, TopicInfo],
    copies: Mapping[tuple[str, str], Copy],
    source_cluster: str,
    target_cluster: str,
) -> TopicPlan:
    """The plan for the topics that a source has now; ``copies`` are those that mirrors write there."""
    planned: dict[TopicName, PlannedTopic] = {}
    cycles = []
    unnamed = {}
    for name in sorted(topics):
        info = topics[name]
        if not settings.wants(name, is_internal=info.is_internal):
            continue
        paths = paths_of(name, copies)
        if any(target_cluster in path for path in paths):
            cycles.append(str(name))
            continue
        path = (*(paths[0] if paths else ()), source_cluster)
        try:
            target = settings.target_name(name)
        except ConfigError as error:
            unnamed[str(name)] = str(error)
            continue
        topic_id = "" if info.topic_id == NO_TOPIC_ID else bytes(info.topic_id).hex()
        planned[name] = PlannedTopic(name, topic_id, len(info.partitions), target, path)
    return TopicPlan(planned, tuple(cycles), unnamed)


def partitions_of(plan: TopicPlan, owned: tuple[int, ...], slots: int) -> list[TopicPartition]:
    """The partitions of planned topics that fall into the slots of an instance."""
    return [
        partition
        for topic in plan.topics.values()
        for partition in (TopicPartition(topic.name, number) for number in range(topic.partitions))
        if slot_of(partition, slots) in owned
    ]


def wanted_configs(source: Mapping[str, ConfigValue], max_message_bytes: int) -> dict[str, str]:
    """The keys that a copy is to have of its own; ``max_message_bytes`` is what the target takes by default."""
    wanted = {
        key: found.value
        for key, found in source.items()
        if found.source == _OF_TOPIC
        and found.value is not None
        and key not in TIED_TO_A_CLUSTER
        and not key.startswith(_TIERED)
    }
    largest = source.get(_MAX_MESSAGE)
    if largest is not None and largest.source in _OF_BROKERS and int(largest.value or 0) > max_message_bytes:
        wanted[_MAX_MESSAGE] = largest.value or ""
    return wanted


def change_of(
    wanted: Mapping[str, str], target: Mapping[str, ConfigValue], copied_before: tuple[str, ...]
) -> TargetChange:
    """The change that makes the target's keys as they are wanted. Keys that nobody copied are left as they are."""
    change = {key: value for key, value in wanted.items() if key not in target or target[key].value != value}
    gone = [key for key in copied_before if key not in wanted and key in target and target[key].source == _OF_TOPIC]
    return TargetChange(change, tuple(gone))
