"""Removes replicas with damaged records from in-sync sets.

They are not eligible leaders either (KIP-966). A leader hands the partition over in the commit that elects another
member. A broker that finds damage at start leaves only the affected sets, in the commit in which it registers. If no
other replica has the records the partition continues with the sound ones.
"""

from __future__ import annotations

from collections.abc import Collection

from oncelog.base.ids import NO_BROKER, BrokerId, LeaderEpoch, TopicName, TopicPartition
from oncelog.base.tree import Operation, Set
from oncelog.core.controller.fencing import registration_checks, topics_check
from oncelog.core.controller.image import layout
from oncelog.core.controller.image.cluster_image import ClusterImage
from oncelog.core.controller.image.model import UNKNOWN_BROKER_EPOCH, PartitionImage
from oncelog.core.controller.replicas.leadership import ElectionRules, with_leader
from oncelog.core.controller.replicas.replica_sets import min_insync_replicas, with_isr


def withdrawn(image: ClusterImage, partition: TopicPartition, leader_epoch: int) -> list[Operation]:
    """The commit by which the leader of ``leader_epoch`` hands over and leaves the in-sync set; empty if the image has
    another leader epoch or no other replica may lead."""
    current = image.partition(partition)
    if current is None or current.leader_epoch != leader_epoch or current.leader not in image.brokers:
        return []
    rules = ElectionRules(min_insync_replicas(image, image.topics[partition.topic]))
    others = [member for member in current.isr if member != current.leader]
    left = with_isr(current, others, rules.min_isr, lost=(current.leader,))
    after = with_leader(left, image.brokers, rules)
    # No other replica has the records: the partition stays with what is sound.
    if after.leader == NO_BROKER:
        return []
    brokers = (image.brokers[current.leader], image.brokers[after.leader])
    return [
        *topics_check(image),
        *(check for broker in brokers for check in registration_checks(image, broker)),
        Set(
            layout.state_path(partition.topic, partition.partition),
            layout.state_value(after, image.controller_epoch),
            current.version,
        ),
    ]


def without_lost(
    image: ClusterImage, broker_id: BrokerId, lost: Collection[TopicPartition]
) -> dict[TopicName, dict[int, PartitionImage]]:
    """The partitions that change because a broker has lost their records."""
    changes: dict[TopicName, dict[int, PartitionImage]] = {}
    for partition in sorted(lost):
        current = image.partition(partition)
        counted = () if current is None else (*current.isr, *current.elr)
        if current is None or broker_id not in counted or not _others_have_records(image, counted, broker_id):
            continue
        min_isr = min_insync_replicas(image, image.topics[partition.topic])
        after = with_isr(current, [member for member in current.isr if member != broker_id], min_isr, lost=(broker_id,))
        if after.leader == broker_id:
            # The broker led in an earlier registration; the controller will elect another leader.
            epoch = LeaderEpoch(after.leader_epoch + 1)
            after = after._replace(leader=NO_BROKER, leader_epoch=epoch, leader_broker_epoch=UNKNOWN_BROKER_EPOCH)
        changes.setdefault(partition.topic, {})[partition.partition] = after
    return changes


def _others_have_records(image: ClusterImage, counted: Collection[BrokerId], broker_id: BrokerId) -> bool:
    """True if another of the replicas that count, alive or not, is not known to lack records."""
    records = (image.broker_records.get(member) for member in counted if member != broker_id)
    return any(record is None or not record.fenced for record in records)
