"""Leaders in responses: leader hints (KIP-951), reachable brokers, and the wait for an election."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import BrokerId, TopicPartition
from oncelog.handlers.broker.waits import Steps, UntilElected

if TYPE_CHECKING:
    from oncelog.core.controller.image.cluster_image import Brokers
    from oncelog.core.controller.image.model import PartitionImage
    from oncelog.handlers.broker.context import Context


class LeaderHint(NamedTuple):
    """A partition's leader (−1: none) and leader epoch."""

    leader_id: BrokerId
    leader_epoch: int


def leader_hint(partition: TopicPartition, error_code: int, context: Context) -> LeaderHint | None:
    """The current leader, if there is one and the error calls for it."""
    if error_code not in (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH):
        return None
    image = context.cluster.image.partition(partition)
    # A lost leader is no hint: the client would only fail there again.
    if image is None or image.leader in context.cluster.failed_brokers:
        return None
    return LeaderHint(image.leader, image.leader_epoch)


def add_endpoint(endpoints: list[Any], kind: type, broker_id: BrokerId, context: Context) -> None:
    """Add a broker's address to a response, once, as a ``kind``."""
    broker = context.cluster.image.brokers.get(broker_id)
    if broker is None or any(node.node_id == broker_id for node in endpoints):
        return
    address = context.address_of(broker)
    if address is not None:
        endpoints.append(kind(node_id=broker_id, host=address[0], port=address[1], rack=broker.rack))


def reachable_brokers(context: Context) -> Brokers:
    image = context.cluster.image
    key = ("reachable by", context.listener_name)
    brokers: Brokers | None = image.derived.get(key)
    if brokers is None:
        reachable = {
            number: broker for number, broker in image.brokers.items() if context.address_of(broker) is not None
        }
        # The image's own mapping, if all brokers have the listener: caches derived from it stay valid.
        brokers = image.derived[key] = image.brokers if len(reachable) == len(image.brokers) else reachable
    return brokers


def until_elected(partitions: Callable[[], Iterable[PartitionImage]], context: Context) -> Steps[None]:
    """Wait while a lost broker leads one of ``partitions()``, which reads the current image."""

    def are_led() -> bool:
        lost = context.cluster.failed_brokers
        return not lost or not any(partition.leader in lost for partition in partitions())

    if not are_led():
        yield UntilElected(are_led)
