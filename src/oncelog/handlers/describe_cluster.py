"""DescribeCluster, versions 0 to 2 (KIP-700, KIP-919, KIP-1073): cluster id, controller and live brokers.

There are no controllers that clients could reach. A broker that is not alive is not listed; one that is fenced only if
that is asked for.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from oncelog.base.errors import ErrorCode
from oncelog.handlers.api import Operation
from oncelog.handlers.support.context import Context
from oncelog.handlers.support.metadata_changes import cluster_operations, may_cluster
from oncelog.wire.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)

ERRORS: Final[Mapping[ErrorCode, str]] = {
    ErrorCode.MISMATCHED_ENDPOINT_TYPE: "controllers are asked for; this is a broker",
    ErrorCode.UNSUPPORTED_ENDPOINT_TYPE: "neither brokers nor controllers are asked for",
}

_BROKERS: Final = 1
_CONTROLLERS: Final = 2


def handle(request: DescribeClusterRequest, context: Context) -> DescribeClusterResponse:
    """The cluster as this broker sees it."""
    if request.endpoint_type == _CONTROLLERS:
        message = "The request was sent to an endpoint of type BROKER, but we wanted an endpoint of type CONTROLLER"
        return DescribeClusterResponse(error_code=ErrorCode.MISMATCHED_ENDPOINT_TYPE, error_message=message)
    if request.endpoint_type != _BROKERS:
        message = f"Unsupported endpoint type {request.endpoint_type}"
        return DescribeClusterResponse(error_code=ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, error_message=message)
    cluster = context.cluster
    brokers = []
    for broker_id, found in sorted(cluster.image.brokers.items()):
        if found.fenced and not request.include_fenced_brokers:
            continue
        address = context.address_of(found)
        if address is None:
            continue
        described = DescribeClusterBroker(broker_id=broker_id, host=address[0], port=address[1], rack=found.rack)
        described.is_fenced = found.fenced
        brokers.append(described)
    response = DescribeClusterResponse(
        cluster_id=cluster.cluster_id, controller_id=cluster.image.controller_id, brokers=brokers
    )
    if request.include_cluster_authorized_operations:
        allowed = may_cluster(context, Operation.DESCRIBE)
        response.cluster_authorized_operations = cluster_operations(context) if allowed else 0
    return response
