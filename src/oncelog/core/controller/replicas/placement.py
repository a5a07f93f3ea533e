"""Places new partitions on brokers, and creates their nodes.

Partitions go round-robin over brokers that may lead. The first replica leads, and the others follow in the round, on as
many racks as possible. Manual assignments are validated like Apache Kafka does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import zip_longest

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import BrokerId, LeaderEpoch, TopicId, TopicName, group_by_key
from oncelog.base.tree import Create
from oncelog.core.controller.image import layout
from oncelog.core.controller.image.cluster_image import ClusterImage
from oncelog.core.controller.image.model import BrokerImage, PartitionImage
from oncelog.core.controller.outcomes import Refused

Replicas = tuple[BrokerId, ...]


def place(image: ClusterImage, topic_id: TopicId, first: int, count: int, replication_factor: int) -> list[Replicas]:
    """Replicas of partitions ``first`` to ``first + count``. Absent brokers, whose replicas come into sync on return,
    are used if live ones are too few. Raises Refused if there are too few of both."""
    brokers = _round([broker for broker in image.brokers.values() if broker.may_lead])
    absent = _absent(image)
    _check_factor(replication_factor, len(brokers), len(absent))
    # A random start spreads the first partitions of many small topics.
    start = int.from_bytes(topic_id[:4], "big")
    present = min(replication_factor, len(brokers))
    placed = [
        _replicas(brokers, start + number, number // len(brokers), present) for number in range(first, first + count)
    ]
    # Enough live brokers: absent ones are not needed.
    if present == replication_factor:
        return placed
    return [
        (*replicas, *_rotated(absent, start + number)[: replication_factor - present])
        for number, replicas in enumerate(placed, first)
    ]


def _absent(image: ClusterImage) -> list[BrokerId]:
    registered = filter(image.is_registered, {*image.broker_records, *image.brokers})
    return sorted(broker for broker in registered if not _may_lead(image, broker))


def _check_factor(replication_factor: int, present: int, absent: int) -> None:
    start = f"Unable to replicate the partition {replication_factor} time(s): "
    if not present:
        raise Refused(ErrorCode.INVALID_REPLICATION_FACTOR, start + "All brokers are currently fenced.")
    if replication_factor > present + absent:
        raise Refused(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"{start}The target replication factor of {replication_factor} cannot be reached because only "
            f"{present + absent} broker(s) are registered or some brokers have all their log directories cordoned.",
        )


def _rotated(brokers: Sequence[BrokerId], start: int) -> list[BrokerId]:
    turn = start % len(brokers)
    return [*brokers[turn:], *brokers[:turn]]


def more_replicas(image: ClusterImage, replicas: Replicas, start: int, replication_factor: int) -> Replicas:
    """``replicas`` extended to ``replication_factor``, or to as many as there are brokers."""
    brokers = _round([broker for broker in image.brokers.values() if broker.may_lead])
    turn = start % len(brokers) if brokers else 0
    others = [broker for broker in brokers[turn:] + brokers[:turn] if broker.broker_id not in replicas]
    present = [image.brokers[replica] for replica in replicas if replica in image.brokers]
    added = _spread(present, others, max(0, replication_factor - len(replicas)))
    return (*replicas, *added)


def _round(brokers: Sequence[BrokerImage]) -> list[BrokerImage]:
    racks = group_by_key((broker.rack or "", broker) for broker in sorted(brokers, key=lambda broker: broker.broker_id))
    return [broker for lap in zip_longest(*racks.values()) for broker in lap if broker is not None]


def _replicas(brokers: Sequence[BrokerImage], place_in_round: int, lap: int, replication_factor: int) -> Replicas:
    count = len(brokers)
    leader = brokers[place_in_round % count]
    if replication_factor == 1:
        return (leader.broker_id,)
    # Each lap starts one broker further on, which spreads the followers of one broker's partitions over all others.
    others = [brokers[(place_in_round + 1 + (lap + step) % (count - 1)) % count] for step in range(count - 1)]
    return (leader.broker_id, *_spread([leader], others, replication_factor - 1))


def _spread(present: Sequence[BrokerImage], others: Sequence[BrokerImage], count: int) -> list[BrokerId]:
    """The first ``count`` of the others, each on a rack with the fewest replicas so far."""
    left = list(others)
    racks = Counter(broker.rack for broker in present)
    spread: list[BrokerId] = []
    for _ in range(min(count, len(left))):
        # min() takes the first of equals, which keeps the round's order.
        chosen = min(left, key=lambda broker: racks[broker.rack])
        left.remove(chosen)
        racks[chosen.rack] += 1
        spread.append(chosen.broker_id)
    return spread


def check_replicas(image: ClusterImage, replicas: Sequence[int], replication_factor: int | None) -> Replicas:
    """Validate a manual assignment; its brokers may be down. Raises Refused."""
    start = "The manual partition assignment includes "
    if not replicas:
        raise Refused(ErrorCode.INVALID_REPLICA_ASSIGNMENT, start + "an empty replica list.")
    previous = None
    for broker in sorted(replicas):
        if not image.is_registered(broker):
            raise Refused(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"{start}broker {broker}, but no such broker is registered."
            )
        if broker == previous:
            raise Refused(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"{start}the broker {broker} more than once.")
        previous = broker
    if replication_factor is not None and len(replicas) != replication_factor:
        raise Refused(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"{start}a partition with {len(replicas)} replica(s), but this is not consistent with previous "
            f"partitions, which have {replication_factor} replica(s).",
        )
    return tuple(map(BrokerId, replicas))


def check_can_lead(image: ClusterImage, partition: int, replicas: Replicas) -> None:
    """Raises Refused."""
    if not any(_may_lead(image, replica) for replica in replicas):
        raise Refused(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"All brokers specified in the manual partition assignment for partition {partition} are fenced or in "
            "controlled shutdown.",
        )


def _may_lead(image: ClusterImage, replica: BrokerId) -> bool:
    broker = image.brokers.get(replica)
    return broker is not None and broker.may_lead


def partition_nodes(image: ClusterImage, topic: TopicName, first: int, assignment: Sequence[Replicas]) -> list[Create]:
    """Nodes of new partitions at epoch 0: replicas that may lead are in sync, and the first of them leads."""
    operations = []
    for partition, replicas in enumerate(assignment, first):
        operations.append(Create(layout.partition_path(topic, partition), b""))
        isr = tuple(replica for replica in replicas if _may_lead(image, replica))
        epoch = image.brokers[isr[0]].epoch
        state = PartitionImage(isr[0], LeaderEpoch(0), replicas, isr, leader_broker_epoch=epoch)
        value = layout.state_value(state, image.controller_epoch)
        operations.append(Create(layout.state_path(topic, partition), value))
    return operations
