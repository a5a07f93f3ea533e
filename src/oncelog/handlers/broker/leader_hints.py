"""The leader of a partition, told with the error that another broker leads it: clients need not ask for metadata
(KIP-951). Not an API.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import BrokerId, TopicPartition

if TYPE_CHECKING:
    from oncelog.handlers.broker.context import Context


class LeaderHint(NamedTuple):
    """A partition's leader (−1: none) and leader epoch."""

    leader_id: BrokerId
    leader_epoch: int


def leader_hint(partition: TopicPartition, error_code: int, context: Context) -> LeaderHint | None:
    """The hint to give with an error; None where the error or the partition gives none."""
    if error_code not in (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH):
        return None
    found = context.cluster.image.partition(partition)
    if found is None or found.leader in context.cluster.lost_brokers:
        return None
    return LeaderHint(found.leader, found.leader_epoch)


def add_endpoint(endpoints: list[Any], kind: type, broker_id: BrokerId, context: Context) -> None:
    """Say where a broker is, once in a response; ``kind`` is the response's own class for it."""
    broker = context.cluster.image.brokers.get(broker_id)
    if broker is None or any(node.node_id == broker_id for node in endpoints):
        return
    address = context.address_of(broker)
    if address is not None:
        endpoints.append(kind(node_id=broker_id, host=address[0], port=address[1], rack=broker.rack))
