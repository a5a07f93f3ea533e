"""The controller's decisions after brokers join or leave: the controller itself, partition leaders, and the end of
fencing.

Each is a pure function from the image to commits. Versions and epochs in them reject a decision on an outdated image;
it is then made again on the newer one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from oncelog.base.ids import BrokerId, TopicName
from oncelog.base.tree import Create, Delete, Operation, Set
from oncelog.core.controller.commits import COMMIT_BYTES, commits_of
from oncelog.core.controller.fencing import controller_check, registration_checks, topics_check
from oncelog.core.controller.image import layout
from oncelog.core.controller.image.cluster_image import ClusterImage
from oncelog.core.controller.image.model import BrokerImage, PartitionImage, TopicImage
from oncelog.core.controller.replicas.leadership import ElectionRules, settled
from oncelog.core.controller.replicas.replica_sets import min_insync_replicas

UncleanOf = Callable[[TopicImage], bool]
"""True if the topic allows unclean elections."""


def has_controller(image: ClusterImage) -> bool:
    return image.controller_id in image.brokers


def claim_controller(image: ClusterImage, broker_id: BrokerId, now_ms: int) -> list[Operation]:
    """A broker becomes controller, in the next controller epoch, when none is alive."""
    operations: list[Operation] = [counted(image, layout.CONTROLLER_EPOCH, image.controller_epoch + 1)]
    left = image.versions.get(layout.CONTROLLER)
    # A controller presumed dead may have left its ephemeral node, which disappears with its session.
    if left is not None:
        operations.append(Delete(layout.CONTROLLER, left))
    operations.append(Create(layout.CONTROLLER, layout.controller_value(broker_id, now_ms), ephemeral=True))
    return operations


def counted(image: ClusterImage, path: str, number: int) -> Operation:
    value = str(number).encode()
    version = image.versions.get(path)
    return Create(path, value) if version is None else Set(path, value, version)


def settle_partitions(
    image: ClusterImage, topics: Iterable[TopicName], unclean_of: UncleanOf, limit_bytes: int = COMMIT_BYTES
) -> list[list[Operation]]:
    """Commits that give every partition of the topics a leader, if possible."""
    changes: dict[TopicName, dict[int, PartitionImage]] = {}
    for name in topics:
        # The topic may have been deleted meanwhile.
        topic = image.topics.get(name)
        if topic is not None:
            changed = settled_partitions(image, topic, unclean_of)
            if changed:
                changes[name] = changed
    return commits_of(image, changes, [*controller_check(image), *topics_check(image)], limit_bytes)


def settled_partitions(image: ClusterImage, topic: TopicImage, unclean_of: UncleanOf) -> dict[int, PartitionImage]:
    brokers = image.brokers
    rules = rules_of(image, topic, unclean_of)
    changed = {}
    for index, partition in enumerate(topic.partitions):
        after = settled(partition, brokers, rules)
        if after is not partition:
            changed[index] = after
    return changed


def rules_of(image: ClusterImage, topic: TopicImage, unclean_of: UncleanOf) -> ElectionRules:
    return ElectionRules(min_insync_replicas(image, topic), unclean_of(topic))


def end_fencing(image: ClusterImage, unclean_of: UncleanOf, now_ms: int) -> list[Operation]:
    """Ends the fencing of brokers, once no replica set relies on records they may lack."""
    fenced = [broker for broker in image.brokers.values() if broker.fenced]
    # While a set still relies on a fenced broker, it must not be trusted with its records.
    if not fenced or any(settled_partitions(image, topic, unclean_of) for topic in image.topics.values()):
        return []
    operations: list[Operation] = [*controller_check(image)]
    for broker in fenced:
        released = broker._replace(fenced=False, is_new_directory=False)
        path = layout.broker_path(broker.broker_id)
        operations.append(Set(path, layout.broker_value(released, now_ms), broker.version))
        record = image.broker_records.get(broker.broker_id)
        if record is not None:
            value = layout.broker_record_value(record._replace(fenced=False, is_new_directory=False))
            operations.append(Set(layout.broker_record_path(broker.broker_id), value, record.version))
    return operations


def begin_controlled_shutdown(image: ClusterImage, broker_id: BrokerId, now_ms: int) -> list[Operation]:
    """Operations by which a broker asks to have its leaderships moved away; none if no other broker can lead."""
    broker = image.brokers.get(broker_id)
    # Without another broker the partitions stay here until the end.
    others = any(other.may_lead for other in image.brokers.values() if other.broker_id != broker_id)
    if broker is None or broker.in_controlled_shutdown or not others:
        return []
    stopping = broker._replace(in_controlled_shutdown=True)
    return [Set(layout.broker_path(broker_id), layout.broker_value(stopping, now_ms), broker.version)]


def report_full_disk(image: ClusterImage, broker_id: BrokerId, now_ms: int, *, full: bool) -> list[Operation]:
    """Operations by which a broker reports that its disk is full or has room again; none if nothing changes or no other
    broker can lead."""
    broker = image.brokers.get(broker_id)
    others = any(other.may_lead for other in image.brokers.values() if other.broker_id != broker_id)
    if broker is None or broker.has_full_disk is full or (full and not others):
        return []
    updated = broker._replace(has_full_disk=full)
    return [Set(layout.broker_path(broker_id), layout.broker_value(updated, now_ms), broker.version)]


def may_stop(image: ClusterImage, broker_id: BrokerId, unclean_of: UncleanOf) -> bool:
    """True if the controller has nothing left to move away from a stopping broker."""
    broker = image.brokers.get(broker_id)
    if broker is None or not broker.in_controlled_shutdown:
        return True
    return not any(
        broker_id in partition.isr or partition.leader == broker_id
        for topic in image.topics.values()
        for partition in map(topic.partitions.__getitem__, settled_partitions(image, topic, unclean_of))
    )


def end_registration(image: ClusterImage, broker: BrokerImage) -> list[Operation]:
    """Operations that end the registration of an unreachable broker. Always safe: a live one is fenced and registers
    again."""
    registered = image.brokers.get(broker.broker_id)
    # The broker has registered again: this registration is over already.
    if registered is None or registered.epoch != broker.epoch:
        return []
    path = layout.broker_path(broker.broker_id)
    return [*registration_checks(image, registered), Delete(path, registered.version)]
