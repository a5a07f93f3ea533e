"""Selects the replica that a consumer should read from (KIP-392), like Apache Kafka's ``RackAwareReplicaSelector``.

It is a replica in the consumer's rack: the leader if possible, otherwise the one with the largest end, then the one
caught up most recently. Without a replica in that rack it is the leader.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from oncelog.base.ids import BrokerId, Offset


class ReadReplica(NamedTuple):
    """A follower that has the data a consumer requests."""

    broker_id: BrokerId
    end: Offset
    behind_ms: int
    """Milliseconds since it had everything that the leader had."""


def preferred_read_replica(
    rack_id: str, leader: BrokerId, followers: Iterable[ReadReplica], racks: Mapping[BrokerId, str | None]
) -> BrokerId | None:
    """The follower for a consumer in ``rack_id``; None: the leader. ``racks`` are those of live brokers."""
    if not rack_id or racks.get(leader) == rack_id:
        return None
    # Only replicas in the consumer's rack are cheaper to read from than the leader.
    near = [follower for follower in followers if racks.get(follower.broker_id) == rack_id]
    if not near:
        return None
    return max(near, key=lambda replica: (replica.end, -replica.behind_ms, replica.broker_id)).broker_id
