"""The brokers that a client can be sent to: those that have the listener by which it came. Not an API."""

from __future__ import annotations

from oncelog.core.controller.image.cluster_image import Brokers
from oncelog.handlers.broker.context import Context


def reachable_brokers(context: Context) -> Brokers:
    """The image's own mapping where all brokers have the listener, so that what is remembered of it holds."""
    image = context.cluster.image
    key = ("reachable by", context.listener_name)
    found: Brokers | None = image.derived.get(key)
    if found is None:
        brokers = image.brokers
        reachable = {broker_id: each for broker_id, each in brokers.items() if context.address_of(each) is not None}
        found = image.derived[key] = brokers if len(reachable) == len(brokers) else reachable
    return found
