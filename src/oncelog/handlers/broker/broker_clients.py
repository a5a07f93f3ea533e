"""Client ids of connections between brokers. Not an API.

A client id proves nothing and grants nothing: the authoriser decides what only brokers may ask.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from oncelog.base.ids import BrokerId
from oncelog.handlers.api import CLUSTER_NAME, Operation, ResourceType

if TYPE_CHECKING:
    from oncelog.handlers.broker.context import Context

_CLIENT_ID: Final = re.compile(r"broker-([0-9]{1,10})-[a-z]+")


def broker_client_id(broker_id: BrokerId, purpose: str) -> str:
    return f"broker-{broker_id}-{purpose}"


def claims_to_be_broker(context: Context) -> bool:
    """True if the client id is that of a broker which is, or once was, registered in this cluster."""
    match = _CLIENT_ID.fullmatch(context.client_id or "")
    if match is None:
        return False
    image, broker_id = context.cluster.image, BrokerId(int(match[1]))
    # A paused broker whose session has expired finishes what it had decided before it registers again.
    return broker_id in image.brokers or broker_id in image.broker_records


def is_trusted_broker(context: Context) -> bool:
    """True if a request claims to be a broker's and has ClusterAction.

    This is enough from a broker, and no other client, for requests that Apache Kafka's brokers do not send each other
    (ListTransactions, DescribeTransactions) or only as super users (ListOffsets).
    """
    return claims_to_be_broker(context) and context.allows_silently(
        Operation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME
    )
