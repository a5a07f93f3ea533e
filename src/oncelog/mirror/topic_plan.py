"""Plans copies: the target topic for each topic of a source, and the changes needed there. Pure.

A topic whose records passed through the target already is a cycle and is left out. A copy has at least as many
partitions as its source. The source topic's own configuration is copied, without keys tied to a cluster;
``max.message.bytes`` also if a broker's default is larger, because batches are copied whole. The copy uses CreateTime,
since timestamps are copied, and the target's timestamp bounds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from oncelog.admin.configs import ConfigRow
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
_OF_TOPIC: Final = "topic"
_OF_BROKERS: Final = ("dynamic broker", "dynamic default broker", "static broker")


@dataclass(frozen=True, slots=True)
class PlannedTopic:
    name: TopicName
    topic_id: str
    partitions: int
    target: TopicName
    path: tuple[str, ...]
    """The clusters its records passed through, the source last."""


@dataclass(frozen=True, slots=True)
class TopicPlan:
    """All topics of a source: those to copy, and those left out because they came from the target."""

    topics: dict[TopicName, PlannedTopic] = field(default_factory=dict)
    cycles: tuple[str, ...] = ()
    unnamed: dict[str, str] = field(default_factory=dict)
    """Topics without a valid name at the target, with the reason."""


class TargetChange(NamedTuple):
    """Keys of a target topic to set, and to reset to their defaults."""

    change: dict[str, str]
    delete: tuple[str, ...]


def plan_topics(
    settings: MirrorSettings,
    topics: Mapping[TopicName, TopicInfo],
    copies: Mapping[tuple[str, str], Copy],
    source_cluster: str,
    target_cluster: str,
) -> TopicPlan:
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
    return [
        partition
        for topic in plan.topics.values()
        for partition in (TopicPartition(topic.name, number) for number in range(topic.partitions))
        if slot_of(partition, slots) in owned
    ]


def wanted_configs(source: Mapping[str, ConfigRow], max_message_bytes: int) -> dict[str, str]:
    """The topic-level keys of a copy; ``max_message_bytes`` is the target's default."""
    configs = {
        key: row.value
        for key, row in source.items()
        if row.source == _OF_TOPIC
        and row.value is not None
        and key not in TIED_TO_A_CLUSTER
        and not key.startswith(_TIERED)
    }
    largest = source.get(_MAX_MESSAGE)
    if largest is not None and largest.source in _OF_BROKERS and int(largest.value or 0) > max_message_bytes:
        configs[_MAX_MESSAGE] = largest.value or ""
    return configs


def change_of(
    requested: Mapping[str, str], target: Mapping[str, ConfigRow], copied_before: tuple[str, ...]
) -> TargetChange:
    """Keys that no mirror copied stay as they are."""
    change = {key: value for key, value in requested.items() if key not in target or target[key].value != value}
    gone = [key for key in copied_before if key not in requested and key in target and target[key].source == _OF_TOPIC]
    return TargetChange(change, tuple(gone))
