"""The replica that a consumer reads from best (KIP-392), as ``RackAwareReplicaSelector`` of Apache Kafka chooses it.

A replica in the consumer's rack: the leader if it is there, otherwise the one that has most, and of those the one that
caught up last. The leader where no replica is in that rack.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from oncelog.base.ids import BrokerId, Offset


class ReadReplica(NamedTuple):
    """A follower that has what a consumer asks for."""

    broker_id: BrokerId
    end: Offset
    behind_ms: int
    """Milliseconds since it had all that the leader had."""


def preferred_read_replica(
    rack_id: str, leader: BrokerId, followers: Iterable[ReadReplica], racks: Mapping[BrokerId, str | None]
) -> BrokerId | None:
    """The follower that a consumer in ``rack_id`` should read from, None: the leader. ``racks``: of brokers that
    live."""
    if not rack_id or racks.get(leader) == rack_id:
        return None
    near = [follower for follower in followers if racks.get(follower.broker_id) == rack_id]
    if not near:
        return None
    return max(near, key=lambda replica: (replica.end, -replica.behind_ms, replica.broker_id)).broker_id
