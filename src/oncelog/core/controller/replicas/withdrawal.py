"""A leader that gives up a partition because records in its log are damaged.

It leaves the in-sync set in the same commit in which another member is elected: from then on it lacks what the others
have. It is no eligible leader either (KIP-966). Where nobody else may lead nothing changes: what is sound is served on.
"""

from __future__ import annotations

from oncelog.base.ids import NO_BROKER, TopicPartition
from oncelog.base.tree import Operation, Set
from oncelog.core.controller.fencing import registration_checks, topics_check
from oncelog.core.controller.image import layout
from oncelog.core.controller.image.cluster_image import ClusterImage
from oncelog.core.controller.replicas.leadership import ElectionRules, with_leader
from oncelog.core.controller.replicas.replica_sets import min_insync_replicas, with_isr


def withdrawn(image: ClusterImage, partition: TopicPartition, leader_epoch: int) -> list[Operation]:
    """The commit by which the leader of ``leader_epoch`` hands a partition over and leaves its in-sync set; none where
    the image has another leader epoch by now, or nobody else may lead."""
    found = image.partition(partition)
    if found is None or found.leader_epoch != leader_epoch or found.leader not in image.brokers:
        return []
    rules = ElectionRules(min_insync_replicas(image, image.topics[partition.topic]))
    others = [member for member in found.isr if member != found.leader]
    left = with_isr(found, others, rules.min_isr, lost=(found.leader,))
    after = with_leader(left, image.brokers, rules)
    if after.leader == NO_BROKER:
        return []
    brokers = (image.brokers[found.leader], image.brokers[after.leader])
    return [
        *topics_check(image),
        *(check for broker in brokers for check in registration_checks(image, broker)),
        Set(
            layout.state_path(partition.topic, partition.partition),
            layout.state_value(after, image.controller_epoch),
            found.version,
        ),
    ]
