"""The brokers of the cluster.

DescribeCluster, versions 0 to 2 (KIP-700, KIP-919, KIP-1073), returns the cluster id, the controller, which clients
cannot reach here, and the brokers. On request it also lists fenced ones, and those that are down (as fenced, at their
last address), but never unregistered ones.

UnregisterBroker, version 0 (KIP-631), removes a broker that is down for good. Any broker marks its permanent record as
unregistered, unless it has registered again in the meantime.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from oncelog.base.errors import ErrorCode
from oncelog.core.controller.brokers.registration import unregister as unregistered
from oncelog.core.controller.brokers.suspicions import suspected_by
from oncelog.core.controller.image.model import UNKNOWN_MS
from oncelog.core.controller.outcomes import Refusal
from oncelog.handlers.api import CLUSTER_NAME, Operation, ResourceType
from oncelog.handlers.broker.context import Context
from oncelog.handlers.broker.metadata_changes import CLUSTER_DENIED, committed, with_outcome
from oncelog.handlers.broker.waits import Steps
from oncelog.wire.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from oncelog.wire.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse

DESCRIBE_ERRORS: Final[Mapping[ErrorCode, str]] = {
    ErrorCode.MISMATCHED_ENDPOINT_TYPE: "controllers are asked for; this is a broker",
    ErrorCode.UNSUPPORTED_ENDPOINT_TYPE: "neither brokers nor controllers are asked for",
}

_BROKERS: Final = 1
_CONTROLLERS: Final = 2


def describe(request: DescribeClusterRequest, context: Context) -> DescribeClusterResponse:
    if request.endpoint_type == _CONTROLLERS:
        message = "The request was sent to an endpoint of type BROKER, but we wanted an endpoint of type CONTROLLER"
        return DescribeClusterResponse(error_code=ErrorCode.MISMATCHED_ENDPOINT_TYPE, error_message=message)
    if request.endpoint_type != _BROKERS:
        message = f"Unsupported endpoint type {request.endpoint_type}"
        return DescribeClusterResponse(error_code=ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, error_message=message)
    cluster = context.cluster
    response = DescribeClusterResponse(
        cluster_id=cluster.cluster_id,
        controller_id=cluster.image.controller_id,
        brokers=list(_brokers(context, with_fenced=request.include_fenced_brokers)),
    )
    if request.include_cluster_authorized_operations:
        allowed = context.allows_cluster(Operation.DESCRIBE)
        # Without the right to describe the cluster the bit field is empty.
        response.cluster_authorized_operations = (
            context.allowed_operations(ResourceType.CLUSTER, CLUSTER_NAME) if allowed else 0
        )
    return response


def _brokers(context: Context, *, with_fenced: bool) -> Iterator[DescribeClusterBroker]:
    """The brokers on the client's listener, by id."""
    image = context.cluster.image
    for broker_id in sorted({*image.broker_records, *image.brokers} if with_fenced else image.brokers):
        live = image.brokers.get(broker_id)
        if live is not None:
            address, rack, fenced = context.address_of(live), live.rack, live.fenced
        elif image.is_registered(broker_id):
            record = image.broker_records[broker_id]
            address, rack, fenced = context.last_address_of(record), record.rack, True
        else:
            continue
        if address is not None and (with_fenced or not fenced):
            host, port = address
            described = DescribeClusterBroker(broker_id=broker_id, host=host, port=port, rack=rack, is_fenced=fenced)
            if live is not None and image.suspicions:
                observers = sorted(suspected_by(image, live))
                since = [image.suspicions[broker_id, observer].since_ms for observer in observers]
                described.suspected_by, described.suspected_since_ms = list(observers), min(since, default=UNKNOWN_MS)
            yield described


UNREGISTER_ERRORS: Final[Mapping[ErrorCode, str]] = {
    ErrorCode.BROKER_ID_NOT_REGISTERED: "no such broker",
    ErrorCode.INVALID_REQUEST: "the broker is running",
    ErrorCode.REQUEST_TIMED_OUT: "too many conflicting metadata changes",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "not allowed to alter the cluster",
}


def unregister(request: UnregisterBrokerRequest, context: Context) -> Steps[UnregisterBrokerResponse]:
    if not context.allows_cluster(Operation.ALTER):
        return with_outcome(UnregisterBrokerResponse(), CLUSTER_DENIED)
    (outcome,) = yield from committed(lambda: unregistered(context.cluster.image, request.broker_id))
    response = UnregisterBrokerResponse()
    return with_outcome(response, outcome) if isinstance(outcome, Refusal) else response
