"""Decisions about topics: create, delete, add partitions.

Errors and messages are those of Apache Kafka 4.3's controller. The operations of a decision are one commit, however
many topics it has; CreateTopics of thousands takes several decisions. ``MAX_PARTITIONS_PER_REQUEST`` keeps a hostile
request cheap.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import TopicId, TopicName
from oncelog.base.tree import Create, Delete, Operation, Set
from oncelog.core.configs.broker import BrokerConfig
from oncelog.core.configs.kinds import ConfigError
from oncelog.core.configs.topic import check_topic_configs
from oncelog.core.controller.fencing import topics_check
from oncelog.core.controller.image import layout
from oncelog.core.controller.image.cluster_image import ABSENT, ClusterImage, TopicImage
from oncelog.core.controller.image.model import Assignment
from oncelog.core.controller.outcomes import Decided, Refusal, Refused
from oncelog.core.controller.replicas.placement import Replicas, check_can_lead, check_replicas, partition_nodes, place
from oncelog.core.controller.topic_names import collisions, may_collide, name_refusal, unified

MAX_PARTITIONS_PER_REQUEST: Final = 10_000

TOO_MANY_PARTITIONS: Final = Refusal(ErrorCode.POLICY_VIOLATION, "Excessively large number of partitions per request.")


Charge = Callable[[TopicName, int], None]
"""Charges a topic's partitions to a quota; raises Refused if it is exhausted."""


def free(_topic: TopicName, _partitions: int) -> None:
    """A ``Charge`` without a quota."""


@dataclass(frozen=True, slots=True)
class NewTopic:
    """−1: the broker's default. ``assignments`` are (partition, brokers)."""

    name: str
    partitions: int = -1
    replication_factor: int = -1
    assignments: Sequence[tuple[int, Sequence[int]]] = ()
    configs: Sequence[tuple[str, str | None]] = ()


@dataclass(frozen=True, slots=True)
class MorePartitions:
    """Without ``assignments`` the broker places the partitions up to ``count``."""

    name: str
    count: int
    assignments: Sequence[Sequence[int]] | None = None


@dataclass(frozen=True, slots=True)
class CreatedTopic:
    name: TopicName
    topic_id: TopicId
    assignment: Sequence[Replicas]
    configs: Mapping[str, str] = field(default_factory=dict)

    @property
    def replication_factor(self) -> int:
        return len(self.assignment[0])


def create_topics(
    image: ClusterImage,
    config: BrokerConfig,
    topics: Sequence[NewTopic],
    new_topic_id: Callable[[], TopicId],
    beside: Collection[TopicName] = (),
    charge: Charge = free,
) -> Decided[CreatedTopic]:
    """Create each topic if possible. Names must be distinct. ``beside``: topics created earlier by the same request,
    for collisions of names."""
    if exceeds_max_partitions(config, topics):
        return Decided([], [TOO_MANY_PARTITIONS for _ in topics])
    # Collisions are computed only if a name may collide: listing all topics costs time.
    taken: Mapping[str, TopicName] = {}
    if any(may_collide(topic.name) for topic in topics):
        taken = collisions([name for name in image.topics if name not in beside])
    operations: list[Operation] = []
    outcomes: list[CreatedTopic | Refusal] = []
    for topic in topics:
        try:
            created = _create_topic(image, config, topic, taken, new_topic_id)
            charge(created.name, len(created.assignment))
        except Refused as refused:
            outcomes.append(refused.refusal)
            continue
        operations.extend(_topic_nodes(image, created))
        outcomes.append(created)
    return Decided(operations, outcomes)


def exceeds_max_partitions(config: BrokerConfig, topics: Sequence[NewTopic]) -> bool:
    default = int(config.get("num.partitions"))
    total = sum(
        len(topic.assignments) if topic.assignments else default if topic.partitions == -1 else max(0, topic.partitions)
        for topic in topics
    )
    return total > MAX_PARTITIONS_PER_REQUEST


def _create_topic(
    image: ClusterImage,
    config: BrokerConfig,
    topic: NewTopic,
    taken: Mapping[str, TopicName],
    new_topic_id: Callable[[], TopicId],
) -> CreatedTopic:
    refusal = name_refusal(topic.name)
    if refusal is not None:
        raise Refused(ErrorCode.INVALID_TOPIC_EXCEPTION, refusal)
    name = TopicName(topic.name)
    if name in image.topics:
        raise Refused(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
    other = taken.get(unified(name)) if may_collide(name) else None
    if other is not None:
        raise Refused(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic '{name}' collides with existing topic: {other}")
    configs = _checked_configs(config, topic)
    topic_id = new_topic_id()
    if topic.assignments:
        return CreatedTopic(name, topic_id, _manual_assignment(image, topic), configs)
    if topic.replication_factor < -1 or topic.replication_factor == 0:
        raise Refused(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            "Replication factor must be larger than 0, or -1 to use the default value.",
        )
    if topic.partitions < -1 or topic.partitions == 0:
        raise Refused(ErrorCode.INVALID_PARTITIONS, "Number of partitions was set to an invalid non-positive value.")
    partitions = config.get("num.partitions") if topic.partitions == -1 else topic.partitions
    factor = config.get("default.replication.factor") if topic.replication_factor == -1 else topic.replication_factor
    return CreatedTopic(name, topic_id, place(image, topic_id, 0, partitions, factor), configs)


def _checked_configs(config: BrokerConfig, topic: NewTopic) -> dict[str, str]:
    missing = [key for key, value in topic.configs if value is None]
    if missing:
        raise Refused(ErrorCode.INVALID_CONFIG, "Null value not supported for topic configs: " + ",".join(missing))
    configs = {key: value for key, value in topic.configs if value is not None}
    try:
        check_topic_configs(config, configs)
    except ConfigError as error:
        raise Refused(ErrorCode.INVALID_CONFIG, str(error)) from error
    return configs


def _manual_assignment(image: ClusterImage, topic: NewTopic) -> list[Replicas]:
    start = "A manual partition assignment was specified, but "
    if topic.replication_factor != -1:
        raise Refused(ErrorCode.INVALID_REQUEST, start + "replication factor was not set to -1.")
    if topic.partitions != -1:
        raise Refused(ErrorCode.INVALID_REQUEST, start + "numPartitions was not set to -1.")
    assigned: dict[int, Replicas] = {}
    factor = None
    for partition, brokers in topic.assignments:
        if partition in assigned:
            raise Refused(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"Found multiple manual partition assignments for partition {partition}",
            )
        assigned[partition] = check_replicas(image, brokers, factor)
        check_can_lead(image, partition, assigned[partition])
        factor = len(brokers)
    if sorted(assigned) != list(range(len(assigned))):
        raise Refused(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT, "partitions should be a consecutive 0-based integer sequence"
        )
    return [assigned[partition] for partition in range(len(assigned))]


def _topic_nodes(image: ClusterImage, topic: CreatedTopic) -> list[Operation]:
    operations: list[Operation] = [
        Create(layout.topic_path(topic.name), layout.topic_value(topic.topic_id, map(Assignment, topic.assignment))),
        Create(layout.partitions_path(topic.name), b""),
        *partition_nodes(image, topic.name, 0, topic.assignment),
    ]
    if topic.configs:
        operations.append(Create(layout.topic_config_path(topic.name), layout.config_value(topic.configs)))
    return operations


def delete_topics(image: ClusterImage, topics: Sequence[TopicImage]) -> list[Operation]:
    operations: list[Operation] = []
    deletions = image.versions.get(layout.DELETED_TOPICS)
    if topics and deletions is not None:
        operations.append(Set(layout.DELETED_TOPICS, b"", deletions))
    for topic in topics:
        for index, partition in enumerate(topic.partitions):
            if partition.version != ABSENT:
                operations.append(Delete(layout.state_path(topic.name, index), partition.version))
                operations.append(Delete(layout.partition_path(topic.name, index), 0))
        operations.append(Delete(layout.partitions_path(topic.name), 0))
        operations.append(Delete(layout.topic_path(topic.name), topic.version))
        configs = layout.topic_config_path(topic.name)
        if topic.config_version == ABSENT:
            # Creating and deleting the missing node makes the commit fail if configs were set meanwhile: they would
            # otherwise remain for the next topic of this name.
            operations.append(Create(configs, layout.config_value({})))
        operations.append(Delete(configs, max(topic.config_version, 0)))
    return operations


def create_partitions(
    image: ClusterImage, topics: Sequence[MorePartitions], charge: Charge = free
) -> Decided[TopicName]:
    """Names must be distinct."""
    operations: list[Operation] = []
    outcomes: list[TopicName | Refusal] = []
    added = 0
    for request in topics:
        try:
            topic = image.topics.get(TopicName(request.name))
            if topic is None:
                raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            additional = _additional(topic, request)
            added += additional
            if added > MAX_PARTITIONS_PER_REQUEST:
                return Decided([], [TOO_MANY_PARTITIONS for _ in topics])
            charge(topic.name, additional)
            assignment = _more_replicas(image, topic, request, additional)
        except Refused as refused:
            outcomes.append(refused.refusal)
            continue
        operations.extend(_grow(image, topic, assignment))
        outcomes.append(topic.name)
    return Decided([*topics_check(image), *operations] if operations else [], outcomes)


def _additional(topic: TopicImage, request: MorePartitions) -> int:
    have = len(topic.partitions)
    if request.count == have:
        raise Refused(ErrorCode.INVALID_PARTITIONS, f"Topic already has {have} partition(s).")
    if request.count < have:
        raise Refused(
            ErrorCode.INVALID_PARTITIONS,
            f"The topic {topic.name} currently has {have} partition(s); {request.count} would not be an increase.",
        )
    additional = request.count - have
    if request.assignments is not None and len(request.assignments) != additional:
        raise Refused(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"Attempted to add {additional} additional partition(s), but only {len(request.assignments)} "
            "assignment(s) were specified.",
        )
    return additional


def _more_replicas(image: ClusterImage, topic: TopicImage, request: MorePartitions, additional: int) -> list[Replicas]:
    first = topic.partitions[0]
    # New partitions get the factor that the topic has after a running reassignment.
    factor = len(first.replicas) - len(first.removing)
    if request.assignments is not None:
        assigned = [check_replicas(image, brokers, factor) for brokers in request.assignments]
        for partition, replicas in enumerate(assigned, len(topic.partitions)):
            check_can_lead(image, partition, replicas)
        return assigned
    return place(image, topic.topic_id, len(topic.partitions), additional, factor)


def _grow(image: ClusterImage, topic: TopicImage, assignment: Sequence[Replicas]) -> list[Operation]:
    present = [partition.assignment for partition in topic.partitions]
    value = layout.topic_value(topic.topic_id, [*present, *map(Assignment, assignment)])
    return [
        Set(layout.topic_path(topic.name), value, topic.version),
        *partition_nodes(image, topic.name, len(present), assignment),
    ]
