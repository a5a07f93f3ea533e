"""Decisions about configs: replace all of a resource (AlterConfigs) or change some (KIP-339).

Either way the resulting configs are validated as a whole and written as one node.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import BrokerId, TopicName
from oncelog.base.tree import Operation
from oncelog.core.configs.broker import BrokerConfig
from oncelog.core.controller.commits import operations_of
from oncelog.core.controller.fencing import topics_check
from oncelog.core.controller.image.cluster_image import ClusterImage, PartitionImage, changes_of
from oncelog.core.controller.outcomes import Decided, Refusal, Refused
from oncelog.core.controller.replicas.replica_sets import min_insync_replicas, without_stale_eligible
from oncelog.core.controller.resources import (
    MIN_INSYNC_REPLICAS,
    ConfigResourceType,
    Resource,
    check_broker_name,
    check_configs,
    check_resource,
    current,
    default_text,
    is_list,
    write_configs,
)


class ChangeType(IntEnum):
    """Kinds of change, with the codes of the protocol."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


@dataclass(frozen=True, slots=True)
class ConfigChange:
    """``type`` is the code in the request, valid or not."""

    key: str
    value: str | None
    type: int = ChangeType.SET


@dataclass(frozen=True, slots=True)
class Alteration:
    """Changes of one resource. ``replace``: unnamed keys return to their defaults."""

    resource: Resource
    changes: Sequence[ConfigChange]
    replace: bool = False


def repeated_resources(alterations: Iterable[Alteration]) -> set[Resource]:
    counts = Counter(alteration.resource for alteration in alterations)
    return {resource for resource, count in counts.items() if count > 1}


def alteration_bytes(image: ClusterImage, alteration: Alteration) -> int:
    """The approximate size in a commit: the present node and the new values."""
    resource = alteration.resource
    topic = image.topics.get(TopicName(resource.name)) if resource.type == ConfigResourceType.TOPIC else None
    before = () if topic is None else topic.configs.items()
    after = [*before, *((change.key, change.value or "") for change in alteration.changes)]
    return _NODE_BYTES + 3 * len(resource.name) + sum(len(key) + 4 * len(value) + 6 for key, value in after)


_NODE_BYTES: Final = 150
"""A config node besides its name and configs, and its path."""


def alter_configs(
    image: ClusterImage,
    config: BrokerConfig,
    broker_id: BrokerId,
    alterations: Sequence[Alteration],
    repeated: Collection[Resource] = (),
) -> Decided[None]:
    """Decide each alteration; a refused one does not affect the others. Resources named more than once, here or in
    ``repeated`` (other parts of the request), are refused."""
    twice = {*repeated, *repeated_resources(alterations)}
    operations: list[Operation] = []
    outcomes: list[Refusal | None] = []
    is_topic = any(alteration.resource.type == ConfigResourceType.TOPIC for alteration in alterations)
    for alteration in alterations:
        try:
            if alteration.resource in twice:
                raise Refused(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
            operations.extend(_alter(image, config, broker_id, alteration))
        except Refused as refused:
            outcomes.append(refused.refusal)
            continue
        outcomes.append(None)
    if not operations:
        return Decided([], outcomes)
    # A topic's config must not be written for a topic deleted meanwhile.
    rights = topics_check(image) if is_topic else []
    return Decided([*rights, *operations, *_end_eligibility(image, operations)], outcomes)


def _end_eligibility(image: ClusterImage, operations: Sequence[Operation]) -> list[Operation]:
    """Clear eligible leaders where ``operations`` make the in-sync set full."""
    names = [name for name, topic in image.topics.items() if any(partition.elr for partition in topic.partitions)]
    if not names:
        return []
    after = image.apply(changes_of(operations)).image
    changes: dict[TopicName, dict[int, PartitionImage]] = {}
    for name in names:
        min_isr = min_insync_replicas(after, after.topics[name])
        for index, partition in enumerate(image.topics[name].partitions):
            full = without_stale_eligible(partition, min_isr)
            if full is not partition:
                changes.setdefault(name, {})[index] = full
    # In the same commit, because the high watermark may rise at once (KIP-966).
    return operations_of(image, changes)


def _alter(image: ClusterImage, config: BrokerConfig, broker_id: BrokerId, alteration: Alteration) -> list[Operation]:
    resource = alteration.resource
    _check_changes(alteration)
    if resource.type == ConfigResourceType.BROKER_LOGGER and not alteration.replace:
        start, not_a_number = "Unexpected node id. Expected", "Node id must be an integer, but it is: "
        check_broker_name(resource.name, broker_id, not_a_number, ", but received ", start)
        for change in alteration.changes:
            raise Refused(ErrorCode.INVALID_CONFIG, f"Logger {change.key} does not exist!")
        return []
    check_resource(resource, broker_id)
    now = current(image, resource)
    after: dict[str, str] = {} if alteration.replace else dict(now.configs)
    for change in alteration.changes:
        _apply(resource, after, change)
    check_configs(image, config, resource, after, broker_id)
    if resource.type == ConfigResourceType.BROKER:
        _check_min_insync_replicas(alteration, now.configs, after)
    # Without a change there is no commit, and no version to conflict with.
    if after == now.configs:
        return []
    return [write_configs(now, after)]


def _check_min_insync_replicas(alteration: Alteration, before: Mapping[str, str], after: Mapping[str, str]) -> None:
    """The cluster always has one value, and no broker has its own (KIP-966)."""
    named = any(change.key == MIN_INSYNC_REPLICAS for change in alteration.changes)
    if alteration.resource.name and (named or MIN_INSYNC_REPLICAS in before):
        raise Refused(
            ErrorCode.INVALID_CONFIG, f"Broker-level {MIN_INSYNC_REPLICAS} cannot be altered while ELR is enabled."
        )
    if not alteration.resource.name and MIN_INSYNC_REPLICAS not in after:
        raise Refused(
            ErrorCode.INVALID_CONFIG, f"Cluster-level {MIN_INSYNC_REPLICAS} cannot be removed while ELR is enabled."
        )


def _check_changes(alteration: Alteration) -> None:
    keys = [change.key for change in alteration.changes]
    if len(set(keys)) != len(keys):
        raise Refused(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")
    missing = [change.key for change in alteration.changes if change.value is None and change.type != ChangeType.DELETE]
    if missing:
        raise Refused(ErrorCode.INVALID_REQUEST, "Null value not supported for : " + ", ".join(missing))


def _apply(resource: Resource, configs: dict[str, str], change: ConfigChange) -> None:
    key, value = change.key, change.value or ""
    if change.type == ChangeType.SET:
        configs[key] = value
    elif change.type == ChangeType.DELETE:
        configs.pop(key, None)
    elif change.type in (ChangeType.APPEND, ChangeType.SUBTRACT):
        _check_list(resource, key, ChangeType(change.type))
        old = [part for part in configs.get(key, default_text(resource, key)).split(",") if part]
        parts = value.split(",")
        if change.type == ChangeType.APPEND:
            configs[key] = ",".join([*old, *(part for part in parts if part not in old)])
        else:
            configs[key] = ",".join(part for part in old if part not in parts)
    else:
        if resource.type == ConfigResourceType.BROKER:
            raise Refused(ErrorCode.INVALID_REQUEST, f"Unknown operations type {change.type}")
        raise Refused(ErrorCode.UNKNOWN_SERVER_ERROR)  # as in Apache Kafka, which expects it for brokers only


def _check_list(resource: Resource, key: str, change_type: ChangeType) -> None:
    if is_list(resource, key):
        return
    if resource.type == ConfigResourceType.BROKER:
        word = change_type.name.lower()
        raise Refused(ErrorCode.INVALID_CONFIG, f"Config value {word} is not allowed for config key: {key}")
    raise Refused(ErrorCode.INVALID_CONFIG, f"Can't {change_type.name} to key {key} because its type is not LIST.")
