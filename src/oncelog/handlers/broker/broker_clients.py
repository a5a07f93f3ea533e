"""Client ids of connections between brokers. Not an API.

Nothing proves a client id, and nothing is allowed for its sake alone: what only brokers may ask, the authoriser says.
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
    """The client id of a broker's connection to another."""
    return f"broker-{broker_id}-{purpose}"


def claims_to_be_broker(context: Context) -> bool:
    """True if the client id of a request is that of a broker which is, or ever was, registered in this cluster.

    One that stood still until its session had ended goes on with what it had decided, before it registers again.
    """
    found = _CLIENT_ID.fullmatch(context.client_id or "")
    if found is None:
        return False
    image, broker_id = context.cluster.image, BrokerId(int(found[1]))
    return broker_id in image.brokers or broker_id in image.broker_records


def is_trusted_broker(context: Context) -> bool:
    """True if a request that says it is a broker's has the right of one.

    Brokers of a cluster ask each other what Apache Kafka's do not ask (ListTransactions, DescribeTransactions), or only
    as super users (ListOffsets); to them ClusterAction is enough for that, and to nobody else."""
    return claims_to_be_broker(context) and context.allows_silently(
        Operation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME
    )
